"""How good a policy is: the greedy policy over many operations, its errors counted."""

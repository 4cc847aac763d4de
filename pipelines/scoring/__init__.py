"""How good a policy is: operations, players, scores, errors, the report."""

"""The expert of the virtual abacus: its algorithm, its actions, and its observations."""

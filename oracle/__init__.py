"""The teacher of the virtual abacus: its algorithm, its answers, and all that it can meet."""

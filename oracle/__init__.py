"""The teacher of the virtual abacus: its algorithm, its answer in every state, and what it can meet."""

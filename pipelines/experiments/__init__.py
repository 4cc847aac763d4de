"""The study: its grid, its cells and their engines, its records, what they say."""

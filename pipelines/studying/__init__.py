"""The study of supervision: its grid, its records, what runs the cells, and what they say."""

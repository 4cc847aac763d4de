"""Watching a policy compute: the game, the terminal, films and the page."""

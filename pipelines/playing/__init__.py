"""Watching an agent compute: the game, its players, the terminal, pictures, and the page."""

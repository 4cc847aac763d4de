"""The figures of a study: a module for each, what they share, and which of them are drawn."""

"""What every command shares: its command line and its tables."""

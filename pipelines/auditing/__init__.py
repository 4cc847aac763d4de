"""What the audit of observability measures, and how it is told."""

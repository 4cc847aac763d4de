"""Timings and large checks: `python -m benchmarks.NAME`."""

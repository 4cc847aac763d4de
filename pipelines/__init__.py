"""The jobs: `python -m pipelines.NAME`, each with `--help`."""

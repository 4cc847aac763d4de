"""The jobs: `python -m pipelines.NAME`, each with `--help`."""

from pipelines.job.interrupts import end_on_interrupt

end_on_interrupt()

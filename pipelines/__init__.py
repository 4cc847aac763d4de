"""The jobs: `python -m pipelines.NAME` or `abacus NAME`, each with `--help`."""

import sys

from pipelines.job.interrupts import end_on_interrupt

# `sys.argv[0]` is `-m` while Python looks for the module. A library that imports the package keeps
# its handler.
if sys.argv[:1] == ["-m"]:
    end_on_interrupt()

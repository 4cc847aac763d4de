"""A description of the machine, printed with every timing."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def machine() -> str:
    """Return the processor, the number of cores and the current load, in one line."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return f"{_processor()}, {os.cpu_count()} cores, load over 1, 5 and 15 minutes {load}"


def _processor() -> str:
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()

"""Fixtures of all tests of the jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def denormal_numbers() -> Iterator[None]:
    """Learners turn them off for their process, which other tests share."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)

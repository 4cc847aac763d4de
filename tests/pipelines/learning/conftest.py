"""Fixtures of the tests of learners."""

from __future__ import annotations

import pytest

from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.policy import prepare_torch
from tests.pipelines.small_world import small_set


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Weights depend on the number of threads; and tests may run in parallel."""
    prepare_torch(1)


@pytest.fixture(scope="session")
def data() -> CloningSet:
    """Distinct observations of demonstrations of the small world."""
    return small_set()

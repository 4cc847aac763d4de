"""Fixtures shared by the tests of exactness."""

from __future__ import annotations

import pytest

from oracle.exact.complete_set import ObservationSet, enumerate_observations


@pytest.fixture(scope="package")
def observations() -> ObservationSet:
    """Return the default set: base 5, three frames, enumerated without the cache."""
    return enumerate_observations(base=5, frames=3)

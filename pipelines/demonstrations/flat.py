"""Observations as one flat row, for formats that know no Dict observations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from abacus.observation import observation_space
from abacus.rules import AbacusConfig


def flat_rows(
    observations: Mapping[str, npt.NDArray[np.float32]], config: AbacusConfig
) -> npt.NDArray[np.float32]:
    """(rows, length), in the order of Gymnasium's `FlattenObservation`."""
    return np.concatenate([observations[key] for key in observation_space(config)], axis=1)

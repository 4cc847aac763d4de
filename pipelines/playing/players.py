"""Who moves the finger: a trained network, or the teacher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from abacus.batch import AbacusBatch
from abacus.rules import Action
from oracle.expert import expert_actions

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy


class Player(Protocol):
    """Anyone who can say how likely each action is; the likeliest is taken."""

    @property
    def name(self) -> str: ...

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        """(8,): of the actions in the batch's only abacus; 0 for illegal ones."""
        ...


class TeacherPlayer:
    """The teacher is always sure."""

    name = "the teacher"

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        certain: npt.NDArray[np.floating] = np.eye(len(Action))[expert_actions(batch)[0]]
        return certain


class NetworkPlayer:
    """A policy's network, without its randomness."""

    def __init__(self, name: str, policy: AbacusPolicy) -> None:
        self.name = name
        self.policy = policy

    def probabilities(self, batch: AbacusBatch) -> npt.NDArray[np.floating]:
        import torch  # here: the teacher and a person play without it

        rows = torch.from_numpy(batch.out.seen)
        with torch.no_grad():
            log_probs = self.policy.log_probs(rows, batch.masks.copy())
        probabilities: npt.NDArray[np.floating] = log_probs[0].double().exp().numpy()
        return probabilities


def network_player(run: Path | None, trust: bool = False) -> NetworkPlayer:
    """The policy of a run, or the published one."""
    from pipelines.learning.publish import load_run

    name = "the published policy" if run is None else f"the policy of {run.name or run}"
    return NetworkPlayer(name, load_run(run, trust=trust))

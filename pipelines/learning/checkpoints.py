"""The state of a PPO training in tensors and plain values: to go on as if nothing had happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abacus.batch import AbacusBatch
from pipelines.learning.ppo import AbacusPPO


def ppo_state(model: AbacusPPO) -> dict[str, Any]:
    """Weights, optimiser, counters, torch's generator and every abacus, between two rollouts."""
    return {
        "policy": model.policy.state_dict(),
        "clone": None if model.clone is None else model.clone.state_dict(),
        "optimizer": model.policy.optimizer.state_dict(),
        "num_timesteps": model.num_timesteps,
        "n_updates": model._n_updates,
        "longest_run": model.longest_run,
        "torch_generator": torch.get_rng_state(),
        "abaci": _abaci_state(model.batch),
    }


def load_ppo_state(model: AbacusPPO, state: dict[str, Any]) -> None:
    """Goes back to where `ppo_state` was taken."""
    if state["clone"] is not None:
        model.freeze_clone()
        assert model.clone is not None
        model.clone.load_state_dict(state["clone"])
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimizer"])
    model.num_timesteps = state["num_timesteps"]
    model._n_updates = state["n_updates"]
    model.longest_run = state["longest_run"]
    _load_abaci(model.batch, state["abaci"])
    # The library starts the environment anew where it has no last observation.
    model._last_obs = dict(model.batch.observation)
    torch.set_rng_state(state["torch_generator"])


def _abaci_arrays(batch: AbacusBatch) -> dict[str, npt.NDArray[Any]]:
    return {
        "scalars": batch.world.scalars,
        "cells": batch.world.cells,
        "history": batch.world.history,
        "seen": batch.out.seen,
        "results": batch.out.results,
    }


def _abaci_state(batch: AbacusBatch) -> dict[str, torch.Tensor]:
    """The arrays as bytes: records are nothing that torch knows."""
    return {
        name: torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
        for name, array in _abaci_arrays(batch).items()
    }


def _load_abaci(batch: AbacusBatch, state: dict[str, torch.Tensor]) -> None:
    batch.reset(0)
    for name, array in _abaci_arrays(batch).items():
        saved = np.frombuffer(state[name].numpy().tobytes(), array.dtype)
        if saved.size != array.size:
            raise ValueError("the checkpoint was written by another version of the abacus")
        array[...] = saved.reshape(array.shape)

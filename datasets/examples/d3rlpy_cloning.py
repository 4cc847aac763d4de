"""Clone demonstrations with d3rlpy's discrete behavioural cloning, from an export to D4RL's format.

Needs d3rlpy, which fixes other versions of Gymnasium than this project: an environment of its own.

    pip install d3rlpy h5py
    python -m pipelines.export datasets/sample.h5 --to d4rl
    python datasets/examples/d3rlpy_cloning.py datasets/sample-d4rl.h5

The rewards are there as well: replace DiscreteBCConfig by DiscreteCQLConfig for offline
reinforcement learning. Nothing of this project is imported.
"""

from __future__ import annotations

import argparse

import d3rlpy  # type: ignore[import-not-found]
import h5py
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", default="datasets/sample-d4rl.h5")
parser.add_argument("--updates", type=int, default=2000)
options = parser.parse_args()
d3rlpy.seed(0)

with h5py.File(options.file) as file:
    observations, masks = file["observations"][:], file["infos/action_mask"][:]
    rewards, actions = file["rewards"][:], file["infos/expert_action"][:]
    terminals, timeouts = file["terminals"][:], file["timeouts"][:]

# The last tenth of the episodes is kept for validation.
ends = np.flatnonzero(terminals | timeouts) + 1
cut = int(ends[len(ends) * 9 // 10 - 1]) if len(ends) > 1 else len(actions)
train, held_out = slice(0, cut), slice(cut, None)
dataset = d3rlpy.dataset.MDPDataset(
    observations=observations[train],
    actions=actions[train],
    rewards=rewards[train],
    terminals=terminals[train],
    timeouts=timeouts[train],
    action_space=d3rlpy.ActionSpace.DISCRETE,
    action_size=masks.shape[1],
)
clone = d3rlpy.algos.DiscreteBCConfig(batch_size=256, learning_rate=2e-3).create()
clone.fit(
    dataset,
    n_steps=options.updates,
    n_steps_per_epoch=options.updates,
    show_progress=False,
    logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
)
right = (clone.predict(observations[held_out]) == actions[held_out]).mean()
print(f"trained on {cut:,} transitions, {options.updates} updates")
print(f"validation accuracy {right:.2%} on {len(actions) - cut:,} transitions")

"""Clone demonstrations with TorchRL, from its replay buffer of a Minari dataset.

Needs torchrl 0.10 (0.11 to 0.14.1 load zeros instead of a local dataset), minari, h5py and pillow:

    pip install torchrl==0.10.1 "minari[hdf5]" pillow
    python -m pipelines.export datasets/sample.h5 --to minari --output exported
    python datasets/examples/torchrl_cloning.py sample-v0 --root exported

Nothing of this project is imported: export in one environment, learn in another.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
from tensordict.nn import TensorDictModule  # type: ignore[import-not-found]
from torch import nn
from torchrl.data.datasets.minari_data import MinariExperienceReplay  # type: ignore[import-not-found]
from torchrl.modules import MaskedCategorical  # type: ignore[import-not-found]

ENTRIES = ("window", "symbol", "operation")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", nargs="?", default="sample-v0")
parser.add_argument("--root", default=None, help="folder of Minari datasets (default: Minari's)")
parser.add_argument("--updates", type=int, default=3000)
options = parser.parse_args()
torch.manual_seed(0)
if options.root is not None:
    os.environ["MINARI_DATASETS_PATH"] = options.root

folder = tempfile.TemporaryDirectory()
replay = MinariExperienceReplay(
    options.dataset,
    batch_size=256,
    root=folder.name,
    download=False,
    load_from_local_minari=True,
)
everything = replay[:]
if not everything["observation", "window"].any():
    raise SystemExit("this version of torchrl loaded zeros: install torchrl==0.10.1")

# Every tenth episode is kept for validation, and is not learned from.
held_out = everything["episode"] % 10 == 1
inputs = sum(everything["observation", entry].shape[1] for entry in ENTRIES)
network = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 8))
policy = TensorDictModule(
    lambda *entries: network(torch.cat(entries, dim=-1)),
    in_keys=[("observation", entry) for entry in ENTRIES],
    out_keys=["logits"],
)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(options.updates):
    batch = replay.sample()
    batch = batch[batch["episode"] % 10 != 1]
    answers = MaskedCategorical(logits=policy(batch)["logits"], mask=batch["info", "action_mask"])
    loss = -answers.log_prob(batch["info", "expert_action"]).mean()
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()

with torch.no_grad():
    chosen = everything[held_out]
    logits = policy(chosen)["logits"].masked_fill(~chosen["info", "action_mask"], -torch.inf)
    right = (logits.argmax(-1) == chosen["info", "expert_action"]).float().mean().item()
print(f"trained on {int((~held_out).sum()):,} transitions, {options.updates} updates")
print(f"validation accuracy {right:.2%} on {int(held_out.sum()):,} transitions")
folder.cleanup()

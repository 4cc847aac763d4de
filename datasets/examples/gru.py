"""Clone demonstrations with a recurrent network. Needs h5py, numpy and torch.

    python datasets/examples/gru.py datasets/sample.h5

The state of a GRU over an operation replaces the stack of frames: each input has one frame. Nothing
of this project is imported: other learners can read a file in the same way.
"""

from __future__ import annotations

import argparse

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", default="datasets/sample.h5")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
torch.manual_seed(options.seed)

with h5py.File(options.file) as file:
    columns = file["transitions"]
    pixels = file["tables/frame"][:] * file["tables/frame"].attrs["scale"]
    frames = pixels[columns["frame"][:]].reshape(len(columns["frame"]), -1)
    symbols = np.eye(columns["symbol"][:].max() + 1)[columns["symbol"][:]]
    inputs = np.column_stack([frames, symbols, columns["operation"][:]]).astype(np.float32)
    actions = columns["action"][:].astype(np.int64)
    starts = file["operations/start"][1:]
    validation = file["episodes/validation"][:][file["operations/episode"][:]] == 1

# One sequence for each operation, padded to the longest; -1 marks padding in the targets.
sequences = pad_sequence([torch.from_numpy(part) for part in np.split(inputs, starts)], True)
targets = pad_sequence([torch.from_numpy(part) for part in np.split(actions, starts)], True, -1)
train, held_out = (torch.from_numpy(np.flatnonzero(which)) for which in (~validation, validation))


class RecurrentPolicy(nn.Module):
    """A GRU with a linear head for the action logits."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs.shape[1], 64, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.gru(sequence)[0])
        return logits


model = RecurrentPolicy()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(options.epochs):
    for chosen in torch.split(train[torch.randperm(len(train))], 32):
        logits = model(sequences[chosen])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), targets[chosen].flatten(), ignore_index=-1
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

with torch.no_grad():
    right = model(sequences[held_out]).argmax(-1) == targets[held_out]
accuracy = right.sum().item() / (targets[held_out] >= 0).sum().item()
print(f"trained on {len(train):,} operations, {options.epochs} epochs, last loss {loss:.4f}")
print(f"validation accuracy {accuracy:.2%} on the transitions of {len(held_out):,} operations")

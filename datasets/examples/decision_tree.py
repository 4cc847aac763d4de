"""Clone demonstrations with a decision tree. Needs h5py, numpy and scikit-learn.

    python datasets/examples/decision_tree.py datasets/sample.h5

Nothing of this project is imported: other learners can read a file in the same way.
"""

from __future__ import annotations

import argparse

import h5py
import numpy as np
from sklearn.tree import DecisionTreeClassifier

FRAMES = 3

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file", nargs="?", default="datasets/sample.h5")
parser.add_argument(
    "--operations", type=int, default=None, help="number of operations to read (default: all)"
)
options = parser.parse_args()

with h5py.File(options.file) as file:
    stop = file["operations/start"][options.operations] if options.operations else None
    frame, symbol, operation, action = (
        file[f"transitions/{name}"][:stop] for name in ("frame", "symbol", "operation", "action")
    )
    pixels = file["tables/frame"][:] * file["tables/frame"].attrs["scale"]
    start, fresh = file["operations/start"][:], file["operations/fresh"][:]
    validation = np.repeat(file["episodes/validation"][:], file["episodes/length"][:])[:stop]

# Stack the last frames; where a stack starts, the first frame is repeated.
rows = np.arange(len(frame))
stacks = start[(fresh == 1) & (start < len(rows))]
first = np.repeat(stacks, np.diff(np.append(stacks, len(rows))))
history = np.maximum(rows[:, None] - np.arange(FRAMES)[::-1], first[:, None])
windows = pixels[frame[history]].reshape(len(rows), -1)
inputs = np.column_stack([windows, np.eye(symbol.max() + 1)[symbol], operation])

train, held_out = validation == 0, validation == 1
tree = DecisionTreeClassifier(random_state=0).fit(inputs[train], action[train])
accuracy = tree.score(inputs[held_out], action[held_out])
print(f"trained on {train.sum():,} transitions, {tree.get_n_leaves():,} leaves")
print(f"validation accuracy {accuracy:.2%} on {held_out.sum():,} transitions")

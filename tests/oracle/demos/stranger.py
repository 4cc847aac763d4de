"""Rebuild observations, masks and rewards from a file, with h5py and the file's attributes alone.

    python -I stranger.py FILE RESULT.npz

It imports nothing of this project and knows no number, name or shape of the format that the file
does not tell. It is a slow, second implementation of what `oracle.demos.dataset` does.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import h5py as typed_h5py
import numpy as np

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py


def attributes(item: Any) -> dict[str, Any]:
    """Return the attributes of an object; texts that start with { or [ are JSON."""
    found = {}
    for name, value in item.attrs.items():
        if isinstance(value, bytes):
            text = value.decode()
            found[name] = json.loads(text) if text[0] in "{[" else text
        else:
            found[name] = value
    return found


def one_hot(codes: Any, length: int) -> Any:
    return (np.asarray(codes)[:, np.newaxis] == np.arange(length)).astype(np.float32)


def rebuild(file: Any) -> dict[str, Any]:
    rows, episodes = file["transitions"], file["episodes"]
    shapes = attributes(rows)["observation"]
    about = {name: attributes(dataset) for name, dataset in rows.items()}
    table = file[about["frame"]["table"]]
    pixels = table[:] * attributes(table)["scale"]
    depth = shapes["window"][0]

    operations = file["operations"]
    fresh_words = attributes(operations["fresh"])["values"]
    starts = [
        start
        for start, fresh in zip(operations["start"][:], operations["fresh"][:], strict=True)
        if fresh_words[str(fresh)] == "yes"
    ]
    assert attributes(operations["start"])["unit"] == "row of transitions"

    # Walk through the steps, and keep the stack of frames and the last action.
    frames, taken = rows["frame"][:], rows["taken"][:]
    symbols, kinds = rows["symbol"][:], rows["operation"][:]
    lasts = episodes["start"][:] + episodes["length"][:] - 1
    windows: list[Any] = []
    previous: list[int] = []
    final_windows: list[Any] = []
    stack: list[int] = []
    for row in range(len(frames)):
        if row in starts:
            stack = [frames[row]] * depth
            previous.append(-1)
        else:
            stack = [*stack[1:], frames[row]]
            previous.append(taken[row - 1])
        windows.append(pixels[stack])
        if row in lasts:
            final = episodes["final_frame"][len(final_windows)]
            final_windows.append(pixels[[*stack[1:], final]])

    result = {
        "window": np.stack(windows),
        "symbol": one_hot(symbols, len(about["symbol"]["values"])),
        "operation": kinds[:, np.newaxis],
        "previous_action": one_hot(previous, len(about["taken"]["values"])),
        "final_window": np.stack(final_windows),
        "final_symbol": one_hot(episodes["final_symbol"][:], len(about["symbol"]["values"])),
        "final_operation": episodes["final_operation"][:][:, np.newaxis],
        "final_previous_action": one_hot(taken[lasts], len(about["taken"]["values"])),
    }
    for name, shape in shapes.items():
        for key in (name, f"final_{name}"):
            assert list(result[key].shape[1:]) == shape
            result[key] = result[key].reshape(len(result[key]), -1).astype(np.float32)

    # The mask: one power of two for each action, by name.
    powers = {words: int(value) for value, words in about["mask"]["values"].items()}
    names = [about["action"]["values"][str(code)] for code in range(len(powers))]
    result["mask"] = np.stack([rows["mask"][:] & powers[name] != 0 for name in names], axis=1)

    result["reward"] = rows["reward"][:] * about["reward"]["scale"]
    terms = file["tables/terms"]
    of_terms = attributes(terms)
    labels, axes = of_terms["labels"], of_terms["axes"]
    assert axes == ["level", "action", "outcome", "term"]
    outcome_words = [about["outcome"]["values"][str(value)] for value in rows["outcome"][:]]
    outcome = [labels["outcome"].index(words) for words in outcome_words]
    action = [labels["action"].index(about["taken"]["values"][str(code)]) for code in taken]
    for number, level in enumerate(labels["level"]):
        at_level = terms[number][action, outcome] * of_terms["scale"]
        result[f"terms_{level}"] = at_level
        paid = {labels["term"][k] for k in np.flatnonzero(np.abs(at_level).sum(axis=0))}
        modules = {name.partition("_")[0] for name in of_terms["modules"][level]}
        assert paid <= modules
    return result


if __name__ == "__main__":
    with h5py.File(sys.argv[1]) as opened:
        np.savez(sys.argv[2], **rebuild(opened))
    assert not {"abacus", "oracle", "pipelines"} & set(sys.modules)

"""Turns a file of demonstrations into what other libraries load.

minari      a dataset for minari.load_dataset, with Dict observations
imitation   a folder for imitation.data.serialize.load, with flat observations
d4rl        one HDF5 file of flat arrays: observations, actions, rewards, terminals, timeouts

Observations are stacked and rewards are scalar, at any level and with any number of frames.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oracle.demos import Demonstrations
from oracle.demos.recipe import Recipe
from pipelines.command_line import argument, option, run, shown_path

EXAMPLE = "python -m pipelines.export datasets/sample.h5 --to d4rl --frames 4 --reward no_of"


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the file of demonstrations")
    to: Literal["minari", "imitation", "d4rl"] = option(dataclasses.MISSING, "the format to write")
    output: Path | None = option(
        None, "file or folder to write; for minari its root (default: beside the file; Minari's)"
    )
    dataset_id: str | None = option(None, "id of the Minari dataset (default: the file's name)")
    n_operations: int | None = option(None, "only the first so many operations")
    split: Literal["all", "train", "validation"] = option("all", "the part to write")
    frames: int | None = option(None, "frames to stack (default: as the file says)")
    reward: str | None = option(None, "reward level (default: as the file says)")


def main(options: Options) -> int:
    """Exports, and says what to load it with."""
    demonstrations = _chosen(options)
    if options.to == "minari":
        return _to_minari(demonstrations, options)
    suffix = {"d4rl": "-d4rl.h5", "imitation": "-imitation"}[options.to]
    output = options.output or options.file.with_name(options.file.stem + suffix)
    _refuse_to_replace(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if options.to == "d4rl":
        from pipelines.demonstrations.to_d4rl import export_d4rl

        export_d4rl(demonstrations, output)
        _tell(demonstrations, output, f"h5py.File({str(output)!r})")
    else:
        from pipelines.demonstrations.to_imitation import export_imitation

        export_imitation(demonstrations, output)
        _tell(demonstrations, output, f"imitation.data.serialize.load({str(output)!r})")
    return 0


def _chosen(options: Options) -> Demonstrations:
    """The part of the file that is asked for, with the stack and the reward that are asked for."""
    demonstrations = Demonstrations.open(options.file)
    if options.split != "all":
        demonstrations = getattr(demonstrations, options.split)
    if options.n_operations is not None:
        demonstrations = demonstrations.first(options.n_operations)
    if not len(demonstrations):
        raise ValueError(f"{options.file} has no episodes for {options.split}")
    config = demonstrations.config
    changed = dataclasses.replace(
        config,
        frames=config.frames if options.frames is None else options.frames,
        reward=config.reward if options.reward is None else options.reward,
    )
    recipe: Recipe = dataclasses.replace(demonstrations.recipe, config=changed)
    return Demonstrations(demonstrations.recording, recipe)


def _to_minari(demonstrations: Demonstrations, options: Options) -> int:
    from pipelines.demonstrations.to_minari import export_minari, minari_root

    root = options.output or minari_root()
    dataset_id = options.dataset_id or f"{options.file.stem}-v0"
    _refuse_to_replace(root / dataset_id)
    folder = export_minari(demonstrations, dataset_id, root)
    how = f"minari.load_dataset({dataset_id!r})"
    if options.output is not None:
        how += f" with MINARI_DATASETS_PATH={shown_path(root)}"
    _tell(demonstrations, folder, how)
    return 0


def _refuse_to_replace(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} is there already: remove it, or give another --output")


def _tell(demonstrations: Demonstrations, path: Path, how: str) -> None:
    print(f"{demonstrations} -> {shown_path(path)}")
    print(f"load it with {how}")


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))

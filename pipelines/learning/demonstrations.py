"""The demonstrations of a run: found or recorded, checked against its world, made distinct."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oracle.demos.read import Demonstrations
from oracle.demos.record import FOLDER, record
from pipelines.command_line import shown_path
from pipelines.learning.cloning_set import CloningSet, distinct
from pipelines.learning.files import locked
from pipelines.learning.settings import Settings

Say = Callable[[str], None]


def cloning_sets(settings: Settings, say: Say) -> tuple[CloningSet, CloningSet | None]:
    """What is cloned, and what is held out; None of that where there is a single episode."""
    demonstrations = open_demonstrations(settings, say)
    validation = demonstrations.episodes["validation"]
    train = distinct(demonstrations.train, settings.frames)
    held_out = distinct(demonstrations.validation, settings.frames) if validation.any() else None
    say(
        f"{settings.demo_operations:,} operations: {len(demonstrations):,} transitions, "
        f"{len(train):,} distinct observations to clone"
    )
    return train, held_out


def open_demonstrations(settings: Settings, say: Say) -> Demonstrations:
    """The first operations of the run's file."""
    path = settings.demonstrations or recorded_file(settings, say)
    demonstrations = Demonstrations.open(path)
    check_world(demonstrations, settings, path)
    wanted, there = settings.demo_operations or 0, demonstrations.counts["operations"]
    if wanted > there:
        raise ValueError(
            f"{shown_path(path)} has {there:,} operations, and {wanted:,} are asked for: give "
            f"--demo-operations {there} or a larger file"
        )
    return demonstrations.first(wanted)


def recorded_file(settings: Settings, say: Say) -> Path:
    """The file for these settings, recorded if it is not there."""
    recipe = settings.recipe()
    path = FOLDER / recipe.file_name
    # Several runs may want it at the same time: the first records it, the others wait.
    if not path.is_file():
        with locked(path.with_name(f".{path.name}.lock")):
            if not path.is_file():
                say(f"recording {recipe.operations:,} operations into {path}")
                record(recipe, path)
    return path


def check_world(demonstrations: Demonstrations, settings: Settings, path: Path) -> None:
    """Raises where the demonstrations are of another abacus."""
    world, recorded = settings.world(), demonstrations.config
    for name in ("base", "columns"):
        asked, there = getattr(world, name), getattr(recorded, name)
        if asked != there:
            raise ValueError(
                f"{shown_path(path)} was recorded with {name}={there}, the run has "
                f"{name}={asked}: give --{name} {there} or another file"
            )

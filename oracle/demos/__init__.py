"""Demonstrations: recorded by the expert, stored in HDF5, read for any learner.

    record_demonstrations(Recipe(operations=1000), "some.h5")
    demonstrations = Demonstrations.open("some.h5")

Of given tasks instead of random operations, without a file and as one:

    demonstrations = record_tasks(config, [Task.parse("12 + 34 - 5")])
    record_demonstrations(demonstrations.recipe, "tasks.h5")

Those of given tasks that a trained policy solves, by its own actions:

    demonstrations = record_policy(config, tasks, choose, sha256)
    demonstrations.write(path)

`learners` feeds imitation and torch, `statistics` summarises a set, `replay` verifies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oracle.demos.dataset import Demonstrations
    from oracle.demos.recipe import Recipe, task_config
    from oracle.demos.recorder import record_in_memory, record_policy, record_tasks
    from oracle.demos.schema import DemonstrationsError
    from oracle.demos.shards import default_path, record_demonstrations

__all__ = [
    "Demonstrations",
    "DemonstrationsError",
    "Recipe",
    "default_path",
    "record_demonstrations",
    "record_in_memory",
    "record_policy",
    "record_tasks",
    "task_config",
]

#: Imported on first use: a command shows its help without the HDF5 library and compiled code.
_LAZY_MODULES = {
    "Demonstrations": "oracle.demos.dataset",
    "DemonstrationsError": "oracle.demos.schema",
    "Recipe": "oracle.demos.recipe",
    "default_path": "oracle.demos.shards",
    "record_demonstrations": "oracle.demos.shards",
    "record_in_memory": "oracle.demos.recorder",
    "record_policy": "oracle.demos.recorder",
    "record_tasks": "oracle.demos.recorder",
    "task_config": "oracle.demos.recipe",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'oracle.demos' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY_MODULES[name]), name)

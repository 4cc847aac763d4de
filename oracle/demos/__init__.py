"""Demonstrations: recorded by the expert, stored in HDF5, read for any learner.

    record_demonstrations(Recipe(operations=1000), "some.h5")
    demonstrations = Demonstrations.open("some.h5")

Of given tasks instead of random operations, without a file and as one:

    demonstrations = record_tasks(config, [Task.parse("12 + 34 - 5")])
    record_demonstrations(demonstrations.recipe, "tasks.h5")

`learners` feeds imitation and torch, `statistics` summarises a set, `replay` verifies it.
"""

from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe, task_config
from oracle.demos.recorder import record_in_memory, record_tasks
from oracle.demos.schema import DemonstrationsError
from oracle.demos.shards import default_path, record_demonstrations

__all__ = [
    "Demonstrations",
    "DemonstrationsError",
    "Recipe",
    "default_path",
    "record_demonstrations",
    "record_in_memory",
    "record_tasks",
    "task_config",
]

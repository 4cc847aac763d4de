"""Demonstrations: recorded by the expert, stored in HDF5, read for any learner.

    record_demonstrations(Recipe(operations=1000), "some.h5")
    demonstrations = Demonstrations.open("some.h5")

`learners` feeds imitation and torch, `statistics` summarises a set, `replay` verifies it.
"""

from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.schema import DemonstrationsError
from oracle.demos.shards import default_path, record_demonstrations

__all__ = [
    "Demonstrations",
    "DemonstrationsError",
    "Recipe",
    "default_path",
    "record_demonstrations",
]

"""Demonstrations: recorded by the teacher, kept in HDF5, read for any learner.

record(Recipe(operations=1000), "some.h5")
demonstrations = Demonstrations.open("some.h5")
"""

from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.schema import DemonstrationsError
from oracle.demos.shards import Report, default_path, open_or_record, record

__all__ = [
    "Demonstrations",
    "DemonstrationsError",
    "Recipe",
    "Report",
    "default_path",
    "open_or_record",
    "record",
]

"""Run Python as in an environment without some libraries: importing them fails there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Libraries of the extras, which the core does without.
EXTRAS = (
    "dask",
    "datasets",
    "distributed",
    "imitation",
    "matplotlib",
    "minari",
    "pandas",
    "sb3_contrib",
    "scipy",
    "sklearn",
    "stable_baselines3",
    "tensorboard",
    "torch",
)
_HIDE = """
import sys
class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden)
"""


def run_without(
    libraries: Iterable[str], folder: Path, arguments: list[str]
) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's root; `folder` takes the file that hides the libraries."""
    (folder / "sitecustomize.py").write_text(_HIDE.format(names=tuple(libraries)))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )

"""Compiled code that is kept on disk is renewed when any file that it was made from changes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from abacus.compiling import KERNEL_SOURCES

ROOT = Path(__file__).resolve().parents[2]

OURS = "from abacus.compiling import compiled"
PLAIN = "import numba; compiled = numba.njit(cache=True)"
RULE = """
{compiled}
@compiled
def rule(number):
    return number + {amount}
"""
USER = """
{compiled}
from world.rule import rule
@compiled
def use(number):
    return rule(number)
"""


def answer(folder: Path) -> int:
    """What a new process gets from `use`, with the cache that an older one left."""
    code = "from world.user import use; print(use(1))"
    environment = os.environ | {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "NUMBA_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("compiled", "answers"),
    [(OURS, [2, 3]), (PLAIN, [2, 2])],
    ids=["ours", "numba alone, which this is for"],
)
def test_a_change_in_another_file_is_noticed(
    compiled: str, answers: list[int], tmp_path: Path
) -> None:
    package = tmp_path / "world"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "user.py").write_text(USER.format(compiled=compiled))
    given = []
    for amount in (1, 2):
        (package / "rule.py").write_text(RULE.format(compiled=compiled, amount=amount))
        given.append(answer(tmp_path))
    assert given == answers


def test_what_has_not_changed_is_not_compiled_again(tmp_path: Path) -> None:
    package = tmp_path / "world"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "user.py").write_text(USER.format(compiled=OURS))
    (package / "rule.py").write_text(RULE.format(compiled=OURS, amount=1))
    answer(tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}
    # Not a file of compiled code: its changes do not count.
    (package / "words.py").write_text("HELLO = 'hello'")
    answer(tmp_path)
    assert kept
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")} == kept


def imported(module: str) -> set[str]:
    """The modules of the world that one of them imports, and those that these import."""
    tree = ast.parse((ROOT / "abacus" / f"{module}.py").read_text())
    imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {name.removeprefix("abacus.") for name in imports if name.startswith("abacus.")}
    return names.union(*map(imported, names))


def test_all_that_the_kernel_is_made_from_counts() -> None:
    shared = {"kernel", "hash_index"}
    assert shared.union(*map(imported, shared)) == set(KERNEL_SOURCES)

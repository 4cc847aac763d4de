"""The cache of compiled code depends on every source file involved."""

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


def answer(folder: Path, package: str = "world") -> int:
    """Return the result of `use` in a new process that shares the cache folder."""
    code = f"from {package}.user import use; print(use(1))"
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
def test_a_change_in_another_file_recompiles(
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


def test_a_change_in_another_package_recompiles(tmp_path: Path) -> None:
    for package in ("world", "jobs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "jobs" / "user.py").write_text(USER.format(compiled=OURS))
    given = []
    for amount in (1, 2):
        (tmp_path / "world" / "rule.py").write_text(RULE.format(compiled=OURS, amount=amount))
        given.append(answer(tmp_path, "jobs"))
    assert given == [2, 3]


def test_unchanged_sources_use_the_cache(tmp_path: Path) -> None:
    package = tmp_path / "world"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "user.py").write_text(USER.format(compiled=OURS))
    (package / "rule.py").write_text(RULE.format(compiled=OURS, amount=1))
    answer(tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}
    # A file without compiled code does not invalidate the cache.
    (package / "words.py").write_text("HELLO = 'hello'")
    answer(tmp_path)
    assert kept
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")} == kept


def imported(module: str) -> set[str]:
    """Return the modules of `abacus` that a module imports, directly or indirectly."""
    tree = ast.parse((ROOT / "abacus" / f"{module}.py").read_text())
    imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {name.removeprefix("abacus.") for name in imports if name.startswith("abacus.")}
    return names.union(*map(imported, names))


def test_kernel_sources_are_complete() -> None:
    shared = {"kernel", "hash_index"}
    assert shared.union(*map(imported, shared)) == set(KERNEL_SOURCES)

"""Hostile files: each is read correctly or refused in one line, without crash, hang or bloat.

`python -m benchmarks.fuzz_demos` does the same with thousands of files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.demos import Demonstrations, DemonstrationsError, Recipe, record_demonstrations
from tests.oracle.demos.hostile_files import (
    DAMAGES,
    Damage,
    cycle_of_soft_links,
    external_link,
    soft_link,
)
from tests.oracle.demos.hostile_reader import HostileReader

FILES = 200
#: Damage after which a file is, or may by chance be, intact.
MAY_BE_READ = {
    "unchanged",
    "harmless_attribute",
    "overwritten_block",
    "swapped_rows",
    "wrong_values",
    "wrong_attribute",
    "two_names_for_one_dataset",
    "other_filter",
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("demonstrations") / "intact.h5"
    record_demonstrations(Recipe(operations=120), path)
    return path


@pytest.fixture
def reader(intact: Path, tmp_path: Path) -> Iterator[HostileReader]:
    shutil.copy(intact, tmp_path / "outside.h5")
    reader = HostileReader(Demonstrations.open(intact).content_digest(), tmp_path / "outside.h5")
    yield reader
    reader.close()


def spoil(intact: Path, damage: Damage, folder: Path, seed: int) -> Path:
    path = folder / "spoilt.h5"
    shutil.copy(intact, path)
    damage(path, np.random.default_rng(seed))
    return path


def test_two_hundred_spoilt_files(intact: Path, reader: HostileReader, tmp_path: Path) -> None:
    kinds = set()
    for number in range(FILES):
        damage = DAMAGES[number % len(DAMAGES)]
        answer = reader.read(spoil(intact, damage, tmp_path, number))
        assert answer.is_acceptable, f"{damage.__name__}, seed {number}: {answer}"
        if answer.kind == "read":
            assert damage.__name__ in MAY_BE_READ or damage.__name__.startswith("forged_")
        kinds.add(damage.__name__)
    assert kinds == {damage.__name__ for damage in DAMAGES}


@pytest.mark.parametrize("damage", [soft_link, cycle_of_soft_links, external_link])
def test_links_are_refused(damage: Damage, intact: Path, tmp_path: Path) -> None:
    shutil.copy(intact, tmp_path / "outside.h5")
    with pytest.raises(DemonstrationsError, match="links are not followed"):
        Demonstrations.open(spoil(intact, damage, tmp_path, 0))


def test_an_intact_file_is_read(intact: Path, reader: HostileReader) -> None:
    assert reader.read(intact).kind == "read"


def test_misreading_and_opening_other_files_would_be_noticed(intact: Path) -> None:
    reader = HostileReader("0" * 64, outside=intact)
    try:
        answer = reader.read(intact)
        assert answer.kind == "strayed"
        assert "misread" in answer.text
    finally:
        reader.close()

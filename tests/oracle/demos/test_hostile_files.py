"""Hostile files: each is read correctly or refused in one line; nothing crashes, hangs or swells.

`python -m benchmarks.fuzz_demos` does the same to thousands.
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
#: What is still a sound file, or may be one by chance.
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
def sound(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("demonstrations") / "sound.h5"
    record_demonstrations(Recipe(operations=120), path)
    return path


@pytest.fixture
def reader(sound: Path, tmp_path: Path) -> Iterator[HostileReader]:
    shutil.copy(sound, tmp_path / "outside.h5")
    reader = HostileReader(Demonstrations.open(sound).content_digest(), tmp_path / "outside.h5")
    yield reader
    reader.close()


def spoilt(sound: Path, damage: Damage, folder: Path, seed: int) -> Path:
    path = folder / "spoilt.h5"
    shutil.copy(sound, path)
    damage(path, np.random.default_rng(seed))
    return path


def test_two_hundred_spoilt_files(sound: Path, reader: HostileReader, tmp_path: Path) -> None:
    kinds = set()
    for number in range(FILES):
        damage = DAMAGES[number % len(DAMAGES)]
        answer = reader.read(spoilt(sound, damage, tmp_path, number))
        assert answer.is_sound, f"{damage.__name__}, seed {number}: {answer}"
        if answer.kind == "read":
            assert damage.__name__ in MAY_BE_READ or damage.__name__.startswith("forged_")
        kinds.add(damage.__name__)
    assert kinds == {damage.__name__ for damage in DAMAGES}


@pytest.mark.parametrize("damage", [soft_link, cycle_of_soft_links, external_link])
def test_links_are_refused_as_such(damage: Damage, sound: Path, tmp_path: Path) -> None:
    shutil.copy(sound, tmp_path / "outside.h5")
    with pytest.raises(DemonstrationsError, match="links are not followed"):
        Demonstrations.open(spoilt(sound, damage, tmp_path, 0))


def test_a_sound_file_is_read(sound: Path, reader: HostileReader) -> None:
    assert reader.read(sound).kind == "read"


def test_misreading_and_straying_would_be_noticed(sound: Path) -> None:
    reader = HostileReader("0" * 64, outside=sound)
    try:
        answer = reader.read(sound)
        assert answer.kind == "strayed"
        assert "misread" in answer.text
    finally:
        reader.close()

"""Hostile files: each is refused, caught by --verify or harmless; no crash, hang or bloat.

`python -m benchmarks.fuzz_demos` does the same with thousands of files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abacus.rules import AbacusConfig
from oracle.demos import (
    Demonstrations,
    DemonstrationsError,
    Recipe,
    record_demonstrations,
    record_in_memory,
)
from tests.oracle.demos.hostile_files import (
    DAMAGES,
    Damage,
    cycle_of_soft_links,
    external_link,
    other_detour,
    other_request,
    other_split,
    renewed,
    soft_link,
    stored_size,
)
from tests.oracle.demos.hostile_reader import HostileReader

FILES = 200
#: Damage after which a file may by chance be intact, or be that of another recipe.
MAY_BE_HARMLESS = {
    "unchanged",
    "overwritten_block",
    "swapped_rows",
    "swapped_rows_with_its_digest",
    "wrong_values",
    "wrong_values_with_its_digest",
    "wrong_attribute",
    "wrong_explanation",
    "wrong_setting_with_its_digest",
    "other_detour_with_its_digest",
    "two_names_for_one_dataset",
    "other_filter",
    "flipped_metadata_of_new_layouts",
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("demonstrations") / "intact.h5"
    record_demonstrations(Recipe(operations=120), path)
    return path


@pytest.fixture(scope="module")
def intact_tasks(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("tasks") / "intact.h5"
    tasks = record_in_memory(Recipe(operations=60)).tasks()
    record_demonstrations(Recipe(AbacusConfig(), tasks=tasks), path)
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
        if answer.kind == "harmless":
            assert damage.__name__ in MAY_BE_HARMLESS or damage.__name__.startswith("forged_")
        kinds.add(damage.__name__)
    assert kinds == {damage.__name__ for damage in DAMAGES}


def test_spoilt_files_of_tasks(intact_tasks: Path, tmp_path: Path) -> None:
    """Every kind of damage, once."""
    shutil.copy(intact_tasks, tmp_path / "outside.h5")
    digest = Demonstrations.open(intact_tasks).content_digest()
    reader = HostileReader(digest, tmp_path / "outside.h5")
    try:
        assert reader.read(intact_tasks).kind == "harmless"
        for number, damage in enumerate(dict.fromkeys(DAMAGES)):
            answer = reader.read(spoil(intact_tasks, damage, tmp_path, number))
            assert answer.is_acceptable, f"{damage.__name__}, seed {number}: {answer}"
            if answer.kind == "harmless":
                assert damage.__name__ in MAY_BE_HARMLESS or damage.__name__.startswith("forged_")
    finally:
        reader.close()


@pytest.mark.parametrize("damage", [soft_link, cycle_of_soft_links, external_link])
def test_links_are_refused(damage: Damage, intact: Path, tmp_path: Path) -> None:
    shutil.copy(intact, tmp_path / "outside.h5")
    with pytest.raises(DemonstrationsError, match="links are not followed"):
        Demonstrations.open(spoil(intact, damage, tmp_path, 0))


def test_an_intact_file_is_read(intact: Path, reader: HostileReader) -> None:
    assert reader.read(intact).kind == "harmless"


def test_an_unfiltered_chunk_must_have_its_size(
    intact: Path, reader: HostileReader, tmp_path: Path
) -> None:
    answers = [reader.read(spoil(intact, stored_size, tmp_path, seed)) for seed in range(30)]
    assert {answer.kind for answer in answers} == {"refused"}
    assert sum("chunks that do not fit its shape" in answer.text for answer in answers) > 15


@pytest.mark.parametrize("damage", [other_split, other_request, other_detour])
def test_valid_values_that_the_recipe_does_not_give_are_caught(
    damage: Damage, intact: Path, reader: HostileReader, tmp_path: Path
) -> None:
    answer = reader.read(spoil(intact, renewed(damage), tmp_path, 1))
    assert answer.kind == "caught"


def test_opening_other_files_would_be_noticed(intact: Path) -> None:
    reader = HostileReader("0" * 64, outside=intact)
    try:
        assert reader.read(intact).kind == "strayed"
    finally:
        reader.close()

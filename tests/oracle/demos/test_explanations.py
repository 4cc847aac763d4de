"""A file explains itself: a stranger with h5py and the attributes rebuilds what learners get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py as typed_h5py
import numpy as np
import pytest

from abacus.reward import LEVELS, MODULES, TERMS
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Task
from oracle.demos import Demonstrations, Recipe, record_demonstrations

# Untyped: the published stubs take every object for a group.
h5py: Any = typed_h5py
ROOT = Path(__file__).parents[3]
STRANGER = Path(__file__).with_name("stranger.py")

RECIPES = {
    "as in the paper": Recipe(operations=30, epsilon=0.1),
    "subtraction with reloads in base 3": Recipe(
        AbacusConfig(
            columns=4,
            base=3,
            max_digits=2,
            frames=4,
            operations="subtract",
            start=30,
            reward="no_of_sp",
            max_operations=12,
        ),
        operations=30,
        epsilon=0.2,
        seed=5,
    ),
    "one frame, chosen modules": Recipe(
        AbacusConfig(frames=1, reward=("step", "submit"), max_operations=3), operations=10
    ),
    "given tasks": Recipe(
        AbacusConfig(columns=6, max_digits=4),
        tasks=(Task.parse("12 + 34 - 5"), Task.parse("100 - 99")),
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_stranger_rebuilds_observations_masks_and_rewards(name: str, tmp_path: Path) -> None:
    path, result = tmp_path / "some.h5", tmp_path / "result.npz"
    record_demonstrations(RECIPES[name], path, workers=1)
    subprocess.run([sys.executable, "-I", STRANGER, path, result], check=True, cwd=tmp_path)
    demonstrations = Demonstrations.open(path)
    rebuilt = np.load(result)
    wanted = demonstrations.observations()
    finals = demonstrations.final_observations()
    for key in wanted:
        assert np.array_equal(rebuilt[key], wanted[key])
        assert np.array_equal(rebuilt[f"final_{key}"], finals[key])
    assert np.array_equal(rebuilt["mask"], demonstrations.masks())
    assert np.array_equal(rebuilt["reward"].astype(np.float32), demonstrations.rewards())
    for level in LEVELS:
        terms = rebuilt[f"terms_{level}"].astype(np.float32)
        assert np.array_equal(terms, demonstrations.terms(level))


@pytest.fixture(scope="module")
def file() -> Any:
    with h5py.File(ROOT / "datasets" / "sample.h5") as file:
        yield file


def test_every_group_and_dataset_of_the_sample_is_explained(file: Any) -> None:
    items = [file]
    file.visititems(lambda name, item: items.append(item))
    assert len(items) == 1 + 4 + 30
    for item in items:
        assert len(item.attrs["description"]) > 15, item.name
        if hasattr(item, "dtype"):
            assert len(json.loads(item.attrs["axes"])) == item.ndim
            assert ("unit" in item.attrs) != ("values" in item.attrs), item.name


def test_names_are_those_of_the_environment(file: Any) -> None:
    values = json.loads(file["transitions/action"].attrs["values"])
    assert values == {str(int(action)): action.words for action in Action}
    ends = json.loads(file["episodes/end"].attrs["values"])
    assert [ends[str(int(end))] for end in (End.CAPACITY, End.LIMIT)] == ["capacity", "limit"]
    symbols = json.loads(file["transitions/symbol"].attrs["values"])
    assert list(symbols.values()) == ["0", "1", "2", "3", "4", "+", "-"]
    labels = json.loads(file["tables/terms"].attrs["labels"])
    assert labels["level"] == list(LEVELS)
    assert labels["term"] == list(TERMS)
    modules = json.loads(file["tables/terms"].attrs["modules"])
    assert modules["dense"] == list(MODULES)
    assert modules["answer_only"] == ["step", "submit", "wrong_submit"]


def test_licence_citation_schema_and_generator_are_those_of_the_project(file: Any) -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    citation = file.attrs["citation"].decode()
    assert f"license: {file.attrs['license'].decode()}\n" in cited
    for text in ("10.7557/18.6805", "Learning to solve arithmetic problems with a virtual abacus"):
        assert text in cited
        assert text in citation
    title = cited.partition('title: "')[2].partition('"')[0]
    assert citation.startswith(title)
    schema = file.attrs["schema"].decode()
    version = json.loads(file.attrs["format"])["version"]
    assert f"version {version}: datasets/README.md#tree" in schema
    card = (ROOT / "datasets" / "README.md").read_text()
    assert f"## Tree\n\nThis is version {version} of the format" in card
    assert json.loads(file.attrs["generator"])["package"] == "virtual-abacus"

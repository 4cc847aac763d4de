"""What a file says about itself: what was recorded, and where it comes from."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from abacus.rules import AbacusConfig
from oracle.demos.recipe import Recipe
from oracle.demos.schema import (
    ATTRIBUTES,
    FORMAT_NAME,
    FORMAT_VERSION,
    SPLIT_EVERY,
    SPLIT_FIRST,
    DemonstrationsError,
)

_PACKAGE = "virtual-abacus"
_CHECKOUT = Path(__file__).resolve().parents[2]
#: The libraries that have a part in what is recorded.
_LIBRARIES = ("numpy", "numba", "h5py", "gymnasium")
_ALGORITHM = "the paper's Algorithm 1, as mended in oracle/algorithm.py"


@dataclass(frozen=True)
class About:
    """The attributes of a file, checked and with the recipe made out of them."""

    recipe: Recipe
    counts: Mapping[str, int]
    digest: str
    attributes: Mapping[str, Any]

    @property
    def config(self) -> AbacusConfig:
        return self.recipe.config

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> About:
        """Checks what a file says about itself."""
        missing = [name for name in ATTRIBUTES if name not in attributes]
        if missing:
            raise DemonstrationsError(f"attributes are missing: {', '.join(missing)}")
        told = attributes["format"]
        if told != {"name": FORMAT_NAME, "version": FORMAT_VERSION}:
            raise DemonstrationsError(
                f"format={told!r} is not known: this program reads {FORMAT_NAME} "
                f"version {FORMAT_VERSION}"
            )
        try:
            algorithm, request = attributes["algorithm"], attributes["request"]
            recipe = Recipe.from_dict(
                {
                    "config": attributes["config"],
                    "variant": algorithm["variant"],
                    "epsilon": algorithm["epsilon"],
                    "seed": attributes["seed"],
                    "operations": request["operations"],
                    "transitions": request["transitions"],
                }
            )
            counts = {str(name): int(count) for name, count in attributes["counts"].items()}
            digest = str(attributes["digest"]["sha256"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DemonstrationsError(f"attributes make no sense: {error}") from error
        for name, fact in facts(recipe).items():
            if attributes[name] != fact:
                raise DemonstrationsError(f"attribute {name!r} is not one of this format")
        return cls(recipe, counts, digest, dict(attributes))


def facts(recipe: Recipe) -> dict[str, Any]:
    """The attributes that belong to the content, and to its digest."""
    return {
        "config": recipe.config.to_dict(),
        "algorithm": {
            "name": _ALGORITHM,
            "variant": recipe.variant,
            "epsilon": recipe.epsilon,
        },
        "seed": recipe.seed,
        "split": {"validation": f"episode % {SPLIT_EVERY} == {SPLIT_FIRST}"},
    }


def origin(recipe: Recipe, command: Sequence[str]) -> dict[str, Any]:
    """All attributes but those that are known only once everything is recorded."""
    return {
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        **facts(recipe),
        "request": {"operations": recipe.operations, "transitions": recipe.transitions},
        "command": [_without_folder(word) for word in command],
        "code": {"package": _PACKAGE, "version": _own_version(), "commit": _commit()},
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _without_folder(word: str) -> str:
    """Folders are a machine's own affair: of a path, the name alone is told."""
    flag, equals, value = word.rpartition("=")
    return flag + equals + (Path(value).name if "/" in value or "\\" in value else value)


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _own_version() -> str | None:
    """As installed, or as a checkout says of itself."""
    project = _CHECKOUT / "pyproject.toml"
    if not project.is_file():
        return _version(_PACKAGE)
    return str(tomllib.loads(project.read_text())["project"]["version"])


@cache
def _commit() -> str | None:
    """The commit of a checkout of this code; None anywhere else."""
    if not (_CHECKOUT / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None

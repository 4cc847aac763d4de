"""Policies as files that run no code: weights in safetensors, the rest in JSON.

    policy.safetensors   the weights by name
    policy.json          network, base, frames, and what the maker says about them

Stable-Baselines3's zips are written too, for those who use them. Loading one unpickles, which can
run anything: it needs `trust`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from oracle.files import atomic_write, atomic_write_text
from pipelines.learning.networks import NETWORK_NAMES
from pipelines.learning.policy import AbacusPolicy, new_policy

FORMAT = "virtual-abacus-policy"
VERSION = 1
WEIGHTS_FILE = "policy.safetensors"
DESCRIPTION_FILE = "policy.json"
#: Where a run keeps its policies, the one to use first.
RUN_POLICIES = ("best", "last", "clone")
#: The certified policy that comes with the project.
PUBLISHED_POLICY = Path(__file__).resolve().parent.parent / "policies" / "compact"


class PolicyFileError(ValueError):
    """A folder that holds no policy, or one that cannot be used."""


def save_policy(policy: AbacusPolicy, folder: Path, about: dict[str, Any] | None = None) -> Path:
    """Writes a policy into a folder; `about` is what there is to say about it."""
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()
    }
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": policy.network_name,
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "about": about or {},
    }
    atomic_write(folder / WEIGHTS_FILE, lambda file: file.write(save_tensors(weights)))
    atomic_write_text(folder / DESCRIPTION_FILE, json.dumps(description, indent=2) + "\n")
    return folder


def load_policy(folder: Path) -> AbacusPolicy:
    """The policy of a folder that `save_policy` wrote."""
    description = read_description(folder)
    policy = new_policy(description["network"], description["base"], description["frames"])
    try:
        weights = load_tensors((folder / WEIGHTS_FILE).read_bytes())
        policy.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise PolicyFileError(
            f"{folder / WEIGHTS_FILE} does not hold the weights of a {description['network']} "
            f"network: {str(error).splitlines()[0]}"
        ) from error
    if not all(torch.isfinite(tensor).all() for tensor in weights.values()):
        raise PolicyFileError(f"{folder / WEIGHTS_FILE} holds weights that are not finite")
    policy.set_training_mode(False)
    return policy


def read_description(folder: Path) -> dict[str, Any]:
    """The checked content of `policy.json`."""
    path = folder / DESCRIPTION_FILE
    if not path.is_file():
        raise PolicyFileError(f"{folder} holds no policy: {DESCRIPTION_FILE} is missing")
    try:
        description = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PolicyFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise PolicyFileError(f"{path} does not describe a policy: its format is not {FORMAT!r}")
    if description.get("version") != VERSION:
        raise PolicyFileError(
            f"{path} is of version {description.get('version')!r}: this code reads {VERSION}"
        )
    if description.get("network") not in NETWORK_NAMES or not all(
        isinstance(description.get(name), int) for name in ("base", "frames")
    ):
        raise PolicyFileError(f"{path} lacks a known network, its base or its frames")
    return description


def load_run(path: Path | None = None, *, trust: bool = False) -> AbacusPolicy:
    """A policy with `predict`: of a run (its best), of a policy's folder, or of a zip if trusted.

    Without a path, the certified policy that comes with the project.
    """
    if path is None:
        return load_policy(PUBLISHED_POLICY)
    if path.suffix == ".zip":
        return load_zip(path, trust=trust)
    for folder in (path, *(path / name for name in RUN_POLICIES)):
        if (folder / DESCRIPTION_FILE).is_file():
            return load_policy(folder)
    raise PolicyFileError(f"{path} holds no policy: give the folder of a run or of a policy")


def load_zip(path: Path, *, trust: bool = False) -> AbacusPolicy:
    """The policy of a Stable-Baselines3 zip."""
    if not trust:
        raise PolicyFileError(
            f"{path} is a zip of Stable-Baselines3: loading it runs code of its maker. Give "
            "--trust if you know where it is from, or the folder with policy.safetensors"
        )
    from pipelines.learning.ppo import AbacusPPO

    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    policy = AbacusPPO.load(path, device="cpu").policy
    assert isinstance(policy, AbacusPolicy)
    return policy

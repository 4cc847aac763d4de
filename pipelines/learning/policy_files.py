"""Policies in files: weights as safetensors, their description as JSON. Loading runs no code.

    policy.safetensors   the weights by name
    policy.json          format, version, network, base, frames, and `about`: notes on the policy

Zips of Stable-Baselines3 can be read as well. Loading one unpickles, which can run any code: it
needs `trust`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO

from oracle.files import atomic_write, atomic_write_text
from pipelines.learning.networks import NETWORK_NAMES
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.ppo import AbacusPPO

FORMAT = "virtual-abacus-policy"
VERSION = 1
WEIGHTS_FILE = "policy.safetensors"
DESCRIPTION_FILE = "policy.json"
#: Folders of a run that hold policies, the preferred one first.
RUN_POLICIES = ("best", "last", "clone")
#: The certified policy that comes with the project, written by `python -m pipelines.publish`.
PUBLISHED_POLICY = Path(__file__).resolve().parent.parent / "policies" / "compact"


class PolicyFileError(ValueError):
    """A folder or a zip without a usable policy."""


def save_policy(policy: AbacusPolicy, folder: Path, about: dict[str, Any] | None = None) -> Path:
    """Write a policy into a folder, with notes about it."""
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()
    }
    description = {
        "format": FORMAT,
        "version": VERSION,
        "network": policy.network_name,
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "about": {} if about is None else about,
    }
    atomic_write(folder / WEIGHTS_FILE, lambda file: file.write(save_tensors(weights)))
    atomic_write_text(folder / DESCRIPTION_FILE, json.dumps(description, indent=2) + "\n")
    return folder


def load_policy(folder: Path) -> AbacusPolicy:
    """Return the policy of a folder that `save_policy` wrote."""
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
    """Return the checked content of `policy.json`."""
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
    """Return the best policy of a run, or the policy of a folder or of a trusted zip.

    Without a path, return the published policy.
    """
    if path is None:
        return load_policy(PUBLISHED_POLICY)
    if path.suffix == ".zip":
        policy = load_zip(path, trust=trust)
        if not isinstance(policy, AbacusPolicy):
            raise PolicyFileError(f"{path} holds no {AbacusPolicy.__name__}: give a zip of a run")
        return policy
    for folder in (path, *(path / name for name in RUN_POLICIES)):
        if (folder / DESCRIPTION_FILE).is_file():
            return load_policy(folder)
    raise PolicyFileError(f"{path} holds no policy: give the folder of a run or of a policy")


def load_zip(path: Path, *, trust: bool) -> Any:
    """Return the policy of a zip of MaskablePPO, PPO or A2C."""
    if not trust:
        raise PolicyFileError(
            f"{path} is a zip of Stable-Baselines3: loading it can run code of its author. Give "
            "--trust if you trust its source, or the folder with policy.safetensors"
        )
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    for algorithm in (AbacusPPO, MaskablePPO, PPO, A2C):
        try:
            return algorithm.load(path, device="cpu").policy
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            problem = f"{algorithm.__name__}: {' '.join(str(error).split())[:80]}"
    raise PolicyFileError(f"{path} is no zip of MaskablePPO, PPO or A2C ({problem})")

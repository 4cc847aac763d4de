"""Policies in files: weights as safetensors, their description as JSON. Loading runs no code.

    policy.safetensors   the weights by name
    policy.json          format, version, network, base, frames, `about`: notes on the policy,
                         `digest` of the weights, and `sha256` of all of these
    certificate.json     beside some policies: what was proved of the weights with its digest

Loading compares the digests. Version 1 of the description has none.

Zips of Stable-Baselines3 can be read as well. Loading one unpickles, which can run any code: it
needs `trust`.

torch is imported by what needs it: a policy that is only asked runs in NumPy, see
`load_for_inference`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from abacus.checks import shorten
from abacus.rules import AbacusConfig
from oracle.exact.certificate import digest_of
from oracle.files import atomic_write, atomic_write_text
from pipelines.learning.inference import IN_NUMPY, NETWORK_NAMES, NumpyPolicy, RowLayout, Weights
from pipelines.learning.settings import parse_json

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy

FORMAT = "virtual-abacus-policy"
VERSION = 2
#: The version without digests, which is read as well.
VERSION_WITHOUT_DIGESTS = 1
WEIGHTS_FILE = "policy.safetensors"
DESCRIPTION_FILE = "policy.json"
CERTIFICATE_FILE = "certificate.json"
OWN_RUNS_FILE = "own_runs.json"
_DESCRIBED = {"format", "version", "network", "base", "frames", "about"}
#: Of the weights, and of the description.
_DIGESTS = {"digest", "sha256"}
#: The paper's base.
DEFAULT_BASE = AbacusConfig().base
#: Folders of a run that hold policies, the preferred one first.
RUN_POLICIES = ("best", "last", "clone")
#: All of them: also the best policy before teaching, and the policy after it.
SAVED_POLICIES = (*RUN_POLICIES, "tuned", "mended", "taught")
#: The certified policies that come with the project, written by `python -m pipelines.publish`.
PUBLISHED = Path(__file__).resolve().parent.parent / "policies"


def published_policy(base: int = DEFAULT_BASE) -> Path:
    """Return the folder of the published policy of a base; it may not exist."""
    return PUBLISHED / f"base{base}"


def policy_path(name: str) -> Path:
    """Return the path that a name stands for: itself, or a policy that comes with the project."""
    path, published = Path(name), PUBLISHED / name
    is_published = published.parent == PUBLISHED and published.is_dir()
    return published if is_published and not path.exists() else path


class PolicyFileError(ValueError):
    """A folder or a zip without a usable policy."""


def save_policy(policy: AbacusPolicy, folder: Path, about: dict[str, Any] | None = None) -> Path:
    """Write a policy into a folder, with notes about it."""
    weights = {name: tensor.numpy(force=True) for name, tensor in policy.state_dict().items()}
    description: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "network": policy.network_name,
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "about": {} if about is None else about,
        "digest": digest_of(policy),
    }
    description["sha256"] = _digest(description)
    atomic_write(folder / WEIGHTS_FILE, lambda file: file.write(save_arrays(weights)))
    atomic_write_text(folder / DESCRIPTION_FILE, json.dumps(description, indent=2) + "\n")
    return folder


def load_policy(folder: Path) -> AbacusPolicy:
    """Return the policy of a folder that `save_policy` wrote; its digests are compared."""
    import torch

    from pipelines.learning.policy import new_policy

    description = read_description(folder)
    policy = new_policy(description["network"], description["base"], description["frames"])
    weights = _read_weights(folder, description)
    try:
        policy.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    except RuntimeError as error:
        raise _other_weights(folder, description, error) from error
    _check_digest(folder, description, policy)
    policy.set_training_mode(False)
    return policy


def load_for_inference(
    path: Path | None = None, *, base: int = DEFAULT_BASE, trust: bool = False
) -> NumpyPolicy | AbacusPolicy:
    """Return the same policy as `load_run`, in NumPy if its network runs there."""
    folder = _folder_of(path, base)
    if folder is None:
        return load_run(path, trust=trust)
    description = read_description(folder)
    if description["network"] not in IN_NUMPY:
        return load_run(folder)
    layout = RowLayout(description["base"], description["frames"])
    weights = _read_weights(folder, description)
    try:
        policy = NumpyPolicy(description["network"], layout, weights)
    except ValueError as error:
        raise _other_weights(folder, description, error) from error
    _check_digest(folder, description, policy)
    _warn_of_certificate(folder, policy)
    return policy


def _read_weights(folder: Path, description: dict[str, Any]) -> Weights:
    """Return the arrays of a folder, checked to be finite numbers of 32 bits."""
    path = folder / WEIGHTS_FILE
    try:
        weights = load_arrays(path.read_bytes())
    except (SafetensorError, KeyError, ValueError) as error:
        raise _other_weights(folder, description, error) from error
    if any(array.dtype != np.float32 for array in weights.values()):
        raise PolicyFileError(f"{path} holds weights that are not of type float32")
    if not all(np.isfinite(array).all() for array in weights.values()):
        raise PolicyFileError(f"{path} holds weights that are not finite")
    return weights


def _other_weights(folder: Path, description: dict[str, Any], error: Exception) -> PolicyFileError:
    return PolicyFileError(
        f"{folder / WEIGHTS_FILE} does not hold the weights of a {description['network']} "
        f"network: {str(error).splitlines()[0]}"
    )


def _check_digest(
    folder: Path, description: dict[str, Any], policy: NumpyPolicy | AbacusPolicy
) -> None:
    if description["version"] == VERSION and description["digest"] != digest_of(policy):
        raise PolicyFileError(
            f"{folder / WEIGHTS_FILE} is damaged: its weights do not have the digest in "
            f"{DESCRIPTION_FILE}"
        )


def read_description(folder: Path) -> dict[str, Any]:
    """Return the checked content of `policy.json`."""
    path = folder / DESCRIPTION_FILE
    if not path.is_file():
        raise PolicyFileError(f"{folder} holds no policy: {DESCRIPTION_FILE} is missing")
    try:
        description = parse_json(path.read_bytes())
    except ValueError as error:
        raise PolicyFileError(f"{path} is {error}") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise PolicyFileError(f"{path} does not describe a policy: its format is not {FORMAT!r}")
    version = description.get("version")
    if version not in (VERSION_WITHOUT_DIGESTS, VERSION) or not isinstance(version, int):
        raise PolicyFileError(
            f"{path} is of version {shorten(version)}: this code reads "
            f"{VERSION_WITHOUT_DIGESTS} and {VERSION}"
        )
    if set(description) != _DESCRIBED | (_DIGESTS if version == VERSION else set()):
        raise PolicyFileError(f"{path} does not have the keys of version {version}")
    if version == VERSION and description.pop("sha256") != _digest(description):
        raise PolicyFileError(f"{path} is damaged: its content does not have its digest")
    if description["network"] not in NETWORK_NAMES or not isinstance(description["about"], dict):
        raise PolicyFileError(f"{path} lacks a known network or its notes")
    try:
        AbacusConfig(base=description["base"], frames=description["frames"])
    except ValueError as error:
        raise PolicyFileError(f"{path}: {error}") from error
    return description


def _digest(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def certificates_of(folder: Path) -> list[Path]:
    """Return the certificates beside a policy: in its folder, or for the best one in its run's.

    The one that compares it with the teacher comes first, that of its own runs last.
    """
    for place in (folder, *([folder.parent] if folder.name == RUN_POLICIES[0] else [])):
        found = [place / name for name in (CERTIFICATE_FILE, OWN_RUNS_FILE)]
        if any(path.is_file() for path in found):
            return [path for path in found if path.is_file()]
    return []


def check_certificate(folder: Path, policy: NumpyPolicy | AbacusPolicy) -> str | None:
    """Return what is wrong with the certificates beside a policy; None if nothing is."""
    for path in certificates_of(folder):
        try:
            certificate = parse_json(path.read_bytes())
            if certificate["policy_digest"] != digest_of(policy):
                return f"{path} is the certificate of other weights: do not rely on it"
        except (ValueError, TypeError, KeyError):
            return f"{path} is damaged: do not rely on it"
    return None


def _warn_of_certificate(folder: Path, policy: NumpyPolicy | AbacusPolicy) -> None:
    problem = check_certificate(folder, policy)
    if problem is not None:
        print(f"warning: {problem}", file=sys.stderr)


def load_run(
    path: Path | None = None, *, base: int = DEFAULT_BASE, trust: bool = False
) -> AbacusPolicy:
    """Return the best policy of a run, or the policy of a folder or of a trusted zip.

    Without a path, return the published policy of a base. A certificate of other weights beside the
    policy is reported on standard error.
    """
    folder = _folder_of(path, base)
    if folder is not None:
        policy = load_policy(folder)
        _warn_of_certificate(folder, policy)
        return policy
    from pipelines.learning.policy import AbacusPolicy

    assert path is not None
    policy = load_zip(path, trust=trust)
    if not isinstance(policy, AbacusPolicy):
        raise PolicyFileError(f"{path} holds no {AbacusPolicy.__name__}: give a zip of a run")
    return policy


def _folder_of(path: Path | None, base: int) -> Path | None:
    """Return the folder of the policy that a path names, None for a zip."""
    if path is None:
        path = published_policy(base)
        if not path.is_dir():
            known = ", ".join(
                sorted(each.name.removeprefix("base") for each in PUBLISHED.glob("base*"))
            )
            raise PolicyFileError(
                f"no policy for base {base} comes with the project: give one of {known}, or a "
                f"policy, such as one made by: python -m pipelines.teach --base {base}"
            )
    if path.suffix == ".zip":
        return None
    for folder in (path, *(path / name for name in RUN_POLICIES)):
        if (folder / DESCRIPTION_FILE).is_file():
            return folder
    raise PolicyFileError(f"{path} holds no policy: give the folder of a run or of a policy")


def policy_folder(path: Path) -> Path:
    """Return the folder of the policy of a run or of a policy; raise ValueError for a zip."""
    folder = _folder_of(path, DEFAULT_BASE)
    if folder is None:
        raise PolicyFileError(f"{path} is a zip: give the folder of a run or of a policy")
    return folder


def load_zip(path: Path, *, trust: bool) -> Any:
    """Return the policy of a zip of MaskablePPO, PPO or A2C."""
    if not trust:
        raise PolicyFileError(
            f"{path} is a zip of Stable-Baselines3: loading it can run code of its author. Give "
            "--trust if you trust its source, or the folder with policy.safetensors"
        )
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    if not zipfile.is_zipfile(path):
        raise PolicyFileError(f"{path} is no zip of Stable-Baselines3")
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import A2C, PPO

    from pipelines.learning.ppo import AbacusPPO

    for algorithm in (AbacusPPO, MaskablePPO, PPO, A2C):
        try:
            return algorithm.load(path, device="cpu").policy
        except Exception as error:  # noqa: BLE001 - a damaged pickle can raise anything
            problem = f"{algorithm.__name__}: {' '.join(str(error).split())[:80]}"
    raise PolicyFileError(f"{path} is no zip of MaskablePPO, PPO or A2C ({problem})")

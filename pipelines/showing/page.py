"""The web page in which visitors watch networks: one file, weights included, for offline use."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abacus.tasks import EXAMPLE
from oracle.exact.certificate import Certificate, certify
from oracle.exact.own_runs import OwnRunsCertificate
from pipelines.job.pages import render_page
from pipelines.showing.explanation import BASE_WORDS, SENTENCES
from pipelines.showing.game import ILLEGAL_REASONS, USUAL_COLUMNS, config_for

if TYPE_CHECKING:
    from pipelines.learning.inference import NumpyPolicy
    from pipelines.learning.policy import AbacusPolicy

MAX_DIGITS, MAX_CHARACTERS = 1000, 4000
#: Larger complete sets take minutes to enumerate: a certificate comes from a file, or not at all.
_MAX_CERTIFIED_BASE, _MAX_CERTIFIED_FRAMES = 5, 3
_UNSUITABLE = "--html needs an onehot or a compact network: paper is too large"
#: What a policy learned from, as visitors read it.
CLONED, FROM_REWARD, OTHER = "cloned policy", "policy from reward alone", "policy"
_LEARNED = {
    CLONED: "It learned from demonstrations of the teacher.",
    FROM_REWARD: "It learned from reward alone and never saw the teacher.",
    OTHER: "",
}


def play_page(networks: Sequence[dict[str, Any]], expression: str = "") -> str:
    """Return the page as HTML; it starts with the expression, or with an example.

    Args:
        networks: results of `network_data`; the first one plays first.
    """
    return render_page(
        "play.html",
        constants={
            "EXAMPLE": EXAMPLE.strip("'"),
            "MAX_DIGITS": MAX_DIGITS,
            "MAX_CHARACTERS": MAX_CHARACTERS,
            "USUAL_COLUMNS": USUAL_COLUMNS,
            "ILLEGAL_REASONS": list(ILLEGAL_REASONS.values()),
            "BASE_WORDS": BASE_WORDS,
            "SENTENCES": SENTENCES,
        },
        expression=check_expression(expression),
        networks=networks,
    )


def check_expression(expression: str) -> str:
    """Return the expression without spaces; raise ValueError if the page cannot compute it."""
    text = "".join((expression or EXAMPLE.strip("'")).split())
    config_for(text)
    longest = max(map(len, re.split(r"[+-]", text)))
    if longest > MAX_DIGITS or len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"the expression is too long for the page: give at most {MAX_DIGITS} digits per number "
            f"and {MAX_CHARACTERS} characters in all, such as {EXAMPLE}"
        )
    return text


def published_networks(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the networks of all policies that come with the project, the default one first.

    A policy whose network the page cannot run is left out with a note on standard error.
    """
    from pipelines.learning.policy_files import DESCRIPTION_FILE, PUBLISHED, published_policy

    found = sorted(path.parent for path in (folder or PUBLISHED).glob(f"*/{DESCRIPTION_FILE}"))
    found.sort(key=lambda path: path.name != published_policy().name)
    networks = []
    for path in found:
        try:
            networks.append(folder_network(path))
        except UnsuitableNetworkError as error:
            print(f"left out {path.name}: {error}", file=sys.stderr)
    return networks


def networks_of(names: Sequence[str], trust: bool = False) -> list[dict[str, Any]]:
    """Return the networks of policies named on the command line."""
    from pipelines.learning.named_policies import EXPERT, RANDOM, is_function
    from pipelines.learning.policy_files import policy_path

    for name in names:
        if name in (EXPERT, RANDOM) or is_function(name):
            raise ValueError(
                f"--html shows networks, and the teacher beside them: leave {name} out"
            )
    return [folder_network(policy_path(name), trust) for name in names]


def folder_network(path: Path, trust: bool = False) -> dict[str, Any]:
    """Return the network of the folder of a policy or of a run, with what is known about it."""
    from pipelines.learning.policy_files import (
        DESCRIPTION_FILE,
        RUN_POLICIES,
        certificates_of,
        load_for_inference,
        read_description,
    )

    folders = (path, *(path / name for name in RUN_POLICIES))
    folder = next((each for each in folders if (each / DESCRIPTION_FILE).is_file()), None)
    description = {} if folder is None else read_description(folder)
    if description.get("network") == "paper":  # gigabytes, which need not be read
        raise UnsuitableNetworkError(_UNSUITABLE)
    policy = load_for_inference(path, trust=trust)
    kind = learned_from(description.get("about", {}))
    data = network_data(policy, path.name, kind)
    certificates = [] if folder is None else certificates_of(folder)
    proof = proof_text(policy, certificates[-1] if certificates else None, kind)
    return data | {"about": " ".join(filter(None, (_LEARNED[kind], proof)))}


def learned_from(notes: dict[str, Any]) -> str:
    """Return what a policy learned from, by the notes that its training left in its file."""
    settings = notes.get("settings")
    if not isinstance(settings, dict) or settings.get("start_from"):
        return OTHER
    taught = settings.get("teaching")
    if settings.get("demo_operations") or (isinstance(taught, dict) and taught.get("rounds")):
        return CLONED
    from_reward = settings.get("n_timesteps") or settings.get("planning", {}).get("exercises")
    return FROM_REWARD if from_reward else OTHER


def proof_text(policy: NumpyPolicy | AbacusPolicy, path: Path | None, kind: str = OTHER) -> str:
    """Return what is proven about a policy in a sentence for visitors, empty if nothing is.

    Args:
        path: the certificate beside the policy, of the teacher's observations or of its own runs.
    """
    layout = policy.layout
    certificate = _read_certificate(path, policy)
    if isinstance(certificate, OwnRunsCertificate):
        verdicts = {
            "exact": "All its own runs were explored, and none goes wrong: it is exact at any "
            "length.",
            "not exact": "Some of its own runs go wrong: expect mistakes.",
        }
        return verdicts.get(certificate.verdict, "")
    if certificate is None:
        if layout.base > _MAX_CERTIFIED_BASE or layout.frames > _MAX_CERTIFIED_FRAMES:
            return ""
        certificate = certify(policy, base=layout.base, frames=layout.frames, counterexamples=0)
    observations = f"{certificate.observations:,} observations that the teacher can meet"
    if certificate.exact:
        return f"It agrees with the teacher on all {observations}, so it is exact at any length."
    differs = f"the teacher on {certificate.disagreements:,} of the {observations}"
    if kind == FROM_REWARD:
        return f"It has ways of its own: it differs from {differs}."
    return f"It disagrees with {differs}: expect mistakes."


def _read_certificate(
    path: Path | None, policy: NumpyPolicy | AbacusPolicy
) -> Certificate | OwnRunsCertificate | None:
    """Return a certificate of these weights, or None."""
    from oracle.exact.certificate import digest_of

    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    for kind in (Certificate, OwnRunsCertificate):
        try:
            certificate = kind.from_json(text)
        except (ValueError, json.JSONDecodeError):
            continue
        return certificate if certificate.policy_digest == digest_of(policy) else None
    return None


class UnsuitableNetworkError(ValueError):
    """A network that the page cannot run."""


def network_data(
    policy: NumpyPolicy | AbacusPolicy, name: str = "", kind: str = OTHER
) -> dict[str, Any]:
    """Return the network for the page: layers from first to last, weights row by row."""
    from pipelines.learning.inference import IN_NUMPY, LOGIT_BOUND, NumpyPolicy

    if policy.network_name not in IN_NUMPY:
        raise UnsuitableNetworkError(_UNSUITABLE)
    if not isinstance(policy, NumpyPolicy):
        policy = NumpyPolicy.of(policy)
    numbers = [array.astype("<f4").ravel() for layer in policy.layers for array in layer]
    return {
        "name": name,
        "kind": kind,
        "network": policy.network_name,
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "logit_bound": LOGIT_BOUND,
        "layers": [list(weight.shape[::-1]) for weight, _ in policy.layers],
        "weights": base64.b64encode(np.concatenate(numbers).tobytes()).decode(),
        "about": "",
    }

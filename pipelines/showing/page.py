"""The web page in which visitors watch a network: one file, weights included, for offline use."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from abacus.tasks import EXAMPLE
from oracle.exact.certificate import certify
from pipelines.job.pages import render_page
from pipelines.showing.game import ILLEGAL_REASONS, USUAL_COLUMNS, config_for

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy

MAX_DIGITS, MAX_CHARACTERS = 1000, 4000
#: Above these, computing a certificate takes minutes.
_MAX_CERTIFIED_BASE, _MAX_CERTIFIED_FRAMES = 10, 3


def play_page(policy: AbacusPolicy, expression: str = "", about: str = "") -> str:
    """Return the page as HTML; it starts with the expression, or with an example."""
    return render_page(
        "play.html",
        constants={
            "EXAMPLE": EXAMPLE.strip("'"),
            "MAX_DIGITS": MAX_DIGITS,
            "MAX_CHARACTERS": MAX_CHARACTERS,
            "USUAL_COLUMNS": USUAL_COLUMNS,
            "ILLEGAL_REASONS": list(ILLEGAL_REASONS.values()),
        },
        expression=check_expression(expression),
        policy=network_data(policy, about),
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


def certificate_text(policy: AbacusPolicy) -> str:
    """Return the result of the policy's certificate in a sentence for visitors."""
    layout = policy.layout
    if layout.base > _MAX_CERTIFIED_BASE or layout.frames > _MAX_CERTIFIED_FRAMES:
        return ""
    certificate = certify(policy, base=layout.base, frames=layout.frames, counterexamples=0)
    observations = f"{certificate.observations:,} observations that the teacher can meet"
    if certificate.exact:
        return f"It agrees with the teacher on all {observations}, so it is exact at any length."
    return (
        f"It disagrees with the teacher on {certificate.disagreements:,} of the {observations}: "
        "expect mistakes."
    )


def network_data(policy: AbacusPolicy, about: str = "") -> dict[str, Any]:
    """Return the network for the page: layers from first to last, weights row by row."""
    from torch import nn

    from pipelines.learning.networks import LOGIT_BOUND, CompactNetwork

    if not isinstance(policy.network, CompactNetwork):
        raise ValueError("--html needs an onehot or a compact network: paper is too large")
    layers = [layer for layer in policy.network.actor if isinstance(layer, nn.Linear)]
    numbers = [
        tensor.detach().cpu().numpy().astype("<f4").ravel()
        for layer in layers
        for tensor in (layer.weight, layer.bias)
    ]
    return {
        "network": policy.network_name,
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "logit_bound": LOGIT_BOUND,
        "layers": [[layer.in_features, layer.out_features] for layer in layers],
        "weights": base64.b64encode(np.concatenate(numbers).tobytes()).decode(),
        "about": about,
    }

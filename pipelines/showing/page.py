"""The page: one file with the network's weights and the rules in it, that needs nothing else."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from abacus.tasks import EXAMPLE
from oracle.exact.certificate import certify
from pipelines.job.pages import render_page
from pipelines.showing.game import USUAL_COLUMNS, config_for

if TYPE_CHECKING:
    from pipelines.learning.policy import AbacusPolicy

FIRST_EXPRESSION = "1234+567-89"
MOST_DIGITS, MOST_CHARACTERS = 1000, 4000
#: Beyond these the set of all situations takes minutes to find.
_LARGEST_CERTIFIED_BASE, _MOST_CERTIFIED_FRAMES = 5, 3


def page(policy: AbacusPolicy, expression: str = "", about: str = "") -> str:
    """The page as HTML; it starts with the expression."""
    return render_page(
        "play.html",
        constants={
            "EXAMPLE": FIRST_EXPRESSION,
            "MOST_DIGITS": MOST_DIGITS,
            "MOST_CHARACTERS": MOST_CHARACTERS,
            "USUAL_COLUMNS": USUAL_COLUMNS,
        },
        expression=checked_expression(expression),
        policy=page_policy(policy, about),
    )


def checked_expression(expression: str) -> str:
    """The expression, if the page can compute it; raises ValueError otherwise."""
    text = "".join((expression or FIRST_EXPRESSION).split())
    config_for(text)
    longest = max(map(len, re.split(r"[+-]", text)))
    if longest > MOST_DIGITS or len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"the expression is too long for the page: give at most {MOST_DIGITS} digits a number "
            f"and {MOST_CHARACTERS} characters in all, such as {EXAMPLE}"
        )
    return text


def exactness(policy: AbacusPolicy) -> str:
    """What the certificate says of a policy, in a sentence for visitors."""
    layout = policy.layout
    if layout.base > _LARGEST_CERTIFIED_BASE or layout.frames > _MOST_CERTIFIED_FRAMES:
        return ""
    certificate = certify(policy, base=layout.base, frames=layout.frames, counterexamples=0)
    if certificate.exact:
        return (
            f"It was asked about all {certificate.observations:,} situations that the teacher can "
            "ever meet, and gives the teacher's answer in every one: it is right at any length."
        )
    return (
        f"In {certificate.disagreements:,} of the {certificate.observations:,} situations that the "
        "teacher can meet it does something else than the teacher: expect mistakes."
    )


def page_policy(policy: AbacusPolicy, about: str = "") -> dict[str, Any]:
    """The network as the page reads it: layers from first to last, weights row by row."""
    from torch import nn

    from pipelines.learning.networks import LOGIT_BOUND, CompactNetwork

    if not isinstance(policy.network, CompactNetwork):
        raise ValueError(
            "--html takes a compact network: the paper's is a thousand times too large"
        )
    layers = [layer for layer in policy.network.actor if isinstance(layer, nn.Linear)]
    numbers = [
        tensor.detach().cpu().numpy().astype("<f4").ravel()
        for layer in layers
        for tensor in (layer.weight, layer.bias)
    ]
    return {
        "base": policy.layout.base,
        "frames": policy.layout.frames,
        "logit_bound": LOGIT_BOUND,
        "layers": [[layer.in_features, layer.out_features] for layer in layers],
        "weights": base64.b64encode(np.concatenate(numbers).tobytes()).decode(),
        "about": about,
    }

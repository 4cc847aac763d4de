"""Certificates: a policy that agrees with the expert on the complete set is exact at any length.

`docs/exactness.md` says what a certificate covers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abacus.rules import Action
from oracle.algorithm import Variant
from oracle.exact.complete_set import ObservationSet, complete_set
from oracle.exact.witness import WitnessFinder

FORMAT = "virtual-abacus-certificate"
VERSION = 1
#: Observations in one call of the policy.
CHUNK = 8192

Observations = dict[str, npt.NDArray[np.float32]]
#: A policy as a function: from N observations to N actions, or to (N, 8) scores.
Answers = Callable[[Observations], npt.NDArray[Any]]


@dataclass(frozen=True)
class Counterexample:
    """A wrong action: calculating `expression` from `start`, after `step` right steps."""

    columns: int
    start: int
    expression: str
    in_base: str
    step: int
    frames: tuple[int, ...]
    symbol: str
    operation: str
    policy_action: str
    teacher_action: str

    @property
    def calculation(self) -> str:
        """The whole calculation in decimal, with its starting value: `1 + 1`."""
        sign = "" if self.expression.startswith(("+", "-")) else "+"
        return str(self.start) + re.sub("([+-])", r" \1 ", sign + self.expression)


@dataclass(frozen=True)
class Certificate:
    """How a policy compares with the expert on the complete set of observations."""

    base: int
    frames: int
    variant: str
    observations: int
    disagreements: int
    ambiguous: int
    smallest_margin: float | None
    set_digest: str
    policy_digest: str | None
    counterexamples: tuple[Counterexample, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.disagreements <= self.observations:
            raise ValueError(
                f"disagreements={self.disagreements} is not allowed: give at most the number of "
                f"observations, {self.observations}"
            )
        if len(self.counterexamples) > self.disagreements:
            raise ValueError(
                f"{len(self.counterexamples)} counterexamples for {self.disagreements} "
                "disagreements: give at most one each"
            )

    @property
    def exact(self) -> bool:
        """Whether the policy is exact, at any width and operand length."""
        return self.disagreements == 0 and self.ambiguous == 0

    def to_json(self) -> str:
        """Return the certificate as JSON text."""
        content = {"format": FORMAT, "version": VERSION, "exact": self.exact, **asdict(self)}
        return json.dumps(content, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate from JSON text; raise ValueError if it is not a valid one."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"not a certificate: its format is not {FORMAT!r}")
        if content.pop("version", None) != VERSION:
            raise ValueError(f"the certificate is of another version: give version {VERSION}")
        exact = content.pop("exact", None)
        examples = content.pop("counterexamples", [])
        try:
            certificate = cls(
                counterexamples=tuple(
                    Counterexample(**{**example, "frames": tuple(example["frames"])})
                    for example in examples
                ),
                **content,
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"the certificate is damaged: {error}") from error
        if certificate.exact != exact:
            raise ValueError("the certificate is damaged: `exact` contradicts its figures")
        return certificate


def certify(
    policy: Any,
    observations: ObservationSet | None = None,
    *,
    base: int = 5,
    frames: int = 3,
    variant: Variant = "before",
    counterexamples: int = 10,
    policy_digest: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Certificate:
    """Return the certificate of a policy: an SB3 policy or algorithm, or a callable (`Answers`).

    Actions that the newest frame shows to be illegal are masked, no others. The margin is the
    smallest difference between the best and the second-best score (the logits of an SB3 policy);
    None for a callable that returns actions. Raise ValueError if the policy does not fit the set.
    """
    chosen = complete_set(base, frames, variant) if observations is None else observations
    actions, margins = greedy_actions(policy, chosen, progress)
    wrong = np.flatnonzero((actions != chosen.actions) | chosen.ambiguous)
    examples: tuple[Counterexample, ...] = ()
    if counterexamples and len(wrong):
        finder = WitnessFinder(chosen)
        nearest = finder.nearest_first(wrong)[:counterexamples]
        examples = tuple(_example(finder, int(row), int(actions[row])) for row in nearest)
    return Certificate(
        base=chosen.base,
        frames=chosen.frames,
        variant=chosen.variant,
        observations=len(chosen),
        disagreements=len(wrong),
        ambiguous=int(chosen.ambiguous.sum()),
        smallest_margin=None if margins is None else float(margins.min()),
        set_digest=chosen.digest,
        policy_digest=policy_digest or digest_of(policy),
        counterexamples=examples,
    )


def answers_of(policy: Any) -> Answers:
    """Return any policy as a function from observations to actions or scores."""
    policy = getattr(policy, "policy", policy)
    if hasattr(policy, "get_distribution"):
        return _sb3_answers(policy)
    if callable(policy):
        return policy  # type: ignore[no-any-return]
    raise ValueError(
        f"policy={type(policy).__name__} is not allowed: give an SB3 policy, an SB3 algorithm or a "
        "callable from observations to actions"
    )


def _sb3_answers(policy: Any) -> Answers:
    import torch

    policy.set_training_mode(False)

    def answers(observations: Observations) -> npt.NDArray[np.float32]:
        expected = {key: space.shape for key, space in policy.observation_space.spaces.items()}
        given = {key: rows.shape[1:] for key, rows in observations.items()}
        if expected != given:
            raise ValueError(
                f"the policy takes {expected}, the set holds {given}: give a set for the policy's "
                "base and frames"
            )
        tensors, _ = policy.obs_to_tensor(observations)
        with torch.no_grad():
            distribution = policy.get_distribution(tensors).distribution
        logits: npt.NDArray[np.float32] = distribution.logits.cpu().numpy()
        return logits

    return answers


def greedy_actions(
    policy: Any,
    observations: ObservationSet,
    progress: Callable[[int], object] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64] | None]:
    """Return the policy's legal actions on a whole set, and their margins if it gives scores."""
    answers = answers_of(policy)
    actions = np.empty(len(observations), np.int64)
    margins: list[npt.NDArray[np.float64]] = []
    for start in range(0, len(observations), CHUNK):
        rows = slice(start, start + CHUNK)
        given = np.asarray(answers(observations.observations(rows)))
        illegal = observations.visibly_illegal[rows]
        actions[rows], margin = decide(given, illegal)
        if margin is not None:
            margins.append(margin)
        if progress:
            progress(len(illegal))
    return actions, np.concatenate(margins) if margins else None


def decide(
    given: npt.NDArray[Any], illegal: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64] | None]:
    """Return the legal actions of a chunk, and the margins of their scores, if any."""
    count = len(illegal)
    if given.shape == (count,) and np.issubdtype(given.dtype, np.integer):
        if given.min() < 0 or given.max() >= len(Action):
            raise ValueError(f"the policy returns actions outside 0 to {len(Action) - 1}")
        return given.astype(np.int64), None
    if given.shape != (count, len(Action)):
        raise ValueError(
            f"the policy returns shape {given.shape} for {count} observations: return ({count},) "
            f"actions or ({count}, {len(Action)}) scores"
        )
    if not np.isfinite(given[~illegal]).all():
        raise ValueError("the policy returns scores that are not finite")
    scores = np.where(illegal, -np.inf, given.astype(np.float64))
    best_two = np.partition(scores, -2, axis=1)[:, -2:]
    return np.argmax(scores, axis=1), best_two[:, 1] - best_two[:, 0]


def _example(finder: WitnessFinder, row: int, policy_action: int) -> Counterexample:
    chosen = finder.observations
    witness = finder.find(row)
    return Counterexample(
        columns=witness.columns,
        start=witness.start,
        expression=witness.expression,
        in_base=witness.in_base,
        step=witness.step,
        frames=tuple(int(code) for code in chosen.histories[row]),
        symbol=chosen.symbol_text(row),
        operation="-" if chosen.operations[row] else "+",
        policy_action=Action(policy_action).name,
        teacher_action=Action(int(chosen.actions[row])).name,
    )


def digest_of(policy: Any) -> str | None:
    """Return the SHA-256 of a policy's named weights, or None for a policy without weights."""
    policy = getattr(policy, "policy", policy)
    if not hasattr(policy, "state_dict"):
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.state_dict().items()):
        array = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy()
        digest.update(f"{name},{array.dtype},{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

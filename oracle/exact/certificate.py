"""Certificates: a policy that answers as the teacher everywhere is exact at any length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
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
#: Observations answered at once.
CHUNK = 8192

Observations = dict[str, npt.NDArray[np.float32]]
#: From N observations to N actions, or to (N, 8) scores of which the greatest is chosen.
Answers = Callable[[Observations], npt.NDArray[Any]]


@dataclass(frozen=True)
class Counterexample:
    """Where a policy goes wrong: from `start`, in `expression`, after `step` right steps."""

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


@dataclass(frozen=True)
class Certificate:
    """What a policy answers on the complete set of observations."""

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
                f"disagreements={self.disagreements} is not allowed: give 0 to the number of "
                f"observations, {self.observations}"
            )
        if len(self.counterexamples) > self.disagreements:
            raise ValueError(
                f"{len(self.counterexamples)} counterexamples for {self.disagreements} "
                "disagreements: give at most one each"
            )

    @property
    def exact(self) -> bool:
        """Whether the policy is exact, at every width and every operand length."""
        return self.disagreements == 0 and self.ambiguous == 0

    def to_json(self) -> str:
        """The certificate as JSON text."""
        content = {"format": FORMAT, "version": VERSION, "exact": self.exact, **asdict(self)}
        return json.dumps(content, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """A certificate from JSON text; refuses what is not one, or is of another version."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"this is no certificate: its format is not {FORMAT!r}")
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
    """The certificate of a policy: any SB3 policy or algorithm, or a callable (see Answers).

    What an observation shows to be illegal is masked; everything else the policy has to leave
    alone by itself. The margin is that of its scores (the logits of an SB3 policy), None where a
    callable gives actions only. Raises ValueError where the policy does not fit the set.
    """
    chosen = observations or complete_set(base, frames, variant)
    answers = answers_of(policy)
    actions, margin = _answer_all(answers, chosen, progress)
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
        smallest_margin=margin,
        set_digest=chosen.digest,
        policy_digest=policy_digest or digest_of(policy),
        counterexamples=examples,
    )


def disagreeing_rows(policy: Any, observations: ObservationSet) -> npt.NDArray[np.int64]:
    """The rows of a set on which the policy does not answer as the teacher."""
    actions, _ = _answer_all(answers_of(policy), observations, None)
    return np.flatnonzero(actions != observations.actions)


def answers_of(policy: Any) -> Answers:
    """How to ask a policy, whatever it is."""
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

    def logits(observations: Observations) -> npt.NDArray[np.float32]:
        tensors, _ = policy.obs_to_tensor(observations)
        with torch.no_grad():
            distribution = policy.get_distribution(tensors).distribution
        scores: npt.NDArray[np.float32] = distribution.logits.cpu().numpy()
        return scores

    def answers(observations: Observations) -> npt.NDArray[np.float32]:
        expected = {key: space.shape for key, space in policy.observation_space.spaces.items()}
        given = {key: rows.shape[1:] for key, rows in observations.items()}
        if expected != given:
            raise ValueError(
                f"the policy sees {expected}, the set holds {given}: give a set for the policy's "
                "base and frames"
            )
        return logits(observations)

    return answers


def _chunks(observations: ObservationSet) -> Iterator[slice]:
    for start in range(0, len(observations), CHUNK):
        yield slice(start, min(start + CHUNK, len(observations)))


def _answer_all(
    answers: Answers, observations: ObservationSet, progress: Callable[[int], object] | None
) -> tuple[npt.NDArray[np.int64], float | None]:
    """(the policy's actions, the smallest margin) over the whole set."""
    actions = np.empty(len(observations), np.int64)
    margin: float | None = None
    for rows in _chunks(observations):
        given = np.asarray(answers(observations.observations(rows)))
        illegal = observations.visibly_illegal[rows]
        actions[rows], chunk_margin = _decide(given, illegal)
        if chunk_margin is not None:
            margin = chunk_margin if margin is None else min(margin, chunk_margin)
        if progress:
            progress(rows.stop - rows.start)
    return actions, margin


def _decide(
    given: npt.NDArray[Any], illegal: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], float | None]:
    count = len(illegal)
    if given.shape == (count,) and np.issubdtype(given.dtype, np.integer):
        if given.min() < 0 or given.max() >= len(Action):
            raise ValueError(f"the policy answers outside 0 to {len(Action) - 1}")
        return given.astype(np.int64), None
    if given.shape != (count, len(Action)):
        raise ValueError(
            f"the policy answers {count} observations with shape {given.shape}: give ({count},) "
            f"actions or ({count}, {len(Action)}) scores"
        )
    if not np.isfinite(given[~illegal]).all():
        raise ValueError("the policy gives scores that are not finite")
    scores = np.where(illegal, -np.inf, given.astype(np.float64))
    best_two = np.partition(scores, -2, axis=1)[:, -2:]
    return np.argmax(scores, axis=1), float((best_two[:, 1] - best_two[:, 0]).min())


def _example(finder: WitnessFinder, row: int, policy_action: int) -> Counterexample:
    chosen = finder.observations
    witness = finder.find(row)
    symbol = int(chosen.symbols[row])
    return Counterexample(
        columns=witness.columns,
        start=witness.start,
        expression=witness.expression,
        in_base=witness.in_base,
        step=witness.step,
        frames=tuple(int(code) for code in chosen.histories[row]),
        symbol=str(symbol) if symbol < chosen.base else "+-"[symbol - chosen.base],
        operation="-" if chosen.operations[row] else "+",
        policy_action=Action(policy_action).name,
        teacher_action=Action(int(chosen.actions[row])).name,
    )


def digest_of(policy: Any) -> str | None:
    """SHA-256 of a policy's weights by name; None for what has none."""
    policy = getattr(policy, "policy", policy)
    if not hasattr(policy, "state_dict"):
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.state_dict().items()):
        array = tensor.detach().cpu().numpy()
        digest.update(f"{name},{array.dtype},{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

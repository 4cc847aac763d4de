"""Certifies a policy: asks it about every observation that the algorithm can ever meet.

A policy that answers all of them as the teacher does is exact on an abacus of any width, with
operands of any length. Where it is not, the smallest operations that go wrong are named. The exit
status is 0 for an exact policy, 1 for another, 2 for a mistake in the command.

The policy is the folder of a run or of a policy, a zip of Stable-Baselines3 (with --trust), a
Python function as module:function, teacher or random; without one, the policy that comes with the
project.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from oracle.algorithm import Variant
from oracle.exact.certificate import Certificate, Counterexample, certify
from oracle.exact.complete_set import complete_set
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, run, shown_path
from pipelines.learning.named_policies import NamedPolicy, find_policy

EXAMPLE = "python -m pipelines.certify runs/first --json certificate.json"
EXACT, NOT_EXACT = 0, 1
_ACTIONS = {
    "LEFT": "moves the finger left",
    "RIGHT": "moves the finger right",
    "UP": "moves the finger up",
    "DOWN": "moves the finger down",
    "SIGNPOST_LEFT": "moves the signpost left",
    "SIGNPOST_RIGHT": "moves the signpost right",
    "SLIDE": "slides the beads",
    "SUBMIT": "submits",
}


@dataclass(frozen=True)
class Options:
    """The command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    trust: bool = option(False, "load a zip, which runs code of its maker")
    counterexamples: int = option(10, "operations to name, the smallest first")
    variant: Variant = option("before", "when the algorithm moves the signpost: before the write")
    base: int | None = option(None, "base, for what does not know its own (default: 5)")
    frames: int | None = option(None, "frames, for what does not know its own (default: 3)")
    seed: int = option(0, "seed of the random policy")
    json: Path | None = option(None, "file to write the certificate into")


def main(options: Options) -> int:
    """Certifies, and says what was found."""
    if options.counterexamples < 0:
        raise ValueError(
            f"counterexamples={options.counterexamples} is not allowed: give 0 or more"
        )
    policy = find_policy(
        options.policy,
        trust=options.trust,
        base=options.base,
        frames=options.frames,
        seed=options.seed,
        variant=options.variant,
    )
    certificate = certified(policy, options.variant, options.counterexamples)
    print("\n".join(lines(policy.name, certificate)))
    if options.json:
        atomic_write_text(options.json, certificate.to_json() + "\n")
        print(f"written       {shown_path(options.json)}")
    return EXACT if certificate.exact else NOT_EXACT


def certified(policy: NamedPolicy, variant: Variant, counterexamples: int) -> Certificate:
    """The certificate, with a bar while the policy is asked."""
    known = complete_set(policy.base, policy.frames, variant)
    with tqdm(total=len(known), desc="asking", unit=" obs", disable=None, leave=False) as bar:
        return certify(policy.answers, known, counterexamples=counterexamples, progress=bar.update)


def lines(name: str, certificate: Certificate) -> Iterator[str]:
    """The certificate for people."""
    yield f"policy        {name}"
    if certificate.policy_digest:
        yield f"weights       sha256 {certificate.policy_digest}"
    yield (
        f"asked         {certificate.observations:,} observations: all that the algorithm meets in "
        f"base {certificate.base} with {certificate.frames} frames, at any width and length"
    )
    if certificate.variant != "before":
        yield f"variant       {certificate.variant}"
    if certificate.ambiguous:
        yield f"ambiguous     {certificate.ambiguous:,}: no policy can be right on all of these"
    yield f"wrong         {certificate.disagreements:,}"
    if certificate.smallest_margin is not None:
        yield f"margin        {certificate.smallest_margin:.4g} at the closest decision"
    if certificate.exact:
        yield "result        EXACT: right on operands of every length"
        return
    yield "result        NOT EXACT"
    if certificate.counterexamples:
        yield ""
        yield f"the smallest operations that go wrong (decimal; base {certificate.base} behind):"
    for example in certificate.counterexamples:
        yield f"  {_told(example)}"


def _told(example: Counterexample) -> str:
    start = f"from {example.start}: " if example.start else ""
    return (
        f"{start}{example.expression} ({example.in_base}) on {example.columns} columns, step "
        f"{example.step + 1}, symbol {example.symbol}: {_difference(example)}"
    )


def _difference(example: Counterexample) -> str:
    if example.policy_action == example.teacher_action:
        return f"it {_ACTIONS[example.policy_action]}, as the teacher does only sometimes here"
    return (
        f"it {_ACTIONS[example.policy_action]} where the teacher {_ACTIONS[example.teacher_action]}"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))

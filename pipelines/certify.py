"""Certify a policy: compare it with the teacher on every observation that the algorithm can meet.

A policy that takes the teacher's action on all of them is exact on an abacus of any width, with
operands of any length. For any other policy, the smallest calculations with a wrong action are
printed.

With --own-runs, the policy is not compared with the teacher: every situation that it can reach by
its own actions is explored, at any width. It is exact if none of them leads to a mistake or to a
run without an end, whatever algorithm it has found. A mistake is run in the environment before it
is called one; where neither is shown, the result is NOT PROVEN.

The exit status is 0 for an exact policy, 1 for one that is not, 3 if neither is proven, and 2 for
an error in the command.

The policy is the folder of a run or of a policy, a zip file of Stable-Baselines3 (with --trust), a
Python function as module:function, `teacher` or `random`. The default is the policy that comes with
the project.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tqdm import tqdm

from abacus.checks import check_integer
from oracle.algorithm import Variant
from oracle.exact import SITUATIONS_LIMIT
from oracle.files import atomic_write_text
from pipelines.job.command_line import argument, option, relative_path, run, stdout_for

if TYPE_CHECKING:
    from oracle.exact.certificate import Certificate, Counterexample
    from oracle.exact.concrete_runs import FailingRun
    from oracle.exact.own_runs import OwnRunsCertificate
    from pipelines.scoring.players import NamedPolicy

EXAMPLE = "python -m pipelines.certify runs/first --json certificate.json"
EXACT, NOT_EXACT, NOT_PROVEN = 0, 1, 3
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


Level = Literal["dense", "no_of", "no_of_sp", "no_of_sp_ms", "answer_only"]


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    policy: str | None = argument("the policy (default: the one that comes with the project)", None)
    trust: bool = option(False, "load a zip file, which can run any code")
    counterexamples: int = option(10, "number of counterexamples, the smallest first")
    variant: Variant = option(
        "before", "when the signpost moves: before the write, or after it as printed"
    )
    base: int | None = option(None, "base, for a policy that does not store it (default: 5)")
    frames: int | None = option(None, "frames, for a policy that does not store them (default: 3)")
    seed: int = option(0, "seed of the random policy")
    own_runs: bool = option(False, "explore the policy's own runs instead of the teacher's")
    level: Level = option(
        "dense", "with --own-runs: reward level; signpost moves are free from no_of_sp on"
    )
    limit: int = option(SITUATIONS_LIMIT, "with --own-runs: most situations to explore")
    json: Path | None = option(None, "file to write the certificate to")

    def __post_init__(self) -> None:
        check_integer("counterexamples", self.counterexamples, 0)
        check_integer("limit", self.limit, 1)


def main(options: Options) -> int:
    """Certify, print the certificate, and write it if asked."""
    from oracle.exact.certificate import certify
    from oracle.exact.complete_set import complete_set
    from pipelines.learning.named_policies import find_policy

    policy = find_policy(
        options.policy,
        trust=options.trust,
        base=options.base,
        frames=options.frames,
        seed=options.seed,
        variant=options.variant,
    )
    if options.own_runs:
        return _certify_own_runs(options, policy)
    known = complete_set(policy.base, policy.frames, options.variant)
    with tqdm(total=len(known), unit=" observations", disable=None, leave=False) as bar:
        certificate = certify(
            policy.answers,
            known,
            counterexamples=options.counterexamples,
            progress=bar.update,
        )
    with stdout_for((options.json,)):
        print("\n".join(lines(policy.name, certificate)))
        if options.json is not None:
            atomic_write_text(options.json, certificate.to_json() + "\n")
            print(f"written       {relative_path(options.json)}")
    return EXACT if certificate.exact else NOT_EXACT


def _certify_own_runs(options: Options, policy: NamedPolicy) -> int:
    import_module("scipy.sparse.csgraph")  # if it is missing, say so before the exploration
    from oracle.exact.own_runs import certify_own_runs

    with tqdm(unit=" situations", disable=None, leave=False) as bar:
        certificate = certify_own_runs(
            policy.answers,
            base=policy.base,
            frames=policy.frames,
            level=options.level,
            limit=options.limit,
            progress=lambda done, found: bar.update(done - bar.n),
        )
    with stdout_for((options.json,)):
        print("\n".join(own_runs_lines(policy.name, certificate)))
        if options.json is not None:
            atomic_write_text(options.json, certificate.to_json() + "\n")
            print(f"written       {relative_path(options.json)}")
    return {"exact": EXACT, "not exact": NOT_EXACT, "not proven": NOT_PROVEN}[certificate.verdict]


def own_runs_lines(name: str, certificate: OwnRunsCertificate) -> Iterator[str]:
    """Yield the lines of a certificate by own runs for a terminal, the verdict first."""
    results = {
        "exact": "EXACT: its own runs never go wrong, on operands of every length",
        "not exact": "NOT EXACT",
        "not proven": f"NOT PROVEN: {certificate.reason}",
    }
    yield f"result        {results[certificate.verdict]}"
    yield f"policy        {name}"
    if certificate.policy_digest:
        yield f"weights       sha256 {certificate.policy_digest}"
    yield (
        f"situations    {certificate.situations:,} in base {certificate.base} with "
        f"{certificate.frames} frames, judged as at {certificate.level}"
    )
    yield f"observations  {certificate.observations:,}, each asked once"
    if certificate.smallest_margin is not None:
        yield f"margin        {certificate.smallest_margin:.4g} at the closest decision"
    if certificate.longest_ways is not None:
        yield f"step budget   {certificate.longest_ways.describe()}"
    if certificate.failures:
        yield ""
        yield "smallest calculations that go wrong, as run in the environment:"
    for failure in certificate.failures:
        yield f"  {_describe_run(failure, certificate.base)}"
        yield f"    rule: {failure.rule}"


def _describe_run(failure: FailingRun, base: int) -> str:
    from oracle.exact.concrete_runs import NEVER_ENDS

    if failure.kind == NEVER_ENDS:
        what = f"from step {failure.step + 1} on it comes back to the same state for ever"
    else:
        what = f"step {failure.step + 1}, symbol {failure.symbol}: it {_ACTIONS[failure.action]}"
    return (
        f"{failure.kind}: {failure.calculation} ({failure.in_base} in base {base}) on "
        f"{failure.columns} columns, {what}"
    )


def lines(name: str, certificate: Certificate) -> Iterator[str]:
    """Yield the lines of the certificate for a terminal."""
    yield f"policy        {name}"
    if certificate.policy_digest:
        yield f"weights       sha256 {certificate.policy_digest}"
    yield (
        f"observations  {certificate.observations:,}: all of the algorithm in base "
        f"{certificate.base} with {certificate.frames} frames, at any width and length"
    )
    if certificate.variant != "before":
        yield f"variant       {certificate.variant}"
    if certificate.ambiguous:
        yield f"ambiguous     {certificate.ambiguous:,}: no memoryless policy is right on all"
    yield f"wrong         {certificate.disagreements:,}"
    if certificate.smallest_margin is not None:
        yield f"margin        {certificate.smallest_margin:.4g} at the closest decision"
    if certificate.exact:
        yield "result        EXACT: right on operands of every length"
        return
    yield "result        NOT EXACT"
    yield "              if it has an algorithm of its own, it may be: --own-runs finds out"
    if certificate.counterexamples:
        yield ""
        yield "smallest calculations with a wrong action:"
    for example in certificate.counterexamples:
        yield f"  {_describe(example, certificate.base)}"


def _describe(example: Counterexample, base: int) -> str:
    action = f"it {_ACTIONS[example.policy_action]}"
    if example.policy_action == example.teacher_action:
        action += ", as the teacher does in only some states with this observation"
    else:
        action += f" where the teacher {_ACTIONS[example.teacher_action]}"
    return (
        f"{example.calculation} ({example.in_base} in base {base}) on {example.columns} columns, "
        f"step {example.step + 1}, symbol {example.symbol}: {action}"
    )


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))

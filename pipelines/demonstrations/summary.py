"""The summary of a set of demonstrations: what it holds, how much it covers, how large it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oracle.demos import Demonstrations
from oracle.demos.statistics import KindStatistics, Statistics, coverage_of, statistics_of
from pipelines.command_line import shown_path


def summary(demonstrations: Demonstrations, path: Path) -> str:
    """Lines of text, one for each thing to know."""
    lines = [*_content(demonstrations), *_file(demonstrations, path)]
    return "\n".join(f"{name:<13} {text}" for name, text in lines)


def _content(demonstrations: Demonstrations) -> Iterator[tuple[str, str]]:
    statistics = statistics_of(demonstrations)
    yield "transitions", f"{statistics.transitions:,}"
    yield (
        "operations",
        f"{statistics.operations:,}, in {statistics.episodes:,} episodes, "
        f"{statistics.validation_episodes:,} of them for validation",
    )
    yield "actions", _histogram(statistics)
    if statistics.detours:
        share = statistics.detours / statistics.transitions
        yield "detours", f"{statistics.detours:,} ({share:.1%} of transitions)"
    yield "additions", _kind(statistics.additions, "carry", "carries")
    yield "subtractions", _kind(statistics.subtractions, "borrow", "borrows")
    yield (
        "mean returns",
        ", ".join(f"{level} {value:.2f}" for level, value in statistics.returns.items()),
    )
    yield "covers", _coverage(demonstrations)


def _histogram(statistics: Statistics) -> str:
    return ", ".join(
        f"{name} {count:,} ({count / statistics.transitions:.1%})"
        for name, count in statistics.actions.items()
    )


def _kind(kind: KindStatistics, one: str, many: str) -> str:
    if kind.operations == 0:
        return "none"
    return (
        f"{kind.operations:,}, {kind.share_with_carry:.1%} with a {one}, "
        f"{kind.mean_carries:.2f} {many} each, longest chain {kind.longest_chain}"
    )


def _coverage(demonstrations: Demonstrations) -> str:
    coverage = coverage_of(demonstrations)
    if coverage is None:
        config = demonstrations.config
        return (
            f"unknown: all observations in base {config.base} with {config.frames} frames are not "
            "enumerated on this machine, and that takes minutes (oracle.observations.complete_set)"
        )
    return (
        f"{coverage.seen:,} of the {coverage.complete:,} observations that the algorithm can meet "
        f"at any length ({coverage.share:.2%})"
    )


def _file(demonstrations: Demonstrations, path: Path) -> Iterator[tuple[str, str]]:
    assert demonstrations.about is not None
    size = path.stat().st_size
    yield "digest", demonstrations.about.digest
    yield "size", f"{size:,} bytes, {size / len(demonstrations):.2f} a transition"
    yield "path", shown_path(path)

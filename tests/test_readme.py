"""The README's Python runs, each block on its own, as a reader would paste it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


#: What each block prints, in their order.
PRINTED = (
    r"●[\s\S]*reward: -",
    r"[\d,]+ steps a second\nreward 0\.\d+ a step",
    r"ep_rew_mean",
    r"exact: False - wrong in \d+ [+-] \d+\n.*exact: True$",
)


def test_every_python_block_runs_on_its_own_and_prints_something_to_see(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    for block, pattern in zip(blocks, PRINTED, strict=True):
        # Nothing is left from the block before.
        exec(compile(block, README.name, "exec"), {})
        assert re.search(pattern, capsys.readouterr().out.strip())


def test_commands_that_it_names_exist() -> None:
    """`python -m package.job` and paths in links, so that a renamed job is noticed."""
    text = README.read_text(encoding="utf-8")
    jobs = set(re.findall(r"python -m ((?:pipelines|benchmarks)\.\w+)", text))
    missing = [job for job in jobs if not (ROOT / f"{job.replace('.', '/')}.py").exists()]
    assert not missing
    pages = [README, *sorted((ROOT / "docs").glob("*.md"))]
    grids = {g for page in pages for g in re.findall(r"[\w./]+/grids/\w+\.json", page.read_text())}
    assert grids
    assert [grid for grid in grids if not (ROOT / grid).exists()] == []
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []

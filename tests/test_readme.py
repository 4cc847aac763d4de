"""The README's Python runs, block after block, as a reader would paste it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_python_blocks_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert len(blocks) >= 3
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, README.name, "exec"), namespace)
    assert "●" in capsys.readouterr().out


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

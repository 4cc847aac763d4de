"""The examples run as a reader would run them: the notebook, and a learner that is not ours."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
LEARNER = ROOT / "examples" / "masked_ppo.py"


def code_cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, namespace: dict[str, Any]) -> Any:
    """Run a cell as Jupyter does: return the value of an expression at its end, else None."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, type_ignores=[]), NOTEBOOK.name, "exec"), namespace)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), namespace)


def test_the_notebook_goes_from_an_environment_to_a_proof_in_ten_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = code_cells()
    assert len(cells) == 10
    namespace: dict[str, Any] = {}
    values, printed = [], []
    for cell in cells:
        values.append(run_cell(cell, namespace))
        printed.append(capsys.readouterr().out)
    assert all(printed), "every cell prints something"
    certified, counterexample, mistake, taught, published = printed[5:]
    assert certified.startswith("exact: False; wrong in ")
    assert re.match(r"\d+( [+-] \d+)+: after \d+ right steps\nthe clone answers ", counterexample)
    pictures = [value for value in values if isinstance(value, Image.Image)]
    assert len(pictures) == 4
    # A picture of the abacus in the moment of the mistake, which the clone then makes.
    assert values[6] is pictures[2]
    answer = namespace["mistake"].policy_action
    assert f"the clone answers {answer}, the teacher " in counterexample
    assert mistake.startswith(f"{answer}: reward ")
    wrong = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) observations wrong", taught)]
    assert len(wrong) == 2
    assert wrong[-1] < wrong[0]
    assert "exact at every length: True" in published


def test_the_notebook_shows_the_output_of_every_cell() -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for number, cell in enumerate(c for c in content["cells"] if c["cell_type"] == "code"):
        assert cell["execution_count"] == number + 1
        kinds = {output["output_type"] for output in cell["outputs"]}
        assert "stream" in kinds
        assert kinds <= {"stream", "execute_result"}
        assert all(output.get("name") != "stderr" for output in cell["outputs"])


def test_a_learner_in_one_file_learns_a_small_world_and_tells_its_speed() -> None:
    """It imports the environment alone, and solves ever more operations."""
    imported = {
        (node.module or "").partition(".")[0]
        for node in ast.walk(ast.parse(LEARNER.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert "abacus" in imported
    assert not imported & {"oracle", "pipelines"}
    small = "--base 2 --columns 4 --max-digits 2 --num-envs 32 --total-timesteps 24_000"
    done = subprocess.run(
        [sys.executable, LEARNER, *small.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    solved = [float(share) for share in re.findall(r"([\d.]+)% of operations solved", done.stdout)]
    assert len(solved) == -(-24_000 // (32 * 64))
    assert solved[-1] > 15 > 5 > solved[0]
    assert re.findall(r"SPS ([\d,]+)\n", done.stdout)[-1] != "0"

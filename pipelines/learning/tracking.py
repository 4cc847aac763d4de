"""A run in Weights & Biases: its settings, its logs and its result, offline unless asked otherwise.

The run folder holds everything already. It is stored when a run ends, so that training never waits
for a tracker, and a run that was interrupted and resumed is stored once, as a whole. Without
WANDB_MODE=online in the environment nothing is sent: the offline run is in the folder `wandb/` of
the run, from which `wandb sync` uploads it.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

from pipelines.job.command_line import relative_path

PROJECT = "virtual-abacus"
#: Files of a run folder and a column of its logs, see `pipelines.learning.run_folder`: to import it
#: would import torch.
_CONFIG, _SUMMARY, _STEP = "config.json", "summary.json", "time/total_timesteps"


def check_tracker() -> None:
    """Raise ValueError where wandb is not installed, before a run of minutes begins."""
    _wandb()


def track_run(folder: Path) -> str:
    """Store a finished run, and return a line that says where."""
    mode = os.environ.get("WANDB_MODE", "offline")
    run = _wandb().init(
        project=PROJECT,
        name=folder.resolve().name,
        dir=str(folder),
        mode=mode,
        config=json.loads((folder / _CONFIG).read_text(encoding="utf-8")),
        settings={"silent": True, "console": "off"},
    )
    for path in sorted(folder.glob("*.csv")):
        # Each log counts steps of its own: updates of cloning, environment steps of PPO.
        run.define_metric(f"{path.stem}/*", step_metric=f"{path.stem}/{_STEP}")
        for values in _rows(path):
            run.log({f"{path.stem}/{name}": value for name, value in values.items()})
    summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
    run.summary.update({"exact": summary["exact"], "own_runs": summary["own_runs"]})
    run.finish()
    if mode == "offline":
        return f"tracked offline: upload it with wandb sync {relative_path(folder)}/wandb/offline-*"
    return f"tracked: {run.name} of the project {PROJECT}, mode {mode}"


def _rows(path: Path) -> list[dict[str, float]]:
    """Return the rows of a log as numbers; empty cells are left out."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: float(text) for name, text in row.items() if _is_number(text)}
            for row in csv.DictReader(file)
        ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _wandb() -> Any:
    try:
        import wandb  # type: ignore[import-not-found]
    except ImportError as error:
        raise ValueError("--track wandb needs it: pip install wandb") from error
    return wandb

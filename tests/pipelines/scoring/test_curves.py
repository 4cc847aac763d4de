"""Learning curves from the logs that training writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.learning.run_folder import file_logger
from pipelines.scoring.protocol import Curve, read_curve


def test_a_log_of_training_is_read(tmp_path: Path) -> None:
    logger = file_logger(tmp_path / "first", "progress")
    for step, accuracy in ((100, 0.2), (200, 0.95), (300, 0.9)):
        logger.record("rollout/accuracy", accuracy)
        logger.dump(step)
    logger.close()
    curve = read_curve(tmp_path / "first")
    assert curve == Curve("first", (100, 200, 300), (0.2, 0.95, 0.9))
    assert (curve.steps_to(0.2), curve.steps_to(0.9), curve.steps_to(0.99)) == (100, 200, None)


def test_lines_of_other_phases_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time/total_timesteps,rollout/accuracy,bc/loss\n10,,0.3\n20,0.5,\n")
    assert read_curve(file) == Curve("log", (20,), (0.5,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column time/total_timesteps"),
        ("time/total_timesteps,other\n1,2\n", "has no column rollout/accuracy"),
        ("time/total_timesteps,rollout/accuracy\n", "holds no line with rollout/accuracy"),
        ("time/total_timesteps,rollout/accuracy\n1,much\n", "is damaged"),
    ],
)
def test_a_bad_log_is_told_in_a_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "log.csv"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_curve(file)


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"holds no log: give the folder of a run with a progress\.csv"
    ):
        read_curve(tmp_path)

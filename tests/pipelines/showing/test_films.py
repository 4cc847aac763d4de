"""A game as a GIF, an MP4, an SVG and a trace: the content of the files."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image, ImageSequence

from abacus.rules import Action
from pipelines.job.command_line import run
from pipelines.play import EXAMPLE, Options, main
from pipelines.showing.films import moment_pixels, moment_scene, palette_colours
from pipelines.showing.game import (
    ExpertAgent,
    Game,
    columns_needed,
    config_for,
    moments_of,
    probability_text,
    value_text,
    verdict,
)

EXPRESSION, STEPS = "34+29-8", 58


def play(*arguments: str | float | Path) -> int:
    return run(main, Options, "", EXAMPLE, [EXPRESSION, "teacher", *map(str, arguments)])


def test_a_gif_shows_every_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "play.gif"
    assert play("--gif", path, "--speed", "5", "--width", "300") == 0
    assert f"wrote {path}" in capsys.readouterr().out
    with Image.open(path) as film:
        frames = [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(film)]
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(film)]
    assert len(frames) == STEPS + 1
    assert durations[:-1] == [200] * STEPS
    assert durations[-1] == 3200
    game, agent = Game(config_for(EXPRESSION)), ExpertAgent()
    for frame, moment in zip(frames, moments_of(game, agent), strict=True):
        scene = moment_scene(moment, agent.name, verdict(game), game.solved)
        assert np.abs(frame - moment_pixels(scene, 300)).mean() < 3


@pytest.mark.parametrize("speed", [0.5, 6, 30])
def test_a_gif_plays_at_the_speed_asked_for(tmp_path: Path, speed: float) -> None:
    path = tmp_path / "play.gif"
    assert play("--gif", path, "--speed", speed, "--width", "160") == 0
    with Image.open(path) as film:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(film)]
    assert sum(durations[:-1]) / 1000 == pytest.approx(STEPS / speed, abs=0.01)


def test_the_readme_animation_is_small_and_shows_this_game() -> None:
    path = Path(__file__).parents[3] / "docs" / "images" / "play.gif"
    assert path.stat().st_size < 600_000
    with Image.open(path) as film:
        assert film.n_frames == STEPS + 1  # type: ignore[attr-defined]


def test_the_palette_leaves_room_for_transparency() -> None:
    assert len(palette_colours()) % 3 == 0
    assert len(palette_colours()) // 3 <= 255


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg on the PATH")
def test_an_mp4_is_as_long_as_the_game(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    assert play("--mp4", path, "--speed", "20", "--width", "301") == 0
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=width,duration,codec_name"]
    probed = subprocess.run(
        [*probe, "-of", "json", str(path)], capture_output=True, text=True, check=True
    )
    (stream,) = json.loads(probed.stdout)["streams"]
    assert (stream["codec_name"], stream["width"]) == ("h264", 302)
    assert float(stream["duration"]) == pytest.approx((STEPS + 1) / 20 + 3, abs=0.1)


def test_a_missing_encoder_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert play("--mp4", tmp_path / "play.mp4") == 2
    assert "ffmpeg" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_svg_shows_the_requested_step(tmp_path: Path) -> None:
    path = tmp_path / "play.svg"
    assert play("--svg", path, "--frame", "28") == 0
    texts = [element.text for element in ET.parse(path).iter() if element.text]
    assert "step 28" in texts
    assert "next action of the teacher" in texts
    assert play("--svg", path) == 0
    assert "the abacus shows 55 (210 in base 5)" in path.read_text()


def test_a_step_beyond_the_end_keeps_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "play.svg"
    path.write_text("old")
    assert play("--svg", path, "--frame", "59") == 2
    assert "frame=59 is not allowed: the game has steps 0 to 58" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_trace_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "play.json"
    assert play("--trace", path) == 0
    trace = json.loads(path.read_text())
    assert (trace["format"], trace["version"]) == ("virtual-abacus-trace", 1)
    assert (trace["value"], trace["truth"], trace["right"]) == ("55", "55", True)
    game = Game(config_for(trace["expression"], trace["base"], trace["frames"], trace["columns"]))
    for step in trace["steps"]:
        moment = game.moment()
        assert step["digits"] == "".join(map(str, moment.view.digits))
        assert step["frame_codes"] == list(moment.frames)
        assert step["symbol"] == moment.view.symbol_text
        if step["action"] is not None:
            assert step["probability"] == 1.0
            game.step(Action[step["action"]])
    assert game.solved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gif", "."], ". is a directory: give the name of a file"),
        (
            ["--gif", "x.gif", "--width", "5"],
            "width=5 is not allowed: give an integer from 160 to 3840",
        ),
        (["--svg", "x.svg", "--frame", "-1"], "frame=-1 is not allowed"),
        (["--svg", "x.svg", "--columns", "3"], "too many digits"),
    ],
)
def test_bad_arguments_are_reported_in_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_abacus_is_wide_enough() -> None:
    assert columns_needed(config_for("124").program, 5) == 4
    assert columns_needed(config_for("124+1").program, 5) == 4
    assert columns_needed(config_for("124+124+124+124+129").program, 5) == 5
    assert config_for("9" * 300).columns == 431


def test_very_long_values_are_abbreviated() -> None:
    assert value_text(1234567, 10) == "1,234,567"
    assert value_text(10**5000, 5).startswith("about 1.00e+5000 (")
    game = Game(config_for("9" * 5000))
    assert "about 1.00e+5000" in verdict(game)
    assert [probability_text(p) for p in (1.0, 0.99999999, 0.25)] == [
        "100.00 %", "99.99 %", "25.00 %",
    ]  # fmt: skip

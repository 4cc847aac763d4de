"""A game as a GIF, a film, a picture and a trace: what is in the files, and that they are whole."""

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
    Game,
    TeacherPlayer,
    columns_needed,
    config_for,
    decimal_text,
    percent,
    verdict,
    watch,
)

EXPRESSION, STEPS = "34+29-8", 58


def play(*arguments: str | Path) -> int:
    return run(main, Options, "", EXAMPLE, [EXPRESSION, "--teacher", *map(str, arguments)])


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
    game, player = Game(config_for(EXPRESSION)), TeacherPlayer()
    for frame, moment in zip(frames, watch(game, player), strict=True):
        scene = moment_scene(moment, player.name, verdict(game), game.solved)
        assert np.abs(frame - moment_pixels(scene, 300)).mean() < 3


def test_the_picture_of_the_readme_is_small_and_of_the_same_game() -> None:
    path = Path(__file__).parents[3] / "docs" / "images" / "play.gif"
    assert path.stat().st_size < 600_000
    with Image.open(path) as film:
        assert film.n_frames == STEPS + 1  # type: ignore[attr-defined]


def test_a_films_palette_has_room() -> None:
    assert len(palette_colours()) % 3 == 0
    assert len(palette_colours()) // 3 <= 255


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg on the PATH")
def test_an_mp4_is_as_long_as_the_game(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    assert play("--mp4", path, "--speed", "20", "--width", "301") == 0
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=width,duration,codec_name"]
    told = subprocess.run(
        [*probe, "-of", "json", str(path)], capture_output=True, text=True, check=True
    )
    (stream,) = json.loads(told.stdout)["streams"]
    assert (stream["codec_name"], stream["width"]) == ("h264", 302)
    assert float(stream["duration"]) == pytest.approx((STEPS + 1) / 20 + 3, abs=0.1)


def test_without_an_encoder_a_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert play("--mp4", tmp_path / "play.mp4") == 2
    assert "ffmpeg" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_svg_shows_the_step_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "play.svg"
    assert play("--svg", path, "--frame", "28") == 0
    texts = [element.text for element in ET.parse(path).iter() if element.text]
    assert "step 28" in texts
    assert "next action of the teacher" in texts
    assert play("--svg", path) == 0
    assert "and that is the truth" in path.read_text()


def test_a_step_that_there_is_not_leaves_the_old_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "play.svg"
    path.write_text("old")
    assert play("--svg", path, "--frame", "59") == 2
    assert "frame=59 is not allowed: the game has steps 0 to 58" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_trace_can_be_played_again(tmp_path: Path) -> None:
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
            game.do(Action[step["action"]])
    assert game.solved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gif", "."], "Is a directory: give a file's name"),
        (["--gif", "x.gif", "--width", "5"], "width=5 is not allowed: give 160 to 3840"),
        (["--svg", "x.svg", "--frame", "-1"], "frame=-1 is not allowed"),
        (["--svg", "x.svg", "--columns", "3"], "too many digits"),
    ],
)
def test_bad_arguments_are_said_in_a_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play(*arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_abacus_is_wide_enough() -> None:
    assert columns_needed(config_for("124").program, 5) == 4
    assert columns_needed(config_for("124+1").program, 5) == 4
    assert columns_needed(config_for("124+124+124+124+129").program, 5) == 5
    assert config_for("9" * 300).columns == 431


def test_very_long_values_are_described() -> None:
    assert decimal_text(1234567) == "1,234,567"
    assert decimal_text(10**5000) == "about 1.00e+5000"
    game = Game(config_for("9" * 5000))
    assert "about 1.00e+5000" in verdict(game)
    assert (percent(1.0), percent(0.99999999), percent(0.25)) == ("100.00 %", "99.99 %", "25.00 %")

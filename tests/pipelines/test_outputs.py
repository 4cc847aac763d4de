"""Commands that write to devices and pipes, and that read a certificate of other weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from oracle.exact.certificate import certify as certificate_of
from pipelines import certify, evaluate, play
from pipelines.job.command_line import run
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import save_policy

GAME = ["1+1", "teacher", "--plain"]


def played(*words: str) -> int:
    return run(play.main, play.Options, play.__doc__, play.EXAMPLE, [*GAME, *words])


@pytest.mark.parametrize(
    "words",
    [
        ["pipelines.play", *GAME, "--trace", "/dev/stdout"],
        ["pipelines.certify", "teacher", "--base", "2", "--frames", "1", "--json", "/dev/stdout"],
    ],
)
def test_json_on_standard_output_stands_alone(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1)  # 1: the policy is not exact
    assert isinstance(json.loads(done.stdout), dict)
    assert "/dev/stdout" in done.stderr


@pytest.mark.parametrize("option", ["--trace", "--svg", "--gif"])
def test_a_full_device_is_one_line_and_stays_a_device(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A link: a mistake here would replace the link, not the device.
    device = tmp_path / "device"
    device.symlink_to("/dev/full")
    assert played(option, str(device)) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert device.is_char_device()


@pytest.mark.parametrize(
    ("option", "start"), [("--gif", b"GIF8"), ("--trace", b"{"), ("--svg", b"<")]
)
def test_a_pipe_receives_the_file(option: str, start: bytes, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert played(option, str(pipe)) == 0
    reader.join(30)
    assert received[0].startswith(start)
    assert pipe.is_fifo()


@pytest.mark.parametrize("module", [play, evaluate, certify])
def test_a_certificate_of_other_weights_is_reported(
    module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, other = new_policy("compact", 2, 1), new_policy("compact", 2, 1)
    save_policy(policy, tmp_path / "run" / "best")
    small = ["--digits", "1", "--n-operations", "5", "--sets", "none", "--n-episodes", "0"]
    words = {
        "pipelines.play": ["1+1", str(tmp_path / "run"), "--plain"],
        "pipelines.evaluate": [str(tmp_path / "run"), *small, "--output", str(tmp_path / "out")],
        "pipelines.certify": [str(tmp_path / "run")],
    }[module.__name__]

    def warnings(certified: AbacusPolicy) -> list[str]:
        certificate = certificate_of(certified, base=2, frames=1)
        (tmp_path / "run" / "certificate.json").write_text(certificate.to_json())
        run(module.main, module.Options, module.__doc__, module.EXAMPLE, words)
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if "certificate" in line]

    assert warnings(policy) == []
    (line,) = warnings(other)
    assert "other weights" in line

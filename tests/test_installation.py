"""The built wheel: what it carries, and its console command in a folder of somebody else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet

import abacus
from tests.pipelines.without_libraries import EXTRAS, run_without

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, and install it into a folder."""
    source = tmp_path_factory.mktemp("source")
    unpacked = source.parent / "site"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in ("abacus", "oracle", "pipelines"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(unpacked), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return unpacked


@pytest.fixture
def foreign_folder(tmp_path: Path) -> Path:
    """Return a folder with packages of the same names as ours, which must not be imported."""
    for name in ("abacus", "oracle", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    return tmp_path


def abacus_command(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed console command in a folder."""
    return subprocess.run(
        [str(site / "bin" / "abacus"), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_describes_itself(site: Path) -> None:
    (path,) = site.glob("virtual_abacus-*.dist-info/METADATA")
    metadata = message_from_string(path.read_text(encoding="utf-8"))
    assert metadata["Version"] == abacus.__version__
    assert f"version: {abacus.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# Virtual abacus" in str(metadata.get_payload())
    assert metadata.get_all("Project-URL")
    assert {"train", "evaluate", "minari", "dask"} <= set(metadata.get_all("Provides-Extra") or ())


def test_the_wheel_carries_all_that_commands_read(site: Path) -> None:
    for folder in ("experiments/grids", "pages", "policies"):
        files = [path for path in (ROOT / "pipelines" / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            assert (site / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


def test_the_console_command_works_beside_packages_of_the_same_names(
    site: Path, foreign_folder: Path
) -> None:
    done = abacus_command(site, foreign_folder, "--version")
    assert done.stdout == f"virtual-abacus {abacus.__version__}\n", done.stderr
    done = abacus_command(site, foreign_folder, "study", "--status")
    assert re.search(r"^all: 0 done, 0 running, 0 failed, \d+ left$", done.stdout, re.MULTILINE)
    done = abacus_command(site, foreign_folder, "play", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("abacus play: expression='x' is not allowed")


def test_the_console_command_lists_commands_and_refuses_others(
    site: Path, foreign_folder: Path
) -> None:
    listed = abacus_command(site, foreign_folder, "--help").stdout
    for path in (ROOT / "pipelines").glob("[a-z]*.py"):
        assert f"\n  {path.stem.replace('_', '-')} " in listed
    done = abacus_command(site, foreign_folder, "plya")
    assert done.returncode == 2
    assert done.stderr.startswith("abacus: 'plya' is no command: give one of audit, ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("abacus insp", "inspect-demos"),
        ("abacus play --hu", "--human"),
        ("abacus export --data", "--dataset-id"),
        ("abacus play data", ""),  # the shell completes names of files
    ],
)
def test_the_shell_completes_names_and_flags(words: str, expected: str) -> None:
    script = f"""
        eval "$({sys.executable} -m pipelines completion)"
        COMP_WORDS=({words}) COMP_CWORD=$(({words.count(" ")}))
        _abacus
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("minor", range(9, 16))
def test_make_the_lock_and_the_package_agree_on_versions_of_python(minor: int) -> None:
    supported = SpecifierSet(PROJECT["requires-python"]).contains(f"3.{minor}")
    assert (f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]) == supported
    hashed = re.search(r"^MINORS = \((.*)\)$", (ROOT / ".ci/lock_hashes.py").read_text(), re.M)
    assert hashed is not None
    assert (str(minor) in hashed[1].split(", ")) == supported
    makefile = (ROOT / "Makefile").read_text()
    check = re.search(r"^IS_SUPPORTED := import sys; sys\.exit\((.*)\)$", makefile, re.M)
    assert check is not None
    refused = eval(check[1], {"sys": SimpleNamespace(version_info=(3, minor, 1))})
    assert refused != supported
    assert (f"python3.{minor} " in makefile.partition("BOOTSTRAP ?= ")[2]) == supported


def test_the_tests_with_gymnasium_1_need_nothing_but_the_core(tmp_path: Path) -> None:
    """`make test-gymnasium1` installs the core of pyproject.toml, pytest and hypothesis."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    chosen = re.search(r"^GYMNASIUM1_TESTS := (.*)$", makefile, re.M)
    assert chosen is not None
    collect = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = run_without(EXTRAS, tmp_path, [*collect, *chosen[1].split()])
    assert done.returncode == 0, done.stdout[-2000:]
    assert re.search(r"^9\d\d tests collected", done.stdout, re.M)

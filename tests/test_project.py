"""Guards of the project as a whole: what may import what, what is pinned, what is not tracked."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

IMPORT_IMITATION = """
import imitation.algorithms.dagger, imitation.data.serialize
import datasets
print(datasets.Dataset.__module__, datasets.__file__)
"""


def run_python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code like `python -c` in a folder, which is first on the path."""
    inherited = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_datasets_is_no_package() -> None:
    assert (ROOT / "datasets").is_dir()
    assert not (ROOT / "datasets" / "__init__.py").exists()


def test_imitation_finds_hugging_face_datasets_from_the_root() -> None:
    done = run_python(IMPORT_IMITATION, ROOT)
    assert done.returncode == 0, done.stderr
    module, _, file = done.stdout.strip().partition(" ")
    assert module == "datasets.arrow_dataset"
    assert not Path(file).is_relative_to(ROOT / "datasets")


def test_a_package_named_datasets_would_break_imitation(tmp_path: Path) -> None:
    """What the guard is for, and that it can fail: the same import beside such a package."""
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "README.md", tmp_path / "datasets")
    (tmp_path / "datasets" / "__init__.py").touch()
    done = run_python(IMPORT_IMITATION, tmp_path)
    assert done.returncode != 0
    assert "module 'datasets' has no attribute" in done.stderr


#: Packages from the lowest to the highest: each may import those above it in this list alone.
LAYERS = (
    "abacus.render",
    "abacus",
    "oracle",
    "oracle.exact",
    "oracle.demos",
    "pipelines.job",
    "pipelines.scoring",
    "pipelines.learning",
    "pipelines.showing",
    "pipelines.experiments",
    "pipelines",
    "benchmarks",
    "tests",
)
#: One layer: environments draw themselves, and pictures know the rules.
ENVIRONMENT = {"abacus", "abacus.render"}


def imported_modules(source: str) -> set[str]:
    """Return the modules that a source imports, also inside functions and conditions."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer_of(module: str) -> str | None:
    """Return the package of a module by the longest matching name, None for other libraries."""
    packages = [name for name in LAYERS if f"{module}.".startswith(f"{name}.")]
    return max(packages, key=len, default=None)


def upward_imports(layer: str, source: str) -> set[str]:
    """Return the modules of higher layers that a source of this layer imports."""
    same = ENVIRONMENT if layer in ENVIRONMENT else {layer}
    return {
        module
        for module in imported_modules(source)
        if (other := layer_of(module)) is not None
        and other not in same
        and LAYERS.index(other) > LAYERS.index(layer)
    }


@pytest.mark.parametrize("package", ["abacus", "oracle", "pipelines"])
def test_dependencies_point_one_way(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        relative = path.relative_to(ROOT)
        layer = layer_of(".".join(relative.with_suffix("").parts))
        assert layer is not None
        upward = upward_imports(layer, path.read_text())
        assert not upward, f"{relative} imports {', '.join(sorted(upward))}"


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("oracle", "import os, pipelines.study"),
        ("abacus", "from pipelines import study"),
        ("oracle.demos", "from pipelines.study import main"),
        ("oracle.exact", "from oracle.demos import Demonstrations"),
        ("oracle", "from oracle.exact.certificate import certify"),
        ("pipelines.scoring", "def late():\n    import pipelines.learning.run as run"),
        ("pipelines.scoring", "def late():\n    from pipelines.learning import run"),
        (
            "pipelines.learning",
            "if TYPE_CHECKING:\n    import pipelines.experiments.grid",
        ),
        ("pipelines.job", "from pipelines import study"),
    ],
)
def test_every_kind_of_upward_import_is_found(layer: str, source: str) -> None:
    assert upward_imports(layer, source)


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("pipelines.learning", "from pipelines.scoring.scores import Evaluator"),
        ("abacus", "from abacus.render import render_ansi"),
        ("pipelines", "from pipelines.experiments import grid"),
        ("oracle", "import numpy"),
    ],
)
def test_downward_imports_are_allowed(layer: str, source: str) -> None:
    assert not upward_imports(layer, source)


IMPORT_AND_REPORT = """
import sys
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    {statement}
learners = [name for name in ("torch", "stable_baselines3") if name in sys.modules]
print(len(recorder.buffer), *learners)
"""
#: All of the world but its door to Stable-Baselines3.
IMPORT_THE_WORLD = (
    "import abacus, importlib, pkgutil; "
    "[importlib.import_module(f'abacus.{module.name}') "
    "for module in pkgutil.iter_modules(abacus.__path__) if module.name != 'sb3']"
)


@pytest.mark.parametrize(
    ("statement", "report"),
    [
        ("import abacus", "0"),
        (IMPORT_THE_WORLD, "0"),
        ("import torch, stable_baselines3", "0 torch stable_baselines3"),
    ],
)
def test_importing_the_world_compiles_nothing_and_brings_no_learner(
    statement: str, report: str, tmp_path: Path
) -> None:
    code = IMPORT_AND_REPORT.format(statement=statement)
    # An empty cache: with a full one, a compilation at import would be a quiet look-up.
    done = run_python(code, ROOT, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == report


def test_a_compilation_at_import_would_be_seen(tmp_path: Path) -> None:
    compiling = "import numba; numba.njit('i8(i8)')(lambda number: number + 1)"
    code = IMPORT_AND_REPORT.format(statement=compiling)
    done = run_python(code, ROOT, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0


#: Folders in which people and machines keep their things; a slash before and after makes a path.
MACHINE_FOLDERS = ("work", "root", "home", "Users", "opt")
MACHINE_PATH = re.compile(rf"(?<![\w.~-])/(?:{'|'.join(MACHINE_FOLDERS)})/".encode())


def tracked_files() -> list[Path]:
    """What git holds or would add. Skips where there is no checkout of this very folder."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_names_a_folder_of_some_machine() -> None:
    files = tracked_files()
    assert ROOT / "pyproject.toml" in files
    found = [path.relative_to(ROOT) for path in files if MACHINE_PATH.search(path.read_bytes())]
    assert not found


@pytest.mark.parametrize("folder", MACHINE_FOLDERS)
def test_a_folder_of_some_machine_is_recognised(folder: str) -> None:
    for text in ("{}", "# via -c {}c.txt", 'open("{}x")', "file://{}", "--find-links={}"):
        assert MACHINE_PATH.search(text.format(f"/{folder}/").encode())
    for text in ("docs/{}/", "https://example.org/{}/", "../{}/", "{}/"):
        assert not MACHINE_PATH.search(text.format(folder).encode())


#: The package whose build depends on the machine: a comment of the lock pins its version.
UNHASHED = re.compile(r"^# (torch==[0-9.]+), ", re.MULTILINE)


def locked_hashes() -> dict[str, list[str]]:
    """Return the pins of the lock with their hashes; it holds no option, address, tag or marker."""
    text = (ROOT / "requirements.lock").read_text()
    pins = {pin: [""] for pin in UNHASHED.findall(text)}
    for line in text.replace("\\\n", " ").splitlines():
        pin, *hashes = line.partition("#")[0].split() or [""]
        if pin:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", pin), pin
            pins[pin] = hashes
    return pins


def locked_versions() -> dict[str, Version]:
    pairs = (pin.split("==") for pin in locked_hashes())
    return {str(canonicalize_name(name)): Version(version) for name, version in pairs}


def test_the_lock_has_hashes_of_everything_but_torch() -> None:
    pins = locked_hashes()
    assert [pin for pin, hashes in pins.items() if hashes == [""]] == ["torch==2.13.0"]
    for pin, hashes in pins.items():
        valid = all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", value) for value in hashes)
        assert hashes == [""] or (hashes and valid), pin


def test_setup_checks_the_hashes() -> None:
    command = ["make", "--dry-run", "--always-make", "setup"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    installs = [line for line in done.stdout.splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes --no-deps" in installs[0]
    assert "torch==" in installs[1]
    assert all("--only-binary :all:" in line for line in installs)


def required() -> Iterable[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from map(Requirement, group)


def test_the_lock_holds_all_that_the_project_asks_for() -> None:
    versions = locked_versions()
    for requirement in required():
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{name}: run `make lock`"
        assert requirement.specifier.contains(versions[name], prereleases=True), str(requirement)


def test_the_lock_brings_no_cuda_packages() -> None:
    versions = locked_versions()
    assert versions["torch"] == Version("2.13.0")
    assert not [name for name in versions if re.match(r"nvidia|cuda|triton", name)]


#: `file` or `file::name` in a document.
REFERENCE = re.compile(r"`((?:abacus|oracle|pipelines|tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`")


def missing_references(text: str) -> list[str]:
    """The files and names that a document mentions and that do not exist."""
    missing = []
    for file, name in dict.fromkeys(REFERENCE.findall(text)):
        source = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        defined = rf"^(?:\s*(?:def|class) {name}\b|{name}\b.*=)" if name else ""
        if not source or not re.search(defined, source, re.MULTILINE):
            missing.append(f"{file}::{name}" if name else file)
    return missing


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_documents_name_what_exists(path: Path) -> None:
    assert not missing_references(path.read_text())


def test_a_missing_reference_is_found() -> None:
    text = "`abacus/nowhere.py`, `abacus/rules.py::Nothing`, `abacus/rules.py::Action`"
    assert missing_references(text) == ["abacus/nowhere.py", "abacus/rules.py::Nothing"]

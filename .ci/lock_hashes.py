"""Add the SHA-256 of its wheels to every pin of requirements.lock, as the package index gives it.

    python .ci/lock_hashes.py requirements.lock

`pip-compile --generate-hashes` downloads every file of an index that lacks the JSON interface of
PyPI, which takes an hour; the pages that pip reads have the hashes already. Kept are the wheels
that CPython 3.11 to 3.13 can install on 64-bit Linux, macOS and Windows. Source archives are left
out, so that an installation runs no code of a package. torch becomes a comment, from which `make
setup` takes its version: which of its builds is right depends on the machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from piptools.locations import CACHE_DIR
from piptools.repositories import PyPIRepository

NOT_HASHED = "torch"
PIN = re.compile(r"([a-z0-9-]+)==([0-9a-z.]+)\s*(#.*)?")
#: The minor versions of Python 3.
MINORS = (11, 12, 13)
PLATFORM = re.compile(r"any|manylinux\w*_(x86_64|aarch64)|macosx\w*|win_amd64")


def main(path: Path) -> None:
    """Rewrite the lock."""
    lines = path.read_text().splitlines()
    pins = [match.groups() for match in map(PIN.fullmatch, lines) if match is not None]
    repository = PyPIRepository([], cache_dir=CACHE_DIR)
    with repository.allow_all_wheels(), ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda pin: sorted(set(_hashes(repository, *pin[:2]))), pins)
        hashes = {pin[0]: values for pin, values in zip(pins, found, strict=True)}
    path.write_text("\n".join(_rewritten(lines, hashes)) + "\n")


def _rewritten(lines: list[str], hashes: dict[str, list[str]]) -> Iterator[str]:
    for line in lines:
        match = PIN.fullmatch(line)
        if match is None:
            yield line
            continue
        name, version, comment = match.groups()
        if name == NOT_HASHED:
            yield f"# {name}=={version}, without hashes: its build depends on the machine"
            continue
        if not hashes[name]:
            raise SystemExit(f"the index has no wheel of {name} {version} with a hash")
        yield f"{name}=={version} \\"
        yield from (f"    --hash=sha256:{value} \\" for value in hashes[name][:-1])
        yield f"    --hash=sha256:{hashes[name][-1]}"
        if comment:
            yield f"    {comment}"


def _hashes(repository: PyPIRepository, name: str, version: str) -> Iterator[str]:
    for candidate in repository.find_all_candidates(name):
        link = candidate.link
        if link.hash_name != "sha256" or not link.hash:
            continue
        try:
            _, found, _, tags = parse_wheel_filename(link.filename)
        except InvalidWheelFilename:
            continue
        if found == Version(version) and any(
            _fits(tag.interpreter, tag.abi) and PLATFORM.fullmatch(tag.platform) for tag in tags
        ):
            yield link.hash


def _fits(interpreter: str, abi: str) -> bool:
    """Return whether CPython of one of these versions can install a wheel with these tags."""
    name = re.fullmatch(r"(cp|py)3(\d*)", interpreter)
    if name is None:
        return False
    minor = int(name[2] or 0)
    if name[1] == "cp" and abi != "abi3":
        return minor in MINORS and abi in (interpreter, "none")
    return minor <= max(MINORS) and abi in ("abi3", "none")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

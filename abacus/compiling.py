"""Compilation by numba, with a disk cache that depends on every source file involved.

numba caches machine code on disk and compiles again when the function's own file changes. But
machine code also contains functions and constants of other files: after a change there, the cache
would still hold the old rules, or refer to a class that no longer exists. The names of the cache
files therefore contain a fingerprint of the kernel with everything that it imports, of the files of
compiled code in the function's own package, and of those that they import from other packages.
Files with an older fingerprint are never read; `make clean` removes them.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

#: Modules of this package with compiled code, and what they import.
KERNEL_SOURCES = (
    "checks",
    "compiling",
    "hash_index",
    "kernel",
    "observation",
    "reward",
    "rules",
    "tasks",
)
#: A file of another package that contains one of these has compiled code.
_MARKS = (b"abacus.compiling", b"abacus.kernel", b"njit")
_IMPORT = re.compile(rb"^from ([\w.]+) import", re.MULTILINE)


def compiled_with(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles with these options of numba's `njit`, on the first call."""
    # No divisor is ever 0 here: without numba's check there are fewer branches.
    compile_function: Callable[[Any], Any] = njit(cache=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        # numba names the cache file after the function.
        function.__qualname__ += f"-{_fingerprint(function.__module__.partition('.')[0])}"
        return compile_function(function)

    return decorate


compiled = compiled_with()
#: For functions that only compiled code calls and that allocate nothing: inlined, because an array
#: is nine arguments of a call, and without reference counts and Python wrappers.
compiled_inline = compiled_with(
    _nrt=False, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)


@cache
def _fingerprint(package: str) -> str:
    """Return a digest of the kernel's sources and of a package's files of compiled code."""
    here = Path(__file__).parent
    sources = [(here / f"{name}.py").read_bytes() for name in KERNEL_SOURCES]
    if package != __name__.partition(".")[0]:
        sources += _compiled_sources(package).values()
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def _compiled_sources(package: str) -> dict[Path, bytes]:
    """Return the files of compiled code of a package, and those that they import from others."""
    found: dict[Path, bytes] = {}
    # A script or a single module has no folders; numba tracks its file.
    folders = [Path(folder) for folder in getattr(sys.modules.get(package), "__path__", ())]
    left = [path for folder in folders for path in folder.rglob("*.py")]
    while left:
        path = left.pop()
        source = path.read_bytes()
        if path in found or not any(mark in source for mark in _MARKS):
            continue
        found[path] = source
        for name in _IMPORT.findall(source):
            file = Path(*name.decode().split(".")).with_suffix(".py")
            left += [path for folder in folders if (path := folder.parent / file).is_file()]
    return dict(sorted(found.items()))

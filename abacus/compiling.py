"""Compilation by numba, with a disk cache that depends on every source file involved.

numba caches machine code on disk and compiles again when the function's own file changes. But
machine code also contains functions and constants of other files: after a change there, the cache
would still hold the old rules, or refer to a class that no longer exists. The names of the cache
files therefore contain a fingerprint of the kernel with everything that it imports, and of the
files of compiled code in the function's own package. Files with an older fingerprint are never
read; `make clean` removes them.
"""

from __future__ import annotations

import hashlib
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
        others = [path.read_bytes() for path in _files(package)]
        sources += [source for source in others if any(mark in source for mark in _MARKS)]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def _files(package: str) -> list[Path]:
    """Return a package's files; none for a script or a single module, which numba tracks."""
    folders = getattr(sys.modules.get(package), "__path__", ())
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))

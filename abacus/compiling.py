"""Compilation by numba, with a cache that notices a change in any file that it was made from.

numba keeps machine code on disk and renews it when the file of the function changes. But machine
code also holds what the function calls in other files and the constants that it has from there,
and those may change alone: the old rules would live on. An index that names a class which is gone
cannot even be read. So the names of these files hold a fingerprint: of the kernel with all that it
imports, and of the files of compiled code in the function's own package. What an older fingerprint
left behind is never read; `make clean` removes it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

#: The files of the world that machine code is made from: the kernel, and what it imports.
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
#: What marks a file of another package that holds compiled code.
_MARKS = (b"abacus.compiling", b"abacus.kernel", b"njit")


def compiled_with(**options: Any) -> Callable[[Any], Any]:
    """A decorator that compiles with these options of numba's `njit`, on the first call."""
    # Divisions never meet a zero here: without numba's check for it there are fewer branches.
    compile_function: Callable[[Any], Any] = njit(cache=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        # The file's name is made from this one.
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
    """Of the kernel, whose constants are everywhere, and of a package's files of compiled code."""
    here = Path(__file__).parent
    sources = [(here / f"{name}.py").read_bytes() for name in KERNEL_SOURCES]
    if package != __name__.partition(".")[0]:
        others = [path.read_bytes() for path in _files(package)]
        sources += [source for source in others if any(mark in source for mark in _MARKS)]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def _files(package: str) -> list[Path]:
    """A package's files; none for a script or a lone module, which numba watches itself."""
    folders = getattr(sys.modules.get(package), "__path__", ())
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))

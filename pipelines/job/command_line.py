"""Build the command line of a job from a frozen dataclass, whose fields are the flags.

    @dataclass(frozen=True)
    class Options:
        seed: int = option(0, "random seed")
        file: Path = argument("the file to read")

    def main(options: Options) -> int: ...

    if __name__ == "__main__":
        sys.exit(run(main, Options, __doc__, example="python -m pipelines.job data.h5 --seed 1"))

A user's mistake (ValueError, OSError) ends in one line that says what to do, not in a traceback; so
do sizes that exceed the memory or the integers of the machine, and libraries that are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pipelines.job.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from pipelines.job.interrupts import raise_on_interrupt

T = TypeVar("T")

EXIT_MISTAKE = 2
#: The most characters of an error message: longer ones repeat a long argument.
_MOST_CHARACTERS = 500
_HELP, _POSITIONAL, _GROUP = "help", "positional", "group"
#: The extra that installs a library; most come with `train`.
_EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "matplotlib": "evaluate",
    "minari": "minari",
    "pyarrow": "parquet",
    "scipy": "evaluate",
}
_OUR_PACKAGES = ("abacus", "oracle", "pipelines")


def option(default: Any, help: str) -> Any:  # noqa: A002 - argparse's own word
    """Declare a flag with its default and its help."""
    return dataclasses.field(default=default, metadata={_HELP: help})


def argument(help: str, default: Any = dataclasses.MISSING) -> Any:  # noqa: A002
    """Declare a positional argument, optional if it has a default."""
    metadata = {_HELP: help, _POSITIONAL: True}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def option_group(flags: Mapping[str, tuple[Any, str]]) -> Any:
    """Declare a field that holds the given ones of several flags, by name.

    Args:
        flags: the type and the help of each flag.
    """
    return dataclasses.field(default_factory=dict, metadata={_GROUP: flags})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        """Print the error alone: the usage would push it out of sight."""
        self.exit(EXIT_MISTAKE, f"{self.prog}: {_line(message)} (--help shows the options)\n")


def parser_for(options: type[Any], description: str, example: str) -> argparse.ArgumentParser:
    """Return the parser of a job's options."""
    parser = _Parser(
        prog=example.split(" -m ")[-1].split()[0] if " -m " in example else None,
        description=description.strip(),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        for name, (hint, text) in field.metadata.get(_GROUP, {}).items():
            _add(parser, name, hint, text, default=argparse.SUPPRESS)
        if _HELP in field.metadata:
            text, default = field.metadata[_HELP], field.default
            if default not in (dataclasses.MISSING, None, "", ()) and default is not False:
                text += f" (default: {_joined(default)})"
            positional = bool(field.metadata.get(_POSITIONAL))
            _add(parser, field.name, hints[field.name], text, default, positional=positional)
    return parser


def flags_of(options: type[Any]) -> Iterator[str]:
    """Yield the flags of a job's options."""
    for field in dataclasses.fields(options):
        names = [field.name] if _HELP in field.metadata else field.metadata.get(_GROUP, ())
        if not field.metadata.get(_POSITIONAL):
            yield from (_flag(name) for name in names)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add(
    parser: argparse.ArgumentParser,
    name: str,
    hint: Any,
    text: str,
    default: Any,
    *,
    positional: bool = False,
) -> None:
    required = default is dataclasses.MISSING
    kind, choices, several = _kind(hint)
    keywords: dict[str, Any] = {"help": text.replace("%", "%%")}
    if not required:
        keywords["default"] = default
    if kind is not bool:
        keywords |= {"type": kind, "choices": choices}
        if several:
            keywords["nargs"] = "+"
    if positional:
        if not required:
            keywords["nargs"] = "*" if several else "?"
        parser.add_argument(name, **keywords)
        return
    if kind is bool:
        parser.add_argument(_flag(name), action=argparse.BooleanOptionalAction, **keywords)
        return
    keywords["metavar"] = None if choices else getattr(kind, "__name__", "value").upper()
    parser.add_argument(_flag(name), required=required, **keywords)


def _kind(hint: Any) -> tuple[Callable[[str], Any], list[Any] | None, bool]:
    """Return the converter and the choices of a type hint, and whether it takes several values."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        return _kind(inner[0]) if len(inner) == 1 else (str, None, False)
    if origin is Literal:
        return type(args[0]), list(args), False
    if origin is tuple:
        kind, choices, _ = _kind(args[0])
        return kind, choices, True
    return _integer if hint is int else hint, None, False


def _integer(text: str) -> int:
    """Read an integer, also as `1_000_000` or `1e6`, as people write numbers of steps."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise
        return int(value)


_integer.__name__ = "int"


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parse(options: type[T], description: str, example: str, argv: Sequence[str] | None = None) -> T:
    """Return the options that the command line gives."""
    parser, words = parser_for(options, description, example), sys.argv[1:]
    for word in words if argv is None else argv:
        # argparse would give an empty list.
        if word.startswith("--") and word.endswith("=--"):
            parser.error(f"argument {word[:-3]}: expected a value")
    given = vars(parser.parse_args(argv))
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        group = field.metadata.get(_GROUP)
        if group is not None:
            values[field.name] = {name: values.pop(name) for name in group if name in values}
    return options(**values)


def run(
    main: Callable[[T], int | None],
    options: type[T],
    description: str | None,
    example: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Run a job and return its exit status; a user's mistake is printed as one line."""
    name = parser_for(options, description or "", example).prog
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name may not be valid text, and the terminal's encoding may lack a symbol.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        raise_on_interrupt()
        status = main(parse(options, description or "", example, argv))
        return 0 if status is None else status
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does; there is nowhere to print to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_MISTAKE
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", *_OUR_PACKAGES):
            raise
        extra = _EXTRAS.get(library, "train")
        print(
            f"{name}: {library} is not installed: pip install 'virtual-abacus[{extra}]'",
            file=sys.stderr,
        )
        return EXIT_MISTAKE
    except (ValueError, OSError, MemoryError, OverflowError) as error:
        print(f"{name}: {_one_line(error)}", file=sys.stderr)
        return EXIT_MISTAKE


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return _line(f"{error.strerror}{place}")
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return _line(f"not enough memory{detail}: give smaller sizes")
    if isinstance(error, OverflowError):
        return _line(f"a number is too large ({error}): give a smaller one")
    return _line(str(error)) or type(error).__name__


def _line(text: str) -> str:
    """Return a message as one line of bounded length."""
    text = " ".join(text.split())
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … {text[-half:]}"


@contextlib.contextmanager
def stdout_for(paths: Iterable[Path | None]) -> Iterator[None]:
    """Print to standard error inside if one of these files is standard output itself.

    So `--trace /dev/stdout` can be piped to a reader of JSON.
    """
    if {str(path) for path in paths} & {"/dev/stdout", "/dev/fd/1"}:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    else:
        yield


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError, RuntimeError):  # elsewhere, or a name that cannot be followed
        return str(path)

"""The command line of a job is a frozen dataclass: fields are flags, defaults and help beside them.

    @dataclass(frozen=True)
    class Options:
        seed: int = option(0, "seed of everything random")
        file: Path = argument("the file to read")

    def main(options: Options) -> int: ...

    if __name__ == "__main__":
        sys.exit(run(main, Options, __doc__, example="python -m pipelines.job data.h5 --seed 1"))

A mistake of the user's (ValueError, OSError) ends in one line that says what to do, never in a
traceback.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")

EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130
_HELP = "help"
_POSITIONAL = "positional"


def option(default: Any, help: str) -> Any:  # noqa: A002 - argparse's own word
    """A flag with its default and its help."""
    return dataclasses.field(default=default, metadata={_HELP: help})


def argument(help: str, default: Any = dataclasses.MISSING) -> Any:  # noqa: A002
    """A positional argument, optional if it has a default."""
    metadata = {_HELP: help, _POSITIONAL: True}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        """One line, without the usage that would push it out of sight."""
        self.exit(EXIT_MISTAKE, f"{self.prog}: {message} (--help shows the options)\n")


def parser_for(options: type[Any], description: str, example: str) -> argparse.ArgumentParser:
    """The parser of a job's options."""
    parser = _Parser(
        prog=example.split(" -m ")[-1].split()[0] if " -m " in example else None,
        description=description.strip(),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        if field.init and _HELP in field.metadata:
            _add(parser, field, hints[field.name])
    return parser


def _add(parser: argparse.ArgumentParser, field: dataclasses.Field[Any], hint: Any) -> None:
    required = field.default is dataclasses.MISSING
    text = field.metadata[_HELP].replace("%", "%%")
    if not required and field.default not in (None, "", ()) and field.default is not False:
        text += f" (default: {_shown(field.default)})"
    kind, choices, many = _kind(hint)
    settings: dict[str, Any] = {"help": text, "default": field.default}
    if kind is not bool:
        settings |= {"type": kind, "choices": choices}
        if many:
            settings["nargs"] = "+"
    if field.metadata.get(_POSITIONAL):
        nargs = {} if required else {"nargs": "*" if many else "?"}
        settings.pop("default") if required else None
        parser.add_argument(field.name, **(settings | nargs))
        return
    flag = "--" + field.name.replace("_", "-")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
        return
    settings["metavar"] = None if choices else getattr(kind, "__name__", "value").upper()
    parser.add_argument(flag, required=required, **settings)


def _kind(hint: Any) -> tuple[Callable[[str], Any], list[Any] | None, bool]:
    """(converter, choices, whether several are taken) of a type hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        if len(inner) == 1:
            return _kind(inner[0])
        return str, None, False
    if origin is Literal:
        return type(args[0]), list(args), False
    if origin is tuple:
        kind, choices, _ = _kind(args[0])
        return kind, choices, True
    if hint is int:
        return _integer, None, False
    return hint, None, False


def _integer(text: str) -> int:
    """An integer; `1_000_000` and `1e6` too, as people write numbers of steps."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if value != int(value):
            raise
        return int(value)


_integer.__name__ = "int"


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parse(options: type[T], description: str, example: str, argv: Sequence[str] | None = None) -> T:
    """The options that the command line gives."""
    values = vars(parser_for(options, description, example).parse_args(argv))
    return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def run(
    main: Callable[[T], int | None],
    options: type[T],
    description: str | None,
    example: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Runs a job; returns the exit status. The user's mistakes become one line."""
    name = parser_for(options, description or "", example).prog
    try:
        return main(parse(options, description or "", example, argv)) or 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `head` does: nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_MISTAKE
    except (ValueError, OSError) as error:
        print(f"{name}: {_one_line(error)}", file=sys.stderr)
        return EXIT_MISTAKE


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{place}"
    return " ".join(str(error).split()) or type(error).__name__


def shown_path(path: Path) -> str:
    """A path as one would type it from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)

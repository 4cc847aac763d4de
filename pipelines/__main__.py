"""One command for all jobs: `abacus NAME` where the package is installed.

`abacus play "12+34"` is the same as `python -m pipelines.play "12+34"`, but it finds the installed
package in any folder, one with a `pipelines/` of its own too. `abacus --help` lists the names, and
`abacus completion` prints a script with which bash and zsh complete names and flags.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from typing import Any

import pipelines
from pipelines.job.command_line import EXIT_MISTAKE, flags_of, run
from pipelines.job.interrupts import end_on_interrupt

#: Prints the script below, beside the jobs.
_COMPLETION = "completion"
_SCRIPT = """\
[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_abacus() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" = 1 ]; then
    words="{names}"
  elif [ "${{word#-}}" != "$word" ]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _abacus abacus"""


def main() -> int:
    """Run the job that the first word of the command line names."""
    end_on_interrupt()
    word = sys.argv[1] if sys.argv[1:] else ""
    name = word.replace("-", "_")
    if name in command_names():
        job = _job(name)
        # Jobs store their command line without the program's name.
        sys.argv = [f"abacus {word}", *sys.argv[2:]]
        example = job.EXAMPLE.replace(f"python -m pipelines.{name}", f"abacus {word}")
        return run(job.main, job.Options, job.__doc__, example)
    if word == _COMPLETION:
        print(_completion())
    elif word == "--version":
        print(f"virtual-abacus {_version()}")
    elif word in ("", "-h", "--help"):
        print(_help())
    else:
        known = ", ".join(map(_word, command_names()))
        print(f"abacus: {word[:80]!r} is no command: give one of {known}", file=sys.stderr)
        return EXIT_MISTAKE
    return 0


def command_names() -> list[str]:
    """Return the modules of the jobs."""
    modules = pkgutil.iter_modules(pipelines.__path__)
    return sorted(each.name for each in modules if not each.ispkg and each.name[0] != "_")


def _word(name: str) -> str:
    return name.replace("_", "-")


def _job(name: str) -> Any:
    return import_module(f"pipelines.{name}")


def _version() -> str:
    from abacus import __version__

    return __version__


def _help() -> str:
    purposes = {_word(name): _job(name).__doc__.partition("\n")[0] for name in command_names()}
    purposes[_COMPLETION] = 'Print a script for the shell: eval "$(abacus completion)"'
    width = max(map(len, purposes))
    lines = (f"  {name:<{width}}  {purpose}" for name, purpose in purposes.items())
    return "\n".join(["usage: abacus NAME [options]; abacus NAME --help shows them", "", *lines])


def _completion() -> str:
    names = " ".join([*map(_word, command_names()), _COMPLETION, "--help", "--version"])
    flags = {_word(name): " ".join(flags_of(_job(name).Options)) for name in command_names()}
    cases = (f'      {name}) words="{words}" ;;' for name, words in flags.items())
    return _SCRIPT.format(names=names, cases="\n".join(cases))


if __name__ == "__main__":
    sys.exit(main())

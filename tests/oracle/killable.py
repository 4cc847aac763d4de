"""Recordings to be killed: a process that is warm forks one for each line that it is given.

A fresh interpreter would spend most of its life importing and compiling, and most kills would
meet it there. Each line of the input is a JSON object: `recipe`, `path`, the settings of `record`,
and `kill_after`, seconds or null. The answer to a line is the child's exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from oracle.demos import Demonstrations, Recipe, record
from oracle.demos.record import warm_up


def main() -> None:
    warm_up(Recipe(operations=1))
    print("ready", flush=True)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        kill_after = order.pop("kill_after")
        child = os.fork()
        if child == 0:
            recipe = Recipe.from_dict(order.pop("recipe"))
            report = record(recipe, **order)
            Demonstrations.open(report.path)
            os._exit(0)
        if kill_after is not None:
            time.sleep(kill_after)
            # Until it is waited for, the number is that of this child, ended or not.
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()

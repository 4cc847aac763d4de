"""A process that has compiled everything and forks a recording, to be killed, for each order.

A fresh interpreter would spend most of its time importing and compiling, and most kills would hit
it there. An order is a line of JSON: `recipe`, `path`, the settings of `record_demonstrations`,
`kill_at_shards`, the number of finished shards to wait for or null, and `kill_after`, the seconds
to wait then, or null for no kill. The answer to an order is the child's exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from oracle.demos import Demonstrations, Recipe, record_demonstrations
from oracle.demos.shards import warm_up


def main() -> None:
    warm_up(Recipe(operations=1))
    print("ready", flush=True)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        kill_at_shards, kill_after = order.pop("kill_at_shards"), order.pop("kill_after")
        child = os.fork()
        if child == 0:
            recipe = Recipe.from_dict(order.pop("recipe"))
            file = record_demonstrations(recipe, **order)
            Demonstrations.open(file.path)
            os._exit(0)
        if kill_after is not None:
            if kill_at_shards is not None:
                wait_for_shards(Path(order["path"]), kill_at_shards, child)
            time.sleep(kill_after)
            # Until the child is waited for, no other process gets its id.
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def finished_shards(path: Path) -> int:
    """Count the shards of an unfinished recording; the folder may vanish meanwhile."""
    try:
        return sum(
            entry.suffix == ".h5" for entry in path.with_name(f"{path.name}.shards").iterdir()
        )
    except FileNotFoundError:
        return 0


def wait_for_shards(path: Path, count: int, child: int) -> None:
    """Wait until `count` shards, or the recording, are finished."""
    while finished_shards(path) < count:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return


if __name__ == "__main__":
    main()

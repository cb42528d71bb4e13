"""Ends a process by SIGKILL at a moment that is drawn over the changes that it makes to its folder.

Most of a command's seconds are imports; moments drawn over seconds would mostly hit those.
"""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

from benchmarks.torture.commands import Result, called, ended

_LOOK = 0.002
"""Seconds between two looks at the folder."""
_LONGEST = 0.03
"""Longest pause after a change, in seconds: about what a commit of a small batch takes."""
_START = 3.0
"""Seconds of a command's start over which kills before its first change are drawn."""

Listing = frozenset[tuple[str, int, int]]


def listing(folder: Path) -> Listing:
    """Every file below a folder, with its size and time of change."""
    found = []
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        state = entry.stat(follow_symlinks=False)
                        found.append((entry.path, state.st_size, state.st_mtime_ns))
        # what the command removes while it is looked at
        except FileNotFoundError:
            pass
    return frozenset(found)


def counted(folder: Path, *command: object) -> tuple[Result, int]:
    """Call a command, and count the changes of its folder that can be seen meanwhile."""
    changes, done = 0, threading.Event()

    def watch() -> None:
        nonlocal changes
        seen = listing(folder)
        while not done.wait(_LOOK):
            now = listing(folder)
            changes += now != seen
            seen = now

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    result = called(*command)
    done.set()
    watching.join()
    return result, changes


def killed(process: "subprocess.Popen[str]", folder: Path, changes: int, rng: random.Random) -> Result | None:
    """Kill a process at a moment drawn over so many changes of its folder; its result if it ended before."""
    wanted = rng.randint(0, changes)
    pause = rng.uniform(0, _LONGEST if wanted else _START)
    seen = listing(folder)
    while wanted and process.poll() is None:
        now = listing(folder)
        wanted -= now != seen
        seen = now
        time.sleep(_LOOK)
    time.sleep(pause)
    if process.poll() is not None:
        return ended(process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return None

"""A server of the command, in a process of its own."""

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.forked import run_python, started

TIMEOUT = 120.0


class Served:
    """The process, its address, and all that it writes."""

    def __init__(self, process: BaseProcess, url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def hang_up(self, message: str, times: int = 1) -> None:
        """Send SIGHUP, and wait until the log has a message so many times."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGHUP)
        until = time.monotonic() + TIMEOUT
        while self.log.read_text().count(message) < times:
            assert self.process.is_alive(), self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)


@contextmanager
def served(
    folder: Path, *arguments: object, environment: Mapping[str, str] | None = None, status: int = 0
) -> Iterator[Served]:
    """A server that runs within the block; `folder` is for its log. It must end with a status."""
    log = folder / "log"
    log.write_text("")
    command = ("-m", "limner", "serve", *map(str, arguments))
    process = started(run_python, command, log, environment=dict(environment or {}))
    try:
        until = time.monotonic() + TIMEOUT
        while not (found := re.search(r"(http://\S+/|unix:/\S+)\s", log.read_text())):
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield Served(process, found[1], log)
        process.terminate()
        process.join(TIMEOUT)
        assert process.exitcode == status, log.read_text()
    finally:
        process.kill()

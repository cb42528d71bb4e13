"""A server of the command, in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TIMEOUT = 120.0


class Served:
    """The process, its address, and its log."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def hang_up(self, message: str, times: int = 1) -> None:
        """Send SIGHUP, and wait until the log has a message so many times."""
        self.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + TIMEOUT
        while self.log.read_text().count(message) < times:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)


@contextmanager
def served(
    folder: Path, *arguments: object, environment: Mapping[str, str] | None = None, status: int = 0
) -> Iterator[Served]:
    """A server that runs within the block; `folder` is for its log. It must end with a status."""
    command = [sys.executable, "-m", "limner", "serve", *map(str, arguments)]
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+/|unix:/\S+", process.stdout.readline())
            assert found, log.read_text()
            yield Served(process, found[0], log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == status, log.read_text()
        finally:
            process.kill()

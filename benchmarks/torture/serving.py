"""`limner serve` as a process of its own, and what the system says of it."""

import io
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.torture.commands import called, has_command, started
from benchmarks.torture.outcome import Outcome

LONGEST_STOP = 60.0
"""Seconds within which a server must have ended after SIGTERM; its own grace is twelve."""


@dataclass(frozen=True)
class Server:
    """A running server: its process, its address, and the folder of its uploads."""

    process: "subprocess.Popen[str]"
    url: str
    uploads: Path

    def resident(self) -> int:
        """Bytes of resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Number of open files and sockets."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - a path that changes meanwhile

    def threads(self) -> int:
        """Number of threads."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))  # noqa: PTH208

    def stop(self, outcome: Outcome, when: str) -> None:
        """Send SIGTERM, and expect exit code 0 without a word."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.wait(outcome, when)
        outcome.count("seconds of stopping", round(time.monotonic() - began))

    def wait(self, outcome: Outcome, when: str) -> None:
        """Wait for the end after a signal."""
        try:
            _, err = self.process.communicate(timeout=LONGEST_STOP)
        except subprocess.TimeoutExpired:
            outcome.find(f"{when}: the server has not ended {LONGEST_STOP:g} s after SIGTERM")
            return
        code = self.process.returncode
        outcome.expect(code == 0 and not err, f"{when}: the server ended with {code}: {err[-250:]}")


@contextmanager
def serving(store: Path, uploads: Path, *options: object, **start: Any) -> Iterator[Server]:
    """Serve a store to clients that may add and delete, without a limit of requests a second.

    `start` are arguments of `commands.started`.
    """
    process = started(
        *("serve", store, "--port", 0, "--cpu", "--json", "--rate", 0),
        *("--allow-changes", "--uploads", uploads, *options),
        **start,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {process.communicate()[1][-500:]}")
        yield Server(process, json.loads(line)["url"], uploads)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def picture(rng: random.Random) -> bytes:
    """The bytes of a small PNG that no other call returns."""
    written = io.BytesIO()
    Image.frombytes("RGB", (24, 24), rng.randbytes(24 * 24 * 3)).save(written, "PNG")
    return written.getvalue()


def expect_audit(audit: Path, outcome: Outcome, when: str) -> None:
    """The audit log is whole, where this limner can check it."""
    if has_command("audit", "verify"):
        checked = called("audit", "verify", audit)
        outcome.expect(checked.code == 0, f"{when}: {checked}")
        outcome.count("audit logs checked")

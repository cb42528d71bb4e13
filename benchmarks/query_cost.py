"""The cost of a query on a server of your own: seconds of encoding, searching and decoding, and queries a second.

    limner serve STORE --uds measure.sock --rate 0 &
    python benchmarks/query_cost.py unix:$PWD/measure.sock --queries queries.txt

Clients of this process ask over HTTP, each as soon as it has its answer. The seconds of the stages are the server's
own (`limner_stage_seconds` of /metrics), divided by the queries that were answered. The answer for a machine to come:
it holds as many queries a second as the row of the most clients says, on cores like these.
"""

import argparse
import itertools
import os
import re
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from limner.client import Client
from limner.errors import LimnerError, SettingsError
from limner.inference.provenance import processor

_SAMPLE = re.compile(r'^limner_stage_seconds_sum\{stage="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass
class Seen:
    """The answers that so many clients got within a time: the seconds that each took, and those of the stages."""

    clients: int
    took: float
    seconds: list[float]
    stages: dict[str, float]

    @property
    def per_second(self) -> float:
        """Queries that were answered in a second."""
        return len(self.seconds) / self.took

    def row(self) -> str:
        """A line of the table; milliseconds."""
        each = {name: 1000 * value / len(self.seconds) for name, value in self.stages.items()}
        stages = "".join(f"{each.get(name, 0.0):9.2f}" for name in ("encode", "search", "rerank", "decode"))
        p50, p99 = (1000 * value for value in _percentiles(self.seconds))
        return f"{self.clients:8}{self.per_second:10.1f}{p50:9.1f}{p99:9.1f}{stages}"


HEAD = f"{'clients':>8}{'queries/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'encode':>9}{'search':>9}{'rerank':>9}{'decode':>9}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("url", help="of a server with --rate 0; unix:/FILE for a socket file")
    parser.add_argument("--token-file", type=Path, help="file of a token with the right search")
    parser.add_argument(
        "--queries", type=Path, help="descriptions, one a line; else the store's own examples"
    )
    parser.add_argument("--pictures", type=Path, nargs="*", default=[], help="search by these files, too")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32], help="numbers of clients")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each number")
    given = parser.parse_args()
    token = None if given.token_file is None else given.token_file.read_text().strip()
    try:
        with Client(given.url, token) as client:
            info = client.info()
            asked = _asked(given.queries, given.pictures, info.examples)
            print(f"{info.pictures:,} pictures, model {info.model.system}, {len(asked)} queries")
        print(f"{os.cpu_count()} cores of {processor()}")
        print(HEAD)
        for clients in given.clients:
            print(measured(given.url, token, asked, clients, given.seconds).row(), flush=True)
    except LimnerError as error:
        sys.exit(str(error))


def measured(url: str, token: str | None, asked: list[str | Path], clients: int, seconds: float) -> Seen:
    """Let so many clients ask for so long. Raises `ServerError` for a query that is refused."""
    times: list[float] = []
    faults: list[Exception] = []
    line = itertools.cycle(asked)
    with ExitStack() as open_ones:
        # before the clock runs: each of them reads the certificates of this machine
        ready = [open_ones.enter_context(Client(url, token)) for _ in range(clients)]
        for client in ready:
            _search(client, next(line))
        before, begun = _stages(ready[0]), time.perf_counter()

        def ask(client: Client) -> None:
            while time.perf_counter() - begun < seconds and not faults:
                started = time.perf_counter()
                try:
                    _search(client, next(line))
                except LimnerError as error:
                    faults.append(error)
                    return
                times.append(time.perf_counter() - started)

        threads = [threading.Thread(target=ask, args=(client,)) for client in ready]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        took, after = time.perf_counter() - begun, _stages(ready[0])
    if faults:
        raise faults[0]
    return Seen(clients, took, times, {name: after[name] - before.get(name, 0.0) for name in after})


def _search(client: Client, asked: str | Path) -> None:
    if isinstance(asked, Path):
        client.search(image=asked)
    else:
        client.search(asked)


def _stages(client: Client) -> dict[str, float]:
    # the client has no call for it, since it is Prometheus's
    http: httpx.Client = client._http
    return {name: float(value) for name, value in _SAMPLE.findall(http.get("/metrics").text)}


def _asked(file: Path | None, pictures: list[Path], examples: tuple[str, ...]) -> list[str | Path]:
    texts = (
        examples if file is None else [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    )
    asked: list[str | Path] = [*(text for text in texts if text), *pictures]
    if not asked:
        raise SettingsError("the store has no sentences to ask for: name a file of descriptions as --queries")
    return asked


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    return statistics.median(seconds), statistics.quantiles(seconds, n=100, method="inclusive")[98]


if __name__ == "__main__":
    main()

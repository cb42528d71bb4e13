"""The search server under load: 64 clients on the same machine, each sending its next query when it has an answer.

    python -m benchmarks.server_load [--text small paper] [--store STORE] [--clients 64]

Claims (docs/server.md), on two cores that the clients share: with a small text path at least 260 queries a second, the
slowest hundredth takes at most three times the median, and no request fails. Two servers, each a process of its own,
take turns: one answers up to 64 queries at once, the other each by itself. The clients are one process that writes and
reads plain HTTP, takes gzip and parses each answer; `client_ms` is its processor time.

Without a store, a network searches 10,000 random vectors: "small" has the text path and the width of
`dual-path-people`, "paper" those of the paper. With `--store STORE`, that store's model searches its pictures. Queries
are of eight words that the model knows.
"""

import argparse
import asyncio
import gzip
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from benchmarks.measuring import publish, sized
from limner.data.tokenizers import WordTokenizer
from limner.data.transforms import ImageSettings
from limner.inference.encoding import Encoding
from limner.inference.trained import TrainedModel
from limner.models.dual_path import DualPathSettings
from limner.models.image import BackboneSettings
from limner.models.registry import build_network
from limner.models.text_cnn import TextCNNSettings
from limner.search.engine import Engine
from limner.search.store import Store, open_store
from limner.server.app import create_app
from limner.server.connections import Server
from limner.server.listening import listen, url_of
from limner.server.settings import ServerSettings
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles

PICTURES, WORDS, KNOWN, K = 10_000, 8, 5_000, 10
SETTINGS: dict[str, dict[str, Any]] = {
    "small": {"text": TextCNNSettings(words=40, word_dim=128, width=0.25), "dim": 256},
    "paper": {},
}
"""Networks by their text path; of each it alone has work to do."""
ALONE, TOGETHER = "each query by itself", "limner, up to 64 together"


@dataclass
class Turn:
    """What the clients saw in one turn, and the processor's seconds that it cost the server and the clients."""

    seconds: list[float]
    errors: int
    took: float
    cpu: float
    client: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="text paths")
    parser.add_argument("--store", type=Path, help="a store instead of random vectors")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=sized(10.0, 1.0), help="of a turn")
    parser.add_argument("--turns", type=int, default=sized(3, 1), help="of each server")
    parser.add_argument("--name", default="server_load", help="of the file of results")
    given = parser.parse_args()
    groups: dict[str, dict[str, dict[str, float]]] = {}
    seen: dict[str, dict[str, dict[str, float]]] = {}
    for text in [None] if given.store else given.text:
        label, turns = _turns(text, given)
        rates = {
            name: statistics.median(len(turn.seconds) / turn.took for turn in of_one)
            for name, of_one in turns.items()
        }
        groups[label] = {
            name: {"per_second": rate, "ratio": rate / rates[ALONE]} for name, rate in rates.items()
        }
        seen[label] = {name: _seen(of_one) for name, of_one in turns.items()}
        for name, values in seen[label].items():
            print(label, name, *(f"{key} {value:,}" for key, value in values.items()), sep="  ", flush=True)
    publish(
        given.name,
        unit="queries",
        groups=groups,
        about={
            "reference": ALONE,
            "turns": given.turns,
            "seconds": given.seconds,
            "store": "given" if given.store else "random",
            "seen": seen,
        },
    )


def _turns(text: str | None, given: argparse.Namespace) -> tuple[str, dict[str, list[Turn]]]:
    """Let the clients ask both servers in turns, after one turn each that does not count."""
    with TemporaryDirectory() as folder, ExitStack() as servers:
        store = _random_store(Path(folder) / "store", text) if text else given.store
        opened = _opened(store, text)
        assert isinstance(opened.engine.encoder, TrainedModel)
        vocabulary, pictures = tuple(opened.engine.encoder.tokenizer.entries), len(opened)
        urls = {
            name: servers.enter_context(_server(store, text, most))
            for name, most in ((ALONE, 1), (TOGETHER, 64))
        }
        turns: dict[str, list[Turn]] = {name: [] for name in urls}
        for turn in range(given.turns + 1):
            for name, url in urls.items():
                one = asyncio.run(_load(url, vocabulary, given.clients, given.seconds, seed=turn))
                if turn:
                    turns[name].append(one)
    path = f", {text} text path" if text else ""
    return f"{given.clients} clients, {pictures:,} pictures{path}", turns


def _seen(turns: list[Turn]) -> dict[str, float]:
    requests = sum(len(turn.seconds) for turn in turns)
    p50, p99 = np.percentile([1000 * one for turn in turns for one in turn.seconds], [50, 99])
    return {
        "requests": requests,
        "errors": sum(turn.errors for turn in turns),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "p99_by_p50": round(float(p99 / p50), 2),
        "cpu_ms": round(1000 * sum(turn.cpu for turn in turns) / requests, 2),
        "client_ms": round(1000 * sum(turn.client for turn in turns) / requests, 2),
        # the rest of two cores was other programs', or nobody's
        "cores": round(sum(turn.cpu + turn.client for turn in turns) / sum(turn.took for turn in turns), 2),
    }


async def _load(url: str, vocabulary: tuple[str, ...], clients: int, seconds: float, *, seed: int) -> Turn:
    rng = np.random.default_rng(seed)
    ends = time.perf_counter() + seconds
    times: list[float] = []
    errors = 0

    async def one() -> None:
        nonlocal errors
        client = await _Client.connected(url)
        while time.perf_counter() < ends:
            text = " ".join(vocabulary[place] for place in rng.integers(0, len(vocabulary), WORDS))
            began = time.perf_counter()
            try:
                status, body = await client.ask(
                    "POST", "/v1/search", json.dumps({"text": text, "k": K}).encode()
                )
                good = status == 200 and len(json.loads(body)["hits"]) == K
            except (OSError, EOFError):
                good, client = False, await _Client.connected(url)
            times.append(time.perf_counter() - began)
            errors += not good
        client.writer.close()

    before, began, own = await _cpu(url), time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(clients)))
    took, own = time.perf_counter() - began, time.process_time() - own
    return Turn(times, errors, took, await _cpu(url) - before, own)


@dataclass
class _Client:
    """A connection that asks one request after the other; httpx takes 2 to 10 ms of the processor for each."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connected(cls, url: str) -> "_Client":
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self.writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        answer = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("content-encoding") == "gzip":
            answer = gzip.decompress(answer)
        return int(head.split(" ", 2)[1]), answer


async def _cpu(url: str) -> float:
    """The processor's seconds that the server has used."""
    client = await _Client.connected(url)
    _, body = await client.ask("GET", "/metrics")
    client.writer.close()
    lines = body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total "))


@contextmanager
def _server(store: Path, text: str | None, most: int) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(store, text, most, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve(store: Path, text: str | None, most: int, tell: Connection) -> None:
    settings = ServerSettings(rate=0, max_batch=most)
    server = Server(create_app(_opened(store, text), settings), settings)
    with listen("127.0.0.1", 0) as listening:
        tell.send(url_of(listening))
        server.run(sockets=[listening])


def _opened(store: Path, text: str | None) -> Store:
    return Store(Engine(StoreFiles.open(store), _random_run(text))) if text else open_store(store)


def _random_run(text: str) -> TrainedModel:
    """A network of which only the text path has work to do."""
    torch.manual_seed(0)
    settings = DualPathSettings(backbone=BackboneSettings(name="resnet-18", width=0.125), **SETTINGS[text])
    model = build_network(settings, KNOWN).eval()
    description = {"model": settings.model_dump(mode="json"), "recipe": {}}
    vocabulary = WordTokenizer(tuple(f"word{number}" for number in range(KNOWN)))
    return TrainedModel(Path("random"), description, model, vocabulary, ImageSettings(), Encoding(model))


def _random_store(folder: Path, text: str) -> Path:
    run = _random_run(text)
    store = StoreFiles.create(folder, fingerprint=run.fingerprint, dim=run.dim, run="random")
    rows = np.random.default_rng(0).standard_normal((PICTURES, run.dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    names = [f"/pictures/{number:05}.jpg" for number in range(PICTURES)]
    store.add([StoredImage(name, "0" * 64, 1, 1, metadata={"camera": 1}) for name in names], rows)
    return folder


if __name__ == "__main__":
    main()

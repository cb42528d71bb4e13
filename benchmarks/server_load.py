"""The search server under load: 64 clients on the same machine, each sending its next query when it has an answer.

The claims (docs/server.md): no request fails, and queries that are answered together are answered faster than one by
one. Two servers, each a process of its own, take turns: one answers up to 64 queries at once, the other each by itself.
The clients are one process that asks over HTTP (httpx).

Without a store, a network with the paper's text path searches 10,000 random vectors. With
`--store STORE`, that store's model searches its pictures, for sentences of eight words that it knows.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
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
from limner.search.engine import Engine
from limner.search.entry import StoredImage
from limner.search.store import Store, open_store
from limner.search.store_files import StoreFiles
from limner.server.app import create_app
from limner.server.connections import Server
from limner.server.listening import listen, url_of
from limner.server.settings import ServerSettings

PICTURES, WORDS, KNOWN, K = 10_000, 8, 5_000, 10
ALONE, TOGETHER = "each query by itself", "limner, up to 64 together"


@dataclass
class Turn:
    """What the clients saw in one turn, and the processor's seconds that it cost the server."""

    seconds: list[float]
    errors: int
    took: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, help="a store instead of random vectors")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=sized(10.0, 1.0), help="of a turn")
    parser.add_argument("--turns", type=int, default=sized(3, 1), help="of each server")
    given = parser.parse_args()
    with TemporaryDirectory() as folder, ExitStack() as servers:
        store = given.store or _random_store(Path(folder) / "store")
        opened = _opened(store, own=given.store is None)
        assert isinstance(opened.engine.encoder, TrainedModel)
        vocabulary, pictures = tuple(opened.engine.encoder.tokenizer.entries), len(opened)
        urls = {
            name: servers.enter_context(_server(store, given.store is None, most))
            for name, most in ((ALONE, 1), (TOGETHER, 64))
        }
        turns: dict[str, list[Turn]] = {name: [] for name in urls}
        for turn in range(given.turns + 1):
            for name, url in urls.items():
                seen = asyncio.run(_load(url, tuple(vocabulary), given.clients, given.seconds, seed=turn))
                if turn:
                    turns[name].append(seen)
    rates = {
        name: statistics.median(len(turn.seconds) / turn.took for turn in of_one)
        for name, of_one in turns.items()
    }
    about = {
        name: {
            "requests": sum(len(turn.seconds) for turn in of_one),
            "errors": sum(turn.errors for turn in of_one),
            "p50_ms": _percentile(of_one, 50),
            "p99_ms": _percentile(of_one, 99),
            "cpu_ms": round(
                1000 * sum(turn.cpu for turn in of_one) / sum(len(turn.seconds) for turn in of_one), 1
            ),
        }
        for name, of_one in turns.items()
    }
    for name, values in about.items():
        print(name, *(f"{key} {value:,}" for key, value in values.items()), sep="  ")
    publish(
        "server_load",
        unit="queries",
        groups={
            f"{given.clients} clients, {pictures:,} pictures": {
                name: {"per_second": rate, "ratio": rate / rates[ALONE]} for name, rate in rates.items()
            }
        },
        about={
            "reference": ALONE,
            "turns": given.turns,
            "seconds": given.seconds,
            "store": "given" if given.store else "random",
            "seen": about,
        },
    )


def _percentile(turns: list[Turn], share: float) -> float:
    return round(1000 * float(np.percentile([one for turn in turns for one in turn.seconds], share)), 1)


async def _load(url: str, vocabulary: tuple[str, ...], clients: int, seconds: float, *, seed: int) -> Turn:
    rng = np.random.default_rng(seed)
    ends = time.perf_counter() + seconds
    times: list[float] = []
    errors = 0

    async def one(http: httpx.AsyncClient) -> None:
        nonlocal errors
        while time.perf_counter() < ends:
            text = " ".join(rng.choice(vocabulary, WORDS).tolist())
            began = time.perf_counter()
            try:
                answer = await http.post("/v1/search", json={"text": text, "k": K})
                good = answer.status_code == 200 and len(answer.json()["hits"]) == K
            except httpx.HTTPError:
                good = False
            times.append(time.perf_counter() - began)
            errors += not good

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        before, began = await _cpu(http), time.perf_counter()
        await asyncio.gather(*(one(http) for _ in range(clients)))
        return Turn(times, errors, time.perf_counter() - began, await _cpu(http) - before)


async def _cpu(http: httpx.AsyncClient) -> float:
    """The processor's seconds that the server has used."""
    lines = (await http.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total "))


@contextmanager
def _server(store: Path, own: bool, most: int) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(store, own, most, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve(store: Path, own: bool, most: int, tell: Connection) -> None:
    settings = ServerSettings(rate=0, max_batch=most)
    server = Server(create_app(_opened(store, own=own), settings), settings)
    with listen("127.0.0.1", 0) as listening:
        tell.send(url_of(listening))
        server.run(sockets=[listening])


def _opened(store: Path, *, own: bool) -> Store:
    return Store(Engine(StoreFiles.open(store), _random_run())) if own else open_store(store)


def _random_run() -> TrainedModel:
    """A network of which only the text path, which has the paper's widths, has work to do."""
    torch.manual_seed(0)
    settings = DualPathSettings(backbone=BackboneSettings(name="resnet-18", width=0.125))
    model = build_network(settings, KNOWN).eval()
    description = {"model": settings.model_dump(mode="json"), "recipe": {}}
    vocabulary = WordTokenizer(tuple(f"word{number}" for number in range(KNOWN)))
    return TrainedModel(Path("random"), description, model, vocabulary, ImageSettings(), Encoding(model))


def _random_store(folder: Path) -> Path:
    run = _random_run()
    store = StoreFiles.create(folder, fingerprint=run.fingerprint, dim=run.dim, run="random")
    rows = np.random.default_rng(0).standard_normal((PICTURES, run.dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    names = [f"/pictures/{number:05}.jpg" for number in range(PICTURES)]
    store.add([StoredImage(name, "0" * 64, 1, 1, metadata={"camera": 1}) for name in names], rows)
    return folder


if __name__ == "__main__":
    main()

"""Two servers over one store on an S3 storage, while one writer changes it, and the model is changed under load.

    python -m benchmarks.rolling_servers --moto VENV/bin/moto_server

Claims (docs/team.md): no request fails while the servers change one after the other to a store of another model; no
answer has scores of two models; an answer to a request that began after a commit shows it; and a server that is killed
loses the requests that it had begun and no other.

The storage is moto's S3 server on this machine, which needs an environment of its own (`pip install 'moto[server]'`):
its botocore is not that of s3fs. Toys are drawn and learnt, twice, by a network that finds little; each has its own
scores, by which an answer tells its model. A balancer in this process asks `/readyz` twice a second, hands requests to
the servers that are ready in turn, and tries the next one where a connection is refused, as nginx does.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from benchmarks.balancer import Balancer, Place, Seen
from benchmarks.measuring import cannot_run, sized, write
from benchmarks.small_run import limner
from limner.store.entry import key_of

TEXTS = (
    "a red square on white",
    "a blue circle on black",
    "on grey ground, a bar in green",
    "a yellow circle",
)
VIEWS, STAYING = 4, 3
"""Pictures drawn of each of 36 toys, and those of them that the writer leaves alone."""
K = 20
NEAR = 1e-4
"""Difference of two scores of one model: a sentence is encoded beside others."""
CLIENTS = 3
PAUSE = 0.2
"""Seconds that a client waits on average before its next request: moto answers some hundred requests a second."""
SERVING = ("--rate", 0, "--probe-interval", 1, "--drain-seconds", 2)
"""Flags of the servers; one that stops goes on for longer than the balancer needs to see it."""
SECONDS = sized(10.0, 1.0)
"""Seconds of load between two changes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--moto", type=Path, required=True, help="moto_server of an environment that has moto"
    )
    given = parser.parse_args()
    # else what was started would go on
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not given.moto.exists():
        cannot_run(f"{given.moto} is not there; pip install 'moto[server]' into an environment of its own")
    with tempfile.TemporaryDirectory() as folder, _storage(given.moto, Path(folder) / "s3.log"):
        run = Run(Path(folder))
        run.prepare()
        try:
            asyncio.run(run.under_load())
        finally:
            run.end()
        run.count_requests()
        run.publish()


class Run:
    """The stores, the servers, the writer and the clients of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = Seen()
        self.places = [Place(_free_port()) for _ in range(2)]
        self.runs = {name: folder / f"run-{name}" for name in ("v1", "v2")}
        self.stores = {name: f"s3://limner/{name}" for name in self.runs}
        self.scores: dict[str, dict[str, dict[str, float]]] = {}
        self.seconds: dict[str, float] = {}
        self.requests: dict[str, dict[str, int]] = {}
        self.writer: Writer | None = None
        self.begun_at_kill = self.differ = 0

    def prepare(self) -> None:
        """Draw and learn, know each score of both models, and put the first store on the storage."""
        import limner as library
        from limner.data.readers import open_dataset
        from limner.training.loop import train
        from tests.toy import draw_toys, toy_recipe

        pictures = draw_toys(self.folder / "pictures", views=VIEWS)
        drawn = sorted(pictures.glob("*.png"))
        staying = [path for path in drawn if int(path.stem.split("-")[1]) < STAYING]
        self.staying = {path.name for path in staying}
        self.others = [path for path in drawn if path.name not in self.staying]
        data = open_dataset(f"folder:{pictures}")
        for seed, (name, run) in enumerate(self.runs.items()):
            train(toy_recipe().replace(seed=seed), data.split("train"), data.split("val"), run, cpu=True)
            library.index(run, self.folder / name, drawn)
            store = library.open_store(self.folder / name)
            self.scores[name] = {
                text: {hit.name: hit.score for hit in store.search(text, k=len(drawn))} for text in TEXTS
            }
        self._limner("index", self.runs["v1"], self.stores["v1"], *staying, "--cpu")

    async def under_load(self) -> None:
        """Change the model, kill a server, and count what the clients see of it."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
            self.client, self.balancer = client, Balancer(self.places, client, self.seen)
            watching = asyncio.create_task(self.balancer.watch())
            for place in self.places:
                await self._start(place, "v1")
            self.ends = False
            clients = [asyncio.create_task(self._search(seed)) for seed in range(CLIENTS)]
            await self._write("v1")
            await asyncio.sleep(SECONDS)
            await self._timed("reindex while the writer goes on", self._reindex())
            await self._stop_writing()
            await self._timed("reindex once more, the writer stopped", self._reindex("--delete"))
            self.differ = await asyncio.to_thread(self._differences)
            await self._write("v2")
            for number, place in enumerate(self.places):
                await self._timed(f"server {number + 1} to the new model", self._change(place, "v2"))
                await asyncio.sleep(SECONDS / 2)
            await asyncio.sleep(SECONDS / 2)
            await self._kill(self.places[1])
            await asyncio.sleep(SECONDS / 2)
            await self._stop_writing()
            self.ends = True
            await asyncio.gather(*clients)
            watching.cancel()

    async def _start(self, place: Place, name: str) -> None:
        place.process = subprocess.Popen(
            limner("serve", self.stores[name], "--cpu", "--port", place.port, *SERVING),
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"server-{place.port}.log").open("ab"),
        )
        place.model = name
        until = time.monotonic() + 120
        while not place.ready:
            if place.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"a server did not start:\n{self._log(place)}")
            await asyncio.sleep(0.1)

    async def _change(self, place: Place, name: str) -> None:
        assert place.process is not None
        place.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(place.process.wait, 60)
        if code:
            raise SystemExit(f"a server ended with {code}:\n{self._log(place)}")
        # the balancer has seen that it stops, or it would not have ended yet
        place.ready = False
        await self._start(place, name)

    async def _kill(self, place: Place) -> None:
        assert place.process is not None
        # in the middle of some request, if there is one within two seconds
        until = time.monotonic() + 2
        while not place.begun and time.monotonic() < until:
            await asyncio.sleep(0)
        self.begun_at_kill, place.killed_at = place.begun, time.monotonic()
        place.gone_at = float("inf")
        place.process.kill()
        await asyncio.to_thread(place.process.wait)
        place.gone_at = time.monotonic()
        await asyncio.sleep(SECONDS / 2)
        place.ready = False
        await self._timed("a new server in place of the killed one", self._start(place, place.model))

    async def _search(self, seed: int) -> None:
        draws = random.Random(seed)
        while not self.ends:
            text = draws.choice(TEXTS)
            began = time.monotonic()
            found = await self.balancer.ask("POST", "/v1/search", {"text": text, "k": K})
            if found is not None and self._is_good(*found, "search"):
                self.seen.milliseconds.append(1000 * (time.monotonic() - began))
                hits = found[1].json()["hits"]
                self._judge(found[0], text, hits)
                one = draws.choice(hits)
                if one["name"] in self.staying:
                    small = await self.balancer.ask("GET", f"/v1/thumbnails/{one['id']}")
                    if small is not None:
                        self._is_good(*small, "thumbnail")
            await asyncio.sleep(draws.uniform(0, 2 * PAUSE))

    def _is_good(self, place: Place, answer: httpx.Response, what: str) -> bool:
        self.seen.answers[f"{what}, {place.model}"] += 1
        if answer.status_code != 200:
            self.seen.failed.append(f"{answer.status_code} {what} at {place.model}: {answer.text[:200]}")
        return answer.status_code == 200

    def _judge(self, place: Place, text: str, hits: list[dict[str, Any]]) -> None:
        """Compare an answer with what the models say: all of it is of one, and no picture that stays is missing."""
        fits = {
            name: all(abs(scores[text][hit["name"]] - hit["score"]) < NEAR for hit in hits)
            for name, scores in self.scores.items()
        }
        if not fits[place.model] or sum(fits.values()) != 1:
            self.seen.mixed.append(f"{text}: {fits} at {place.model}")
        scores = self.scores[place.model][text]
        lowest = min(hit["score"] for hit in hits)
        found = {hit["name"] for hit in hits}
        missing = [name for name in self.staying - found if scores[name] > lowest + NEAR]
        if missing or len(hits) != K or len(found) != K:
            self.seen.wrong.append(f"{text} at {place.model}: {len(hits)} hits, without {missing}")

    async def _write(self, name: str) -> None:
        self.writer = Writer(self.stores[name], self.runs[name], self.others)
        self.following = asyncio.create_task(self._follow(self.writer, name))

    async def _stop_writing(self) -> None:
        assert self.writer is not None
        self.writer.stop()
        await self.following

    async def _follow(self, writer: "Writer", name: str) -> None:
        """After each commit, ask each server of this store until it shows it."""
        while (commit := await asyncio.to_thread(writer.next)) is not None:
            number, there, ended = commit
            self.seen.commits += 1
            servers = [place for place in self.places if place.model == name and place.ready]
            await asyncio.gather(*(self._look_for(place, number, there, ended) for place in servers))

    async def _look_for(self, place: Place, number: int, there: bool, ended: float) -> None:
        body = {"text": TEXTS[0], "k": 1, "where": [f"number={number}"]}
        while True:
            try:
                answer = await self.client.post(f"{place.url}/v1/search", json=body, timeout=40)
            except httpx.HTTPError:
                # it is stopping, or was killed: the clients count what fails
                return
            if answer.status_code != 200:
                self.seen.failed.append(f"{answer.status_code} after a commit at {place.model}")
                return
            if (answer.json()["matching"] == 1) == there:
                self.seen.lags.append(1000 * (time.monotonic() - ended))
                return
            self.seen.stale += 1

    async def _reindex(self, *flags: str) -> None:
        words = ("reindex", self.stores["v1"], self.runs["v2"], self.stores["v2"], "--cpu", *flags)
        await asyncio.to_thread(self._limner, *words)

    def _differences(self) -> int:
        """Number of pictures that only one of the two stores has, or of which both know other facts."""
        from limner.store.files import StoreFiles

        old, new = (
            set(map(repr, StoreFiles.open(store).entries().values())) for store in self.stores.values()
        )
        return len(old ^ new)

    def count_requests(self) -> None:
        """Requests to the storage, by kind, of a process that has the store open while nobody else uses it."""
        import limner as library

        store = library.open_store(self.stores["v1"], run=self.runs["v1"], device="cpu")
        path = self.others[0]
        store.files.delete([key_of(str(path))])
        for name, doing in (
            ("a search after a commit", lambda: store.search(TEXTS[0])),
            ("a search", lambda: store.search(TEXTS[0])),
            ("a picture added", lambda: store.index([path])),
            ("a picture deleted", lambda: store.delete(key_of(str(path)))),
        ):
            before = self._logged()
            doing()
            self.requests[name] = dict(self._logged() - before)

    def _logged(self) -> Counter[str]:
        text = (self.folder / "s3.log").read_text(encoding="utf-8")
        return Counter(
            "LIST" if "list-type" in path else method
            for method, path in re.findall(r"([A-Z]+) (\S+) HTTP/1.1", text)
        )

    async def _timed(self, what: str, doing: Awaitable[None]) -> None:
        began = time.monotonic()
        await doing
        self.seconds[what] = round(time.monotonic() - began, 1)
        print(f"{what}: {self.seconds[what]} s", flush=True)

    def _limner(self, *words: object) -> None:
        done = subprocess.run(limner(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"limner {words[0]}: {done.stderr}")

    def _log(self, place: Place) -> str:
        return (self.folder / f"server-{place.port}.log").read_text(encoding="utf-8")

    def end(self) -> None:
        """End what was started."""
        if self.writer is not None:
            self.writer.end()
        for place in self.places:
            if place.process is not None and place.process.poll() is None:
                place.process.kill()
                place.process.wait()

    def publish(self) -> None:
        """Print what was seen, and write the result file."""
        seen = self.seen
        for name in ("failed", "mixed", "wrong"):
            for line in getattr(seen, name)[:20]:
                print(f"{name}: {line}")
        for place in self.places:
            print(self._log(place)[-3000:], end="")
        p50, p99 = (statistics.quantiles(seen.milliseconds, n=100)[at] for at in (49, 98))
        content = {
            "requests": sum(seen.answers.values()),
            "answers": dict(seen.answers),
            "failed": len(seen.failed),
            "mixed": len(seen.mixed),
            "wrong": len(seen.wrong),
            "passed_on": seen.passed_on,
            "begun_at_the_kill": self.begun_at_kill,
            "lost_to_the_kill": seen.lost_to_kill,
            "lost_until_the_killed_was_gone": seen.lost_to_dying,
            "p50_ms": round(p50, 1),
            "p99_ms": round(p99, 1),
            "commits": seen.commits,
            "pictures_that_differ_after_reindex": self.differ,
            "seen_after_commits": len(seen.lags),
            "answers_begun_after_a_commit_without_it": seen.stale,
            "ms_from_commit_to_answer": {
                "median": round(statistics.median(seen.lags), 1),
                "most": round(max(seen.lags), 1),
            },
            "seconds": self.seconds,
            "requests_to_the_storage": self.requests,
        }
        for key, value in content.items():
            print(f"{key}: {value}")
        write("rolling_servers", content)


class Writer:
    """A process that adds and deletes pictures, a commit each, until it is told to stop."""

    def __init__(self, store: str, run: Path, pictures: list[Path]) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_change_store, args=(store, run, pictures, there), daemon=True)
        self._process.start()
        there.close()

    def next(self) -> tuple[int, bool, float] | None:
        """The number of a picture, whether it is there now, and when its commit had ended; None at the end."""
        try:
            found: tuple[int, bool, float] = self._here.recv()
            return found
        except EOFError:
            return None

    def stop(self) -> None:
        """Let it end its commit, and stop."""
        self._here.send("stop")

    def end(self) -> None:
        """End it at once."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _change_store(store: str, run: Path, pictures: list[Path], tell: Connection) -> None:
    import limner as library

    opened = library.open_store(store, run=run, device="cpu")
    there = {path for path in pictures if str(path) in opened.files.entries()}
    draws = random.Random(0)
    last: list[Path] = []
    while not tell.poll(0.3):
        path = draws.choice([one for one in pictures if one not in last])
        if path in there:
            opened.delete(key_of(str(path)))
        else:
            opened.index([path], metadata={str(path): {"number": pictures.index(path)}})
        ended = time.monotonic()
        there ^= {path}
        # a server is asked for it a moment later: it must be so until then
        last = [*last, path][-8:]
        tell.send((pictures.index(path), path in there, ended))
    # or closing would reset the connection
    tell.recv()


@contextmanager
def _storage(moto: Path, log: Path) -> Iterator[None]:
    """moto's S3 server with the bucket `limner`, named in the environment of this process and those it starts."""
    port = _free_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(moto), "-H", "127.0.0.1", "-p", str(port)], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        _wait(lambda: httpx.put(f"http://127.0.0.1:{port}/limner", trust_env=False).is_success)
        yield
    finally:
        process.terminate()
        process.wait()


def _wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            if holds():
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() > until:
            raise SystemExit("the storage did not start")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    main()

"""SIGTERM under load: every request that the server had is answered, and what it acknowledged is in the store.

After SIGKILL under load, too, what was acknowledged is there, and the audit log is whole. Also many adds of the same
bytes at once, which are one picture and no error.
"""

import base64
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.torture.contents import contents_of
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.serving import Server, expect_audit, picture, serving
from benchmarks.torture.workshop import SENTENCES, Workshop, indexed
from limner.client import Client

ROUNDS, SHORT_ROUNDS = 20, 1
KILLS, SHORT_KILLS = 10, 0
SAME, SHORT_SAME = 50, 3
"""Rounds of adds of the same bytes."""

_CLIENTS = 12
_AT_ONCE = 0.1
"""Seconds before the signal within which a request may not have reached the server yet."""


@dataclass
class Sent:
    """One request: when, what, and the answer's status; None if the connection ended without one."""

    began: float
    adds: bool
    status: int | None = None
    id: str | None = None
    error: str = ""


def shutdown(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Stop servers under load, and add the same bytes at once."""
    outcome, rng = Outcome(), random.Random(seed)
    rounds, kills = (SHORT_ROUNDS, SHORT_KILLS) if short else (ROUNDS, KILLS)
    for number in range(rounds + kills):
        folder, kill = shop.fresh("shutdown"), number >= rounds
        store, _ = indexed(shop, folder)
        audit = folder / "audit.jsonl"
        with serving(store, folder / "uploads", "--audit", audit) as server:
            if number == 0:
                _same_bytes(server, SHORT_SAME if short else SAME, rng, outcome)
            sent = _stopped(server, rng, outcome, kill=kill)
        if not kill:
            expect_answered(sent, outcome)
        _expect_kept(store, folder / "uploads", sent, outcome, kill=kill)
        expect_audit(audit, outcome, "after a kill" if kill else "after a shutdown")
        outcome.count("kills of a server" if kill else "shutdowns")
    return outcome


def _stopped(server: Server, rng: random.Random, outcome: Outcome, *, kill: bool) -> list[Sent]:
    """Load a server, stop it at a random moment, and return what was sent before that."""
    sent: list[Sent] = []
    ends = threading.Event()
    threads = [
        threading.Thread(target=_send, args=(server.url, random.Random(rng.random()), number % 2, sent, ends))
        for number in range(_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.5, 2.5))
    signalled = time.monotonic()
    if kill:
        server.process.kill()
        server.process.communicate()
    else:
        server.stop(outcome, "under load")
    ends.set()
    for thread in threads:
        thread.join()
    return [one for one in sent if one.began < signalled - _AT_ONCE]


def _send(url: str, rng: random.Random, adds: int, sent: list[Sent], ends: threading.Event) -> None:
    """Send one request after the other on one connection, until the server is gone."""
    with httpx.Client(base_url=url, timeout=60) as http:
        while not ends.is_set():
            one = Sent(time.monotonic(), bool(adds))
            # in the list before it is sent: without an answer it must be there, too
            sent.append(one)
            try:
                answer = (
                    http.post("/v1/items", json=_new(rng)) if adds else http.post("/v1/search", json=_query())
                )
            except httpx.ConnectError:
                # the server never had it: on a busy machine a request may be longer on its way
                sent.remove(one)
                return
            except httpx.HTTPError as error:
                one.error = type(error).__name__
                return
            one.status = answer.status_code
            one.id = answer.json().get("id") if one.status == 201 else None
            if one.status == 503:
                return


def _new(rng: random.Random) -> dict[str, Any]:
    return {"name": "a.png", "image": base64.b64encode(picture(rng)).decode(), "metadata": {}}


def _query() -> dict[str, Any]:
    return {"text": SENTENCES[0], "k": 3}


def expect_answered(sent: list[Sent], outcome: Outcome) -> None:
    for one in sent:
        what = "add" if one.adds else "search"
        if one.status is None:
            outcome.find(f"shutdown: an accepted {what} got no answer ({one.error})")
        elif one.status not in (200, 201, 503):
            outcome.find(f"shutdown: {what}: status {one.status}")
        outcome.count(f"{what}: {one.status or one.error}")


def _expect_kept(store: Path, uploads: Path, sent: list[Sent], outcome: Outcome, *, kill: bool) -> None:
    """Each acknowledged add is in the store, and each row of an upload has its file."""
    when = "after a kill" if kill else "after a shutdown"
    contents = contents_of(store, outcome, when)
    ids = {row["id"] for row in contents.rows.values()}
    lost = [one.id for one in sent if one.id is not None and one.id not in ids]
    outcome.expect(not lost, f"{when}: {len(lost)} acknowledged adds are not in the store")
    # hidden ones are half written: a kill may leave one, and a file that has no row yet
    files = {str(path) for path in uploads.iterdir() if not path.name.startswith(".")}
    rows = {path for path in contents.rows if Path(path).parent == uploads}
    outcome.expect(rows <= files, f"{when}: {len(rows - files)} rows without a file")
    outcome.expect(kill or files <= rows, f"{when}: {len(files - rows)} files without a row")


def _same_bytes(server: Server, rounds: int, rng: random.Random, outcome: Outcome) -> None:
    """Twelve clients add the same picture at once; all are answered with the one picture that there is then."""
    with Client(server.url) as client:
        before = len(client)
        for number in range(rounds):
            content, together = _new(rng), threading.Barrier(_CLIENTS)
            answers: list[httpx.Response] = []

            def add(
                body: dict[str, Any] = content,
                together: threading.Barrier = together,
                answers: list[httpx.Response] = answers,
            ) -> None:
                with httpx.Client(base_url=server.url, timeout=60) as http:
                    together.wait()
                    answers.append(http.post("/v1/items", json=body))

            threads = [threading.Thread(target=add) for _ in range(_CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            statuses = sorted(answer.status_code for answer in answers)
            outcome.expect(
                statuses == [201] * _CLIENTS, f"the same bytes {_CLIENTS} times at once: {statuses}"
            )
            ids = {answer.json()["id"] for answer in answers if answer.status_code == 201}
            outcome.expect(
                len(ids) == 1 and len(client) == before + number + 1, f"the same bytes: {len(ids)} ids"
            )
            outcome.count("adds of the same bytes", _CLIENTS)

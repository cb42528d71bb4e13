"""A soak: 32 clients use every route of one server for twenty minutes, and add and delete pictures all the while.

No status is unexpected, and resident memory, descriptors and threads are flat: their medians over the second half are
those of the first half, but for a little.
"""

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.torture.contents import contents_of
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.serving import Server, picture, serving
from benchmarks.torture.workshop import SENTENCES, Workshop, indexed
from limner.client import Client
from limner.errors import ServerError
from limner.store.uploads import MARK

CLIENTS = 32
SECONDS, SHORT_SECONDS = 1200.0, 8.0
_WARMING = 0.1
"""Share of the time that is left out: caches and pools of threads fill."""
_SAMPLE = 0.5
_FLAT = {"resident": 1.05, "descriptors": 1.1, "threads": 1.1}
"""Ratio of the second half's median to the first's that is still flat."""
_SPARE = {"resident": 10 * 2**20, "descriptors": 8, "threads": 4}
"""What may be added to that: in seconds of a short form, the first half still warms up."""

Action = Callable[["_User"], object]


def soak(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Let the clients loose, and watch the server's process."""
    outcome, folder = Outcome(), shop.fresh("soak")
    store, _ = indexed(shop, folder)
    before = contents_of(store, outcome, "before the soak")
    with serving(store, folder / "uploads") as server:
        samples = _load(server, SHORT_SECONDS if short else SECONDS, outcome, seed)
        server.stop(outcome, "after the soak")
    now = contents_of(store, outcome, "after the soak")
    if wrong := now.differs(before):
        outcome.find(f"after the soak: every client has deleted what it added, but: {wrong}")
    left = [path for path in (folder / "uploads").iterdir() if path.name != MARK]
    outcome.expect(not left, f"after the soak: {len(left)} files of uploads are left")
    expect_flat(samples, outcome, warm=not short)
    return outcome


def _load(server: Server, seconds: float, outcome: Outcome, seed: int) -> list[dict[str, float]]:
    until, lock = time.monotonic() + seconds, threading.Lock()
    users = [_User(server.url, random.Random(f"{seed} {number}"), outcome, lock) for number in range(CLIENTS)]
    threads = [threading.Thread(target=user.run, args=(until,), daemon=True) for user in users]
    for thread in threads:
        thread.start()
    samples: list[dict[str, float]] = []
    while time.monotonic() < until and server.process.poll() is None:
        time.sleep(_SAMPLE)
        samples.append({name: getattr(server, name)() for name in _FLAT})
    for thread in threads:
        thread.join(timeout=60)
    outcome.expect(not any(thread.is_alive() for thread in threads), "a client has waited for a minute")
    return samples


def expect_flat(samples: list[dict[str, float]], outcome: Outcome, *, warm: bool) -> None:
    counted = samples[round(_WARMING * len(samples)) :]
    half = len(counted) // 2
    for name, ratio in _FLAT.items():
        first, second = (
            statistics.median(sample[name] for sample in part) for part in (counted[:half], counted[half:])
        )
        shown = (
            [round(value / 2**20, 1) for value in (first, second)] if name == "resident" else [first, second]
        )
        outcome.figures[f"{name}, first and second half"] = shown
        # in the seconds of the short form memory is still on its way up, by no fixed amount
        if warm or name != "resident":
            outcome.expect(
                second <= ratio * first + _SPARE[name], f"{name} rose from {shown[0]} to {shown[1]}"
            )


class _User:
    """One client: it sends its next request when it has an answer."""

    def __init__(self, url: str, rng: random.Random, outcome: Outcome, lock: threading.Lock) -> None:
        self.rng, self.outcome, self.lock = rng, outcome, lock
        self.client = Client(url)
        self.own: list[str] = []
        self.ids: Sequence[str] = ()

    def run(self, until: float) -> None:
        """Send requests until then, and delete at the end what was added."""
        with self.client:
            self.ids = [item.id for item in self.client.items(limit=36)]
            actions = list(ACTIONS)
            while time.monotonic() < until:
                name = self.rng.choices(actions, [ACTIONS[one][0] for one in actions])[0]
                self.do(name, ACTIONS[name][1])
            while self.own:
                self.do("delete", _delete)

    def do(self, name: str, action: Action) -> None:
        """Make one request, and note a status that it should not have."""
        try:
            action(self)
            told = name
        except ServerError as error:
            expected = {"unknown": 404, "wrong": 422}.get(name)
            told = f"{name}: {error.status}"
            if error.status != expected:
                with self.lock:
                    self.outcome.find(f"{name}: status {error.status}: {error}")
        with self.lock:
            self.outcome.count(told)

    def one(self) -> str:
        """A picture that nobody deletes."""
        return self.rng.choice(self.ids)


def _search(user: _User) -> None:
    text = f"{user.rng.choice(SENTENCES)} {user.rng.choice(('', 'red', 'bar', 'circle'))}"
    assert len(user.client.search(text, k=10).hits) == 10


def _by_picture(user: _User) -> None:
    assert user.client.search(image=picture(user.rng), k=5).hits


def _like(user: _User) -> None:
    assert user.client.search(like=user.one(), k=5).hits


def _add(user: _User) -> None:
    item = user.client.add(picture(user.rng), name="a.png", metadata={"shelf": user.rng.randrange(9)})
    user.own.append(item.id)


def _delete(user: _User) -> None:
    if user.own:
        user.client.delete(user.own.pop())


def _unknown(user: _User) -> None:
    user.client.item("0" * 32)


def _wrong(user: _User) -> None:
    user.client.search("a", k=10**6)


ACTIONS: dict[str, tuple[int, Action]] = {
    "search": (40, _search),
    "search by picture": (4, _by_picture),
    "search like": (8, _like),
    "list": (8, lambda user: user.client.items(limit=20, where="shelf=3")),
    "item": (8, lambda user: user.client.item(user.one())),
    "thumbnail": (10, lambda user: user.client.thumbnail(user.one())),
    "image": (6, lambda user: user.client.image(user.one())),
    "explain": (2, lambda user: user.client.explain(SENTENCES[0], user.one())),
    "info": (4, lambda user: user.client.info()),
    "add": (5, _add),
    "delete": (5, _delete),
    "unknown": (2, _unknown),
    "wrong": (2, _wrong),
}
"""Each kind of request with its weight."""

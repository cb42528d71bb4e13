"""Properties of the rule that says which connections close when there are too many, or when they are late."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import h11
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from limner.server.connections import Server, _order
from limner.server.settings import ServerSettings

NOW, PROMPT = 1000.0, 0.25
LIMITS = ServerSettings(max_connections=8, client_connections=3, request_seconds=30, answer_seconds=60)


@dataclass(eq=False)
class Fake:
    """A connection as the sweep sees it; `waits` seconds since its client began to keep the server waiting."""

    address: str
    trusted: bool
    state: str
    waits: float
    ended: list[int] = field(default_factory=list)
    opened: float = NOW - 200
    is_unread: bool = False

    @property
    def reading_since(self) -> float | None:
        return NOW - self.waits if self.state == "reading" else None

    @property
    def asking_since(self) -> float | None:
        return NOW - self.waits if self.state in ("head", "body") else None

    @property
    def waits_since(self) -> float | None:
        return NOW - self.waits if self.state != "working" else None

    @property
    def conn(self) -> Any:
        return SimpleNamespace(their_state=h11.SEND_BODY if self.state == "body" else h11.IDLE)

    @property
    def transport(self) -> Any:
        return SimpleNamespace(abort=lambda: self.ended.append(0))

    def end(self, status: int, detail: str) -> None:
        self.ended.append(status)

    @property
    def slow(self) -> bool:
        return self.state != "working" and self.waits > PROMPT

    @property
    def late(self) -> bool:
        limit = LIMITS.answer_seconds if self.state == "reading" else LIMITS.request_seconds
        return self.state != "working" and self.waits > limit


FAKES = st.builds(
    Fake,
    st.sampled_from(["a", "b", "c", "d"]),
    st.booleans(),
    st.sampled_from(["head", "body", "reading", "working"]),
    st.floats(0, 100),
)


class Swept(Server):
    def __init__(self, ones: list[Fake]) -> None:
        app = FastAPI()
        app.state.turn_away = app.state.stopping = lambda: None
        app.state.knows, app.state.refused = None, lambda reason: None
        super().__init__(app, LIMITS)
        self.ones = ones
        self._swept.extend(NOW - 0.1 * back for back in range(5, 0, -1))

    def _connections(self) -> list[Any]:
        return self.ones


def test_the_loop_of_uvicorn_calls_it() -> None:
    one = Fake("a", True, "head", 99)
    server = Swept([one])

    async def tick() -> None:
        # the clock of a new loop is not NOW
        one.waits += NOW - asyncio.get_running_loop().time()
        assert not await server.on_tick(1)

    asyncio.run(tick())
    assert one.ended == [0]


def test_what_a_busy_server_has_not_read_is_not_slow() -> None:
    # far too many, all of them opened since the last sweep but one
    ones = [Fake("a", False, "head", 2, opened=NOW - 0.05) for _ in range(9)]
    ones.append(Fake("a", False, "head", 2))
    server = Swept(ones)
    server._sweep(NOW)
    assert [one.ended for one in ones] == [[]] * 9 + [[503]]
    server._sweep(NOW + 0.1)
    assert sum(map(bool, (one.ended for one in ones))) > 5


def test_nor_is_it_slow_while_turns_of_the_loop_are_long() -> None:
    unread = [Fake("a", False, "head", 2, opened=NOW - 0.45, is_unread=True) for _ in range(9)]
    read = Fake("a", False, "head", 2, opened=NOW - 0.45)
    server = Swept([*unread, read])
    server._sweep(NOW)
    assert [one.ended for one in unread] == [[]] * 9
    assert read.ended == [503]
    # long enough: nothing has come
    server._sweep(NOW + 2)
    assert sum(map(bool, (one.ended for one in unread))) > 5


PLACES = st.tuples(
    st.booleans(),
    st.none() | st.sampled_from([0, 0.02, 0.2, 0.3, 5, 90]).map(lambda waits: NOW - waits),
    st.floats(NOW - 200, NOW - 0.001),
)


@given(PLACES, PLACES)
def test_whose_place_a_new_one_takes(
    one: tuple[bool, float | None, float], other: tuple[bool, float | None, float]
) -> None:
    """The slowest one's; else the oldest's: the page has just been answered, and is about to ask."""
    first, second = sorted([one, other], key=lambda place: _order(place[0], place[1], place[2], NOW))
    slow = [place[1] is not None and NOW - place[1] > PROMPT for place in (first, second)]
    if first[0] != second[0]:
        assert second[0]
    elif all(slow):
        assert first[1] is not None
        assert second[1] is not None
        assert first[1] <= second[1]
    elif any(slow):
        assert slow[0]
    else:
        assert first[2] <= second[2]


def counted(ones: list[Fake]) -> tuple[Counter[str], Counter[str]]:
    """The connections of each address, and those with the token."""
    return Counter(one.address for one in ones), Counter(one.address for one in ones if one.trusted)


@given(st.lists(FAKES, max_size=20))
def test_who_stays_and_who_goes(ones: list[Fake]) -> None:
    Swept(ones)._sweep(NOW)
    closed, left = [one for one in ones if one.ended], [one for one in ones if not one.ended]
    # once each; and nobody who is quick, or for whom the server works
    assert all(len(one.ended) == 1 for one in closed)
    assert all(one.slow for one in closed)
    assert not any(one.late for one in left)
    slow = [one for one in left if one.slow]
    of_client, of_trusted = counted(left)
    # above a limit there are only those who must not be closed for it
    if len(left) > LIMITS.max_connections // 2:
        assert all(one.trusted for one in slow)
    for one in slow:
        assert (of_trusted if one.trusted else of_client)[one.address] <= LIMITS.client_connections
    # of two of one client, the one that has been slow for longer goes first
    for one in slow:
        for other in closed:
            if not other.late and other.address == one.address and other.trusted == one.trusted:
                assert other.waits >= one.waits
    # nobody is closed without need
    if len(ones) <= LIMITS.max_connections // 2 and all(
        number <= LIMITS.client_connections for number in Counter(one.address for one in ones).values()
    ):
        assert all(one.late for one in closed)
    # the token keeps a connection open, unless its own client has too many with it: strangers of the same address could
    # close its slow uploads otherwise, by asking without end
    opened = counted(ones)[1]
    for one in closed:
        assert one.late or not one.trusted or opened[one.address] > LIMITS.client_connections
    # who is late in the middle of a body learns why
    assert all(one.ended == [408] for one in closed if one.late and one.state == "body")

"""The places of connections: whose a new one takes, and what strangers are told where places are scarce."""

import asyncio
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.connections import Connection, _Places
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.test_connections_turns import HOLDER, MANY, STRANGER, dialled, exactly, recorded

MOST, EACH = 8, 2
GOOD = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass(eq=False)
class Fake(Connection):
    """A connection as the places see it."""

    address: str
    is_trusted: bool = False
    waits_for: float | None = None
    connections: set[Any] = field(default_factory=set)
    opened: float = 0.0
    is_unread: bool = True
    ended: list[int] = field(default_factory=list)

    @property
    def trusted(self) -> bool:
        return self.is_trusted

    @property
    def waits_since(self) -> float | None:
        return None if self.waits_for is None else asyncio.get_running_loop().time() - self.waits_for

    @property
    def stays(self) -> bool:
        return not self.ended

    def end(self, status: int, detail: str, *, asked: bool = False) -> None:
        self.ended.append(status)


FAKES = st.builds(
    Fake,
    st.sampled_from(["a", "b", "c"]),
    is_trusted=st.booleans(),
    waits_for=st.none() | st.floats(0, 9),
    is_unread=st.booleans(),
)


@given(st.lists(st.tuples(FAKES, st.booleans()), max_size=40), st.booleans())
def test_a_new_one_takes_the_place_of_a_stranger_or_is_refused(
    arrivals: list[tuple[Fake, bool]], guarded: bool
) -> None:
    """However many come in one turn of the loop."""

    async def arrive() -> None:
        places = _Places(most=MOST, each=EACH, guarded=guarded)
        all_of: set[Any] = set()
        for new, turn_ends in arrivals:
            new.connections = all_of
            open_ones = {one for one in all_of if one.stays}
            all_of.add(new)
            took = places.take(new)
            gone = {one for one in open_ones if not one.stays}
            # each displaced one is a stranger, and no more are than there are limits
            assert len(gone) <= 2
            assert not any(one.trusted for one in gone)
            assert guarded or all(one.waits_for is not None for one in gone)
            # and none without need
            of_client = [one for one in open_ones if one.address == new.address]
            assert not gone or len(open_ones) >= MOST or len(of_client) >= 2 * EACH
            left = open_ones - gone
            of_client = [one for one in left if one.address == new.address]
            if took:
                assert len(of_client) < 2 * EACH
                assert len(left) < MOST
                assert places.are_scarce == (len(left) + 1 > MOST // 2)
            else:
                may_go = [one for one in left if not one.trusted and (guarded or one.waits_for is not None)]
                full = [may_go] if len(left) >= MOST else []
                full += [[one for one in may_go if one in of_client]] if len(of_client) >= 2 * EACH else []
                assert full
                assert [] in full
                all_of.discard(new)
            if turn_ends:
                await asyncio.sleep(0)
                # one ends by itself
                new.ended.append(0)

    asyncio.run(arrive())


def answer(one: socket.socket) -> bytes:
    """The head of an answer whose body is read as well, in lower case."""
    head = exactly(one, lambda got: got.endswith(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    exactly(one, lambda got: len(got) == length)
    return head


def rest(one: socket.socket) -> bytes:
    got = b""
    while part := one.recv(65536):
        got += part
    return got


def test_where_places_are_scarce_a_stranger_is_told_to_come_anew(engine: Engine) -> None:
    """The page's next file has a connection of its own then, which is taken at once."""
    settings = MANY.replace(max_connections=8, client_connections=40)
    with ExitStack() as open_ones, recorded(engine, settings) as (url, _):
        for number in range(8):
            one = open_ones.enter_context(dialled(url, STRANGER))
            assert (b"connection: close" in answer(one)) == (number >= 4)
            holder = open_ones.enter_context(dialled(url, HOLDER)) if number == 6 else None
            if holder is not None:
                assert b"connection: close" not in answer(holder)


@pytest.mark.parametrize("line", [b"\r\n", b"\n", b"\r\n\r\n"])
def test_an_empty_line_before_a_request_is_ignored(engine: Engine, line: bytes) -> None:
    settings = ServerSettings(rate=0)
    with running(create_app(Store(engine), settings), settings) as url, dialled(url, GOOD) as one:
        assert answer(one).startswith(b"http/1.1 200")
        for sent in (line, GOOD, line + GOOD):
            one.sendall(sent)
            time.sleep(0.1)
        assert answer(one).startswith(b"http/1.1 200")
        assert answer(one).startswith(b"http/1.1 200")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            b"GET /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Content-Length",
        ),
        (b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 120 + b"\r\n", b"100 headers"),
        (b"nonsense\r\n\r\n", b"no HTTP request"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"no HTTP request"),
    ],
)
def test_a_faulty_request_is_answered_also_behind_another(engine: Engine, bad: bytes, why: bytes) -> None:
    settings = ServerSettings(rate=0)
    with running(create_app(Store(engine), settings), settings) as url:
        for before in (b"", GOOD):
            with dialled(url, before) as one:
                if before:
                    assert answer(one).startswith(b"http/1.1 200")
                one.sendall(bad)
                got = rest(one)
                assert got.startswith(b"HTTP/1.1 400")
                assert why in got

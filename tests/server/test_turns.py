import asyncio
from functools import partial

import pytest

from limner.errors import StoreError, UnfinishedErasureError
from limner.server import turns as turns_module
from limner.server.problems import RefusedError
from limner.server.turns import Turns


def test_one_at_a_time_and_erasures_first() -> None:
    order, running = list[str](), 0

    async def change(name: str) -> str:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        running -= 1
        order.append(name)
        if name == "fails":
            raise ValueError(name)
        return name

    async def all_of_them() -> list[object]:
        turns = Turns()
        begun = [
            asyncio.ensure_future(turns.take(partial(change, name))) for name in ("a", "fails", "b", "c")
        ]
        await asyncio.sleep(0)
        first = [asyncio.ensure_future(turns.take(partial(change, name), first=True)) for name in ("x", "y")]
        return await asyncio.gather(*begun, *first, return_exceptions=True)

    found = asyncio.run(all_of_them())
    assert order[0] == "a"
    assert set(order[1:3]) == {"x", "y"}
    assert set(order[3:]) == {"fails", "b", "c"}
    assert [str(one) for one in found] == ["a", "fails", "b", "c", "x", "y"]


def test_one_that_is_given_up_leaves_the_line() -> None:
    async def given_up() -> str:
        turns = Turns()
        hanging = asyncio.ensure_future(turns.take(lambda: asyncio.sleep(60)))
        waiting = asyncio.ensure_future(turns.take(lambda: asyncio.sleep(60), first=True))
        await asyncio.sleep(0.01)
        waiting.cancel()
        hanging.cancel()
        return await turns.take(lambda: asyncio.sleep(0, "done"))

    assert asyncio.run(given_up()) == "done"


def test_another_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "WAIT", 0.5)
    monkeypatch.setattr(turns_module, "MOST", 1)
    tries = 0

    async def busy(until: int, error: StoreError) -> int:
        nonlocal tries
        tries += 1
        if tries < until:
            raise error
        return tries

    taken = StoreError("is being written", "busy")
    assert asyncio.run(Turns().take(lambda: busy(3, taken))) == 3
    tries = 0
    with pytest.raises(RefusedError, match="another process has been changing it for") as refused:
        asyncio.run(Turns().take(lambda: busy(99, taken)))
    assert refused.value.headers["Retry-After"]
    for error in (StoreError("full", "full"), UnfinishedErasureError("deleted", "busy", ["a"])):
        tries = 0
        with pytest.raises(type(error)):
            asyncio.run(Turns().take(partial(busy, 99, error)))
        assert tries == 1

    async def crowd() -> None:
        turns = Turns()
        tasks = [asyncio.ensure_future(turns.take(lambda: asyncio.sleep(60))) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(RefusedError, match="1 changes are waiting already"):
            await turns.take(lambda: asyncio.sleep(0))
        for task in tasks:
            task.cancel()

    asyncio.run(crowd())

"""A search for traces finds what `in` finds."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.store import traces as module
from limner.store.traces import SHORTEST, Traces


def found_in(traces: Traces, content: bytes) -> set[bytes]:
    places = list(traces.search().found(content))
    assert all(content[place : place + len(trace)] == trace for place, trace in places)
    return {trace for _, trace in places}


PIECES = st.lists(st.binary(min_size=SHORTEST, max_size=70), min_size=1, max_size=8)


@given(pieces=PIECES, before=st.binary(max_size=40), chosen=st.sets(st.integers(0, 7)), data=st.data())
@settings(deadline=None)
def test_finds_what_is_there(
    pieces: list[bytes], before: bytes, chosen: set[int], data: st.DataObject
) -> None:
    traces = Traces()
    for piece in pieces:
        traces.add_bytes("piece", piece)
    content = before
    for number in sorted(chosen):
        content += pieces[number % len(pieces)] + data.draw(st.binary(max_size=20))
    assert found_in(traces, content) == {trace for trace in traces.kinds if trace in content}


@given(start=st.integers(0, 150), length=st.integers(SHORTEST, 64), chunk=st.sampled_from([16, 64, 100]))
@settings(deadline=None, max_examples=30)
def test_across_the_parts_of_a_file(
    start: int, length: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    traces = Traces()
    trace = bytes(range(1, length + 1))
    traces.add_bytes("piece", trace)
    path = tmp_path_factory.mktemp("parts") / "file"
    path.write_bytes(bytes(start) + trace + bytes(90))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        assert set(traces.search().in_file(path)) == {(start, trace)}


def test_what_is_a_trace() -> None:
    traces = Traces()
    traces.add_text("identity", "17")
    traces.add_text("identity", None)
    traces.add_bytes("vector", bytes(48))
    assert (len(traces), traces.short) == (0, 2)
    # zeros at the beginning of each quarter are stepped over
    long = b"".join(bytes(80) + bytes(range(quarter, quarter + 176)) for quarter in range(4))
    traces.add_bytes("region features", long)
    assert len(traces) == 4
    assert found_in(traces, long) == set(traces.kinds)
    assert not found_in(traces, bytes(2000))
    assert traces.leave_out([*traces.kinds][:1]) == 1
    assert len(traces) == 3
    traces.add_bytes("thumbnail", bytes(4000))
    assert (len(traces), traces.short) == (3, 3)


def test_many_that_end_alike(tmp_path: Path) -> None:
    traces = Traces()
    for number in range(300):
        traces.add_text("path", f"/pictures/{number:03d}/the same name.jpg")
    text = "".join(f"/pictures/{number:03d}/the same name.jpg" for number in range(299, 3000))
    assert found_in(traces, text.encode()) == {b"/pictures/299/the same name.jpg"}

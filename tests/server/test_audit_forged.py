"""A forged audit log is found by a digest that was kept elsewhere."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limner.server import audit
from limner.server.audit import verify
from tests.server.audited import PER_EXAMPLE, eight_queries, read, written


@PER_EXAMPLE
@given(data=st.data())
def test_no_line_bridges_a_gap(tmp_path: Path, data: st.DataObject) -> None:
    """A kept digest proves its line and those before it, whatever a forger writes in front of them."""
    file = tmp_path / "audit.jsonl"
    kept, lines = eight_queries(file)
    begin = data.draw(st.integers(1, 7))
    end = data.draw(st.integers(begin + 1, 8))
    bridge: dict[str, Any] = {
        "time": read(file)[begin]["time"],
        "request": "begin",
        "reason": "old lines were removed",
        "number": end,
    }
    if data.draw(st.booleans()):
        bridge |= {"removed": end - begin}
    bridge |= {"continues": audit._digest(lines[end - 1])}
    is_first = data.draw(st.booleans())
    changed = json.dumps({**json.loads(lines[begin - 1]), "who": "bob", "text": "forged"}).encode()
    bridge |= {"previous": None if is_first else audit._digest(changed)}
    before = [] if is_first else [*lines[: begin - 1], changed]
    if data.draw(st.booleans()):
        before = [] if is_first else lines[:begin]
        bridge |= {"previous": audit._digest(lines[begin - 1]) if before else None}
    file.write_bytes(b"\n".join([*before, json.dumps(bridge).encode(), *lines[end:]]) + b"\n")
    report = verify(file, kept)
    # only in place of all that stood before it, which says that it is gone
    assert report.sound == (is_first and end < len(lines))
    if report.sound:
        assert file.read_bytes().splitlines()[1:] == lines[end:]


@PER_EXAMPLE
@given(data=st.data())
def test_a_forgotten_line_stands_for_one_line(tmp_path: Path, data: st.DataObject) -> None:
    """Forged ones keep the chain of digests whole, but can be neither more nor fewer than the lines were."""
    file = tmp_path / "audit.jsonl"
    kept, lines = eight_queries(file)
    begin = data.draw(st.integers(1, 8))
    # the last one that goes; begin - 1: none does
    end = data.draw(st.integers(begin - 1, 8))
    count = data.draw(st.integers(0, 9))
    first = data.draw(st.integers(1, 9)) if data.draw(st.booleans()) else begin + 1
    forged, follows = [], audit._digest(lines[begin - 1])
    for number in range(count):
        digest = audit._digest(lines[end]) if number == count - 1 else f"{number:064}"
        said = {"time": "2026-01-01", "who": "bob", "number": first + number, "previous": follows}
        forged.append(json.dumps({**said, "forgotten": True, "digest": digest}).encode())
        follows = digest
    file.write_bytes(b"\n".join([*lines[:begin], *forged, *lines[end + 1 :]]) + b"\n")
    report = verify(file, kept)
    if report.sound:
        assert (count, first) == (end + 1 - begin, begin + 1) or not count
        assert report.forgotten == count
        assert report.lines == 9


def test_a_line_that_is_called_forgotten_is_counted(tmp_path: Path) -> None:
    """Without a key nobody can keep a forger from what `forget` does; the count shows it."""
    file = tmp_path / "audit.jsonl"
    written(file, {"request": "search", "text": "one"}, {"request": "search", "text": "two"})
    kept, lines = verify(file).digest, file.read_bytes().splitlines()
    changed = {**json.loads(lines[1]), "who": "bob", "forgotten": True, "digest": audit._digest(lines[1])}
    file.write_bytes(b"\n".join([lines[0], json.dumps(changed).encode(), lines[2]]) + b"\n")
    assert (verify(file, kept).sound, verify(file, kept).forgotten) == (True, 1)

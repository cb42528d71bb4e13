"""Traces of rows: pieces of bytes that tell of them, searched for in files.

Of a text or a digest the trace is all of it, of longer content up to four pieces of 64 bytes: whoever has the whole
content has each of them. Many traces are searched for at once. A trace of 15 bytes or more covers a whole word of eight
bytes, wherever it lies in the file; so only every eighth place is looked at, and the eight words that a trace may show
there are looked up in a table.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt64

from limner.store.path import reached

SHORTEST = 8
"""Bytes below which a trace is not searched for: a short one stands in many files by chance."""

_PIECE = 64
_WORD = 8
_ALIGNED = 2 * _WORD - 1  # bytes of a trace from which it covers a whole aligned word
_DIFFERENT = 4  # bytes of a word; zeros, as region features have them, would be found everywhere
_BITS = 22  # of the first table, 4 MB: it lets 4 % of other words through with 160,000 words in it
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: it spreads words over the table
_CHUNK = 2**23  # bytes of a file in memory


class Traces:
    """Traces to search for, each with its kind."""

    def __init__(self) -> None:
        self.kinds: dict[bytes, str] = {}
        self._short: set[bytes] = set()

    @property
    def short(self) -> int:
        """Number of those that cannot be told from other bytes."""
        return len(self._short)

    def __len__(self) -> int:
        return len(self.kinds)

    def add_text(self, kind: str, text: str | None) -> None:
        """Add a text, e.g. a path."""
        if text:
            self.add_bytes(kind, text.encode(errors="surrogateescape"))

    def add_bytes(self, kind: str, content: bytes | memoryview) -> None:
        """Add content: all of it if it is short, else pieces."""
        content = bytes(content) if len(content) <= 2 * _PIECE else memoryview(content)
        if isinstance(content, bytes):
            self._add(kind, content)
            return
        quarter = len(content) // 4
        for start in (0, quarter, 2 * quarter, 3 * quarter):
            # a piece of zeros is no trace: the first one that is none, before the next quarter begins
            last = min(start + quarter, len(content) - _PIECE)
            for place in range(start, max(last, start + 1), _PIECE):
                piece = bytes(content[place : place + _PIECE])
                if not _plain(piece):
                    self._add(kind, piece)
                    break
            else:
                self._short.add(bytes(content[start : start + _PIECE]))

    def leave_out(self, traces: Iterable[bytes]) -> int:
        """Search for these no longer, and return how many they are."""
        return sum(self.kinds.pop(trace, None) is not None for trace in set(traces))

    def search(self) -> "TraceSearch":
        """Prepare a search for the traces as they are now."""
        return TraceSearch(self.kinds)

    def _add(self, kind: str, content: bytes) -> None:
        if not content:
            return
        if len(content) < SHORTEST or len(set(content)) < _DIFFERENT:
            self._short.add(content)
        else:
            self.kinds.setdefault(content, kind)


class TraceSearch:
    """A search for many traces in bytes and files."""

    def __init__(self, traces: Mapping[bytes, str]) -> None:
        self._traces = traces
        self.longest = max(map(len, traces), default=0)
        self._aligned = _Words([one for one in traces if len(one) >= _ALIGNED], _WORD)
        self._short = _Words([one for one in traces if len(one) < _ALIGNED], 1)

    def found(self, content: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
        """Find places and traces in bytes; a trace may be found at one place several times."""
        view = memoryview(content)
        for words, shifts in ((self._aligned, (0,)), (self._short, range(_WORD))):
            for shift in shifts if words.any else ():
                count = (len(view) - shift) // _WORD
                if count > 0:
                    for place, start, length in words.matches(np.frombuffer(view, "<u8", count, shift)):
                        begin = shift + place * _WORD - start
                        piece = bytes(view[begin : begin + length]) if begin >= 0 else b""
                        if piece in self._traces:
                            yield begin, piece

    def in_file(self, path: Any) -> Iterator[tuple[int, bytes]]:
        """Find places and traces in a file; a few megabytes of it are in memory. Raises `StoreError`."""
        before, offset = b"", 0
        with reached(path, "read"), path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                # the end of what was read is searched again: a trace may begin in it
                content = before + chunk
                for place, trace in self.found(content):
                    yield offset + place, trace
                kept = min(max(self.longest - 1, 0), len(content))
                offset += len(content) - kept
                before = content[len(content) - kept :]


class _Words:
    """The words that traces may show at a looked-at place, and how far in a trace each of them lies."""

    def __init__(self, traces: list[bytes], step: int) -> None:
        # the end of a trace: paths of one folder begin alike
        size = _WORD + step - 1
        ends = np.frombuffer(b"".join(one[len(one) - size :] for one in traces), np.uint8).reshape(-1, size)
        lengths = np.array([len(one) for one in traces], np.int64)
        entries = [
            np.stack(
                [ends[:, shift : shift + _WORD].copy().view("<i8").ravel(), lengths - size + shift, lengths],
                axis=1,
            )
            for shift in range(step)
        ]
        # equal entries once: of a thousand paths that end alike only the different lengths count
        rows = np.unique(np.concatenate(entries), axis=0) if traces else np.empty((0, 3), np.int64)
        words = rows[:, 0].astype("<i8").view("<u8")
        order = np.argsort(words, kind="stable")
        self._words: UInt64[np.ndarray, " entries"] = words[order]
        self._places = rows[order, 1:]
        self._table = np.zeros(2**_BITS, bool)
        self._table[_hash(self._words)] = True

    @property
    def any(self) -> bool:
        return bool(len(self._words))

    def matches(self, words: UInt64[np.ndarray, " words"]) -> Iterator[tuple[int, int, int]]:
        """Places among words, and for each the start and length of traces that may be there."""
        # most words fail the table, which fits into a cache; the sorted words are for the others
        places: Int[np.ndarray, " some"] = np.flatnonzero(self._table[_hash(words)])
        first = np.searchsorted(self._words, words[places], "left")
        last = np.searchsorted(self._words, words[places], "right")
        for which in np.flatnonzero(first < last).tolist():
            for start, length in self._places[first[which] : last[which]].tolist():
                yield int(places[which]), start, length


def files_below(folder: Any) -> list[Any]:
    """All files below a folder."""
    with reached(folder, "read"):
        return sorted(path for path in folder.rglob("*") if path.is_file() and not _is_link(path))


def _is_link(path: Any) -> bool:
    # what a link leads to is not the store's
    return isinstance(path, Path) and path.is_symlink()


def _hash(words: UInt64[np.ndarray, " words"]) -> UInt64[np.ndarray, " words"]:
    hashed: UInt64[np.ndarray, " words"] = (words * _FACTOR) >> np.uint64(64 - _BITS)
    return hashed


def _plain(piece: bytes) -> bool:
    """True for bytes of which a word at the looked-at end repeats few values."""
    end = piece[-_ALIGNED:]
    return any(
        len(set(end[shift : shift + _WORD])) < _DIFFERENT for shift in range(max(len(end) - _WORD, 0) + 1)
    )

"""The coding of a JPEG: its frame, tables and scans are lawful by T.81, and none of them is there in vain."""

from limner.data.image_parts import demand

_DHT, _DQT, _DRI = 0xC4, 0xDB, 0xDD
"""Huffman tables, quantisation tables, restart interval."""
_PROGRESSIVE = 0xC2
_FRAMES = frozenset({0xC0, 0xC1, _PROGRESSIVE})
"""Baseline, extended and progressive frames in Huffman coding. Browsers show no other: arithmetic, lossless and
hierarchical pictures are encoded anew, and so are those with a marker for the number of lines, which decoders skip."""
SOS = 0xDA
CODING = frozenset({*_FRAMES, SOS, _DHT, _DQT, _DRI})
"""Markers of the segments without which the pixels cannot be decoded."""
_MOST_BITS = 11
"""Bits of the largest difference of two means, where the values have eight."""
_DEEPEST = 13
"""Most bits that a progressive picture can leave to later scans (T.81, table B.3)."""


class JpegCoding:
    """Takes the segments of a JPEG's coding in their order.

    A segment holds nothing beside its tables, no table is replaced before it was used, and no scan says what another
    one has said: what a later scan overwrites could be anything.
    """

    def __init__(self) -> None:
        self._progressive = False
        # width and height in pixels, then the sampling factors and the quantisation table of each component
        self._size = (0, 0)
        self._components: dict[int, tuple[int, int, int]] = {}
        # by component and coefficient, the lowest bit that a scan has told
        self._told: dict[tuple[int, int], int] = {}
        # each by its segment's marker and its number
        self._known: set[tuple[int, int]] = set()
        self._unused: set[tuple[int, int]] = set()
        self._interval = 0
        self._restarts = 0

    @property
    def is_whole(self) -> bool:
        """True if each component was told by a scan, and each table used; what nobody reads could be anything."""
        told = {component for component, _ in self._told}
        return bool(self._components) and told == {*self._components} and not self._unused

    def take(self, marker: int, body: bytes) -> None:
        """Take the next segment. Raises `MalformedError`, and `IndexError` for one that is too short."""
        if marker in _FRAMES:
            self._take_frame(marker, body)
        elif marker == SOS:
            self._take_scan(body)
        elif marker == _DRI:
            # once, as a second interval could be any two bytes before each scan
            demand(len(body) == 2 and not self._told and (_DRI, 0) not in self._known)
            self._known.add((_DRI, 0))
            self._interval = int.from_bytes(body, "big")
        else:
            self._take_tables(marker, body)

    def take_restarts(self, markers: list[int]) -> None:
        """Take the restart markers that lie in the data of the last scan.

        Decoders give up the rest of a scan in which another marker comes, or one that was not announced.
        """
        demand(markers == [0xD0 + number % 8 for number in range(self._restarts)])

    def _take_frame(self, marker: int, body: bytes) -> None:
        demand(not self._components and len(body) >= 6 and body[0] == 8 and body[5] in (1, 3, 4))
        demand(len(body) == 6 + 3 * body[5])
        self._progressive = marker == _PROGRESSIVE
        self._size = int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big")
        demand(min(self._size) > 0)
        for at in range(6, len(body), 3):
            across, down, table = body[at + 1] >> 4, body[at + 1] & 15, body[at + 2]
            demand(body[at] not in self._components and 1 <= across <= 4 and 1 <= down <= 4 and table < 4)
            self._components[body[at]] = across, down, table

    def _take_tables(self, marker: int, body: bytes) -> None:
        at = 0
        while at < len(body):
            # a table's kind in one bit, its number in two
            demand(body[at] & 0xEC == 0)
            # of quantisation tables that bit is the size of their numbers
            table = marker, body[at] & 3 if marker == _DQT else body[at]
            # decoders take Huffman tables anew for each scan, the others may be needed till the end
            demand(table not in (self._unused if marker == _DHT else self._known))
            self._known.add(table)
            self._unused.add(table)
            if marker == _DQT:
                at += 1 + (128 if body[at] & 0xF0 else 64)
            else:
                end = at + 17 + sum(body[at + 1 : at + 17])
                _demand_codes(body[at + 1 : at + 17], body[at + 17 : end], means=body[at] < 0x10)
                at = end
        demand(at == len(body))

    def _take_scan(self, body: bytes) -> None:
        demand(len(body) >= 1 and 1 <= body[0] <= 4 and len(body) == 4 + 2 * body[0])
        names, tables = body[1:-3:2], body[2:-3:2]
        first, last, before, now = body[-3], body[-2], body[-1] >> 4, body[-1] & 15
        # the frame's components in its order, none of them twice
        demand([name for name in self._components if name in names] == [*names])
        means, rest = first == 0, first > 0
        if self._progressive:
            demand(last == 0 if means else len(names) == 1 and first <= last < 64)
            demand(now <= _DEEPEST)
        else:
            demand((first, last, before, now) == (0, 63, 0, 0))
            rest = True
        used = {(_DQT, table) for _, _, table in self._components.values()}
        for name, table in zip(names, tables, strict=True):
            # the mean of a block comes before the rest of it
            demand(means or (name, 0) in self._told)
            for coefficient in range(first, last + 1):
                # T.81, G.1.1.1: a first scan, then one bit after another
                demand(self._told.get((name, coefficient), 0) == before)
                demand(before in (0, now + 1) and ((name, coefficient) in self._told) == (before > 0))
                self._told[name, coefficient] = now
            # a number that is not read could be any
            reads_means = means and before == 0
            used |= {(_DHT, table >> 4)} if reads_means else set()
            used |= {(_DHT, 0x10 | table & 15)} if rest else set()
            demand((reads_means or table >> 4 == 0) and (rest or table & 15 == 0))
        # one that comes later is not read either
        demand(used <= self._known)
        self._unused -= used
        self._restarts = (self._units(names) - 1) // self._interval if self._interval else 0

    def _units(self, names: bytes) -> int:
        """Number of coded units of a scan (T.81, A.2): blocks of its component, or groups of blocks of several."""
        most = [max(one[way] for one in self._components.values()) for way in (0, 1)]
        factors = self._components[names[0]][:2] if len(names) == 1 else (1, 1)
        across, down = (
            # first the component's own size in pixels, then the blocks in it
            -((-size * factor // largest) // 8) if len(names) == 1 else -(-size // (8 * largest))
            for size, factor, largest in zip(self._size, factors, most, strict=True)
        )
        return across * down


def _demand_codes(counts: bytes, values: bytes, *, means: bool) -> None:
    """The values of a Huffman table are such as a picture can have, each once, and there are codes for them."""
    demand(len(counts) == 16 and sum(counts) == len(values) == len({*values}))
    free = 1
    for count in counts:
        free = 2 * free - count
        demand(free >= 0)
    if means:
        demand(all(value <= _MOST_BITS for value in values))
    else:
        # a run of zeros and the bits of a number; without bits a run of blocks, which only progressive scans have
        demand(all(value & 15 <= 10 for value in values))

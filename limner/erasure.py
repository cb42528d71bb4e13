"""The report of an erasure: what was erased, and what was searched for afterwards to prove it."""

from limner.wire import ResponseModel


class Remains(ResponseModel):
    """Traces of erased rows that one file still has."""

    file: str
    """The file, within the store's folder."""

    kind: str
    """The column that they are of: path, sha256, vector, thumbnail …"""

    count: int
    """Number of different traces."""


class TraceCounts(ResponseModel):
    """Traces of erased rows: their paths, keys, hashes, facts and texts, and pieces of their bytes."""

    searched: int
    """Traces that were searched for in every file of the store after the erasure."""

    visible: int
    """Those that the files showed before it: only of these does the search tell something."""

    shared: int
    """Traces left out, because pictures or sentences that stay have the same bytes."""

    short: int
    """Traces left out, because they are too short or too plain to be told from other bytes."""


class ErasureReport(ResponseModel):
    """The result of an erasure."""

    pictures: int
    """Pictures that were erased."""

    sentences: int
    """Sentences of these pictures, which were erased with them."""

    left: int
    """Pictures that the store holds after it."""

    uploads: int
    """Picture files in the folder of uploads that were deleted."""

    audit_lines: int | None
    """Lines of the audit log from which something was removed; null if none was named."""

    traced: int
    """Pictures and sentences whose traces were searched for: all, or an even sample of very many."""

    traces: TraceCounts
    """How the proof was made."""

    files: int
    """Files of the store that were searched afterwards."""

    bytes: int
    """Their size."""

    found: tuple[Remains, ...]
    """What was found all the same; empty if nothing of the erased rows is left."""

    dry_run: bool = False
    """True if nothing was erased or searched."""

    @classmethod
    def planned(cls, *, pictures: int, sentences: int, left: int) -> "ErasureReport":
        """The report of an erasure that was not made."""
        nothing = TraceCounts(searched=0, visible=0, shared=0, short=0)
        return cls(
            pictures=pictures,
            sentences=sentences,
            left=left,
            uploads=0,
            audit_lines=None,
            traced=0,
            traces=nothing,
            files=0,
            bytes=0,
            found=(),
            dry_run=True,
        )

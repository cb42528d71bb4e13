"""Move a store's pictures to another model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from limner.search.index import IndexSummary, index_pictures
from limner.search.store import Store
from limner.types import Encoder


def reindex(
    old: Store,
    encoder: Encoder,
    new: Store,
    *,
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> IndexSummary:
    """Index the pictures of one store into another, with the identity, capture time and metadata that they have.

    Embeddings of two models cannot be compared, so all pictures are read and encoded again: their files must still be
    there. Killed and run again it goes on, as `index_pictures` does; pictures whose files are gone, or are none any
    more, are listed as skipped. Sentences are not moved: index them anew (`limner.search.sentences`). Raises what
    `index_pictures` raises.
    """
    facts = {
        entry.path: {
            **entry.metadata,
            **({} if entry.identity is None else {"identity": entry.identity}),
            **({} if entry.taken is None else {"taken": entry.taken.isoformat()}),
        }
        for entry in old.entries().values()
    }
    # files only: a folder of such a name would be searched through
    present = [path for path in facts if Path(path).is_file()]
    gone = [
        (path, "not a regular file" if Path(path).exists() else "its file is gone")
        for path in facts.keys() - set(present)
    ]
    if not present:
        return IndexSummary(0, 0, 0, tuple(sorted(gone)))
    summary = index_pictures(encoder, new, present, metadata=facts, batch_size=batch_size, progress=progress)
    return replace(summary, skipped=(*summary.skipped, *sorted(gone)), unused_metadata=())

"""Limits on the size of texts: of one picture that is added, and of one answer."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int

from limner.server.problems import RefusedError
from limner.store.snapshot import Snapshot
from limner.wire import FoundSentence, Hit, Item, MetadataField

T = TypeVar("T", Hit, Item)

_EACH = 512
"""Bytes that an answer has for each picture or sentence beside what is measured: key, scores, the names of fields."""


def check_metadata(metadata: Mapping[str, Any], most: int) -> None:
    """Raise `RefusedError` (413) for metadata of more bytes than `most`."""
    size = _size(metadata)
    if size > most:
        raise RefusedError(413, f"metadata: at most {most:,} bytes of JSON here, got {size:,}")


def rows_that_fit(
    snapshot: Snapshot, rows: Int[np.ndarray, " some"], most: int
) -> Int[np.ndarray, " fitting"]:
    """The first rows whose items have no more bytes than `most` together, and at least one; see `pictures_that_fit`."""
    own = snapshot.columns
    sizes = (len((own.metadata[row] + (own.identities[row] or "")).encode()) for row in rows.tolist())
    return rows[: _fitting(sizes, most)]


def pictures_that_fit(pictures: Sequence[T], most: int) -> tuple[T, ...]:
    """The first hits or items that have no more bytes than `most` together, and at least one."""
    # a name, too: for an upload it is what a client has called it. Without attention, which has a size of the model's
    sizes = (_size([one.name, one.identity, one.metadata]) for one in pictures)
    return tuple(pictures[: _fitting(sizes, most)])


def sentences_that_fit(sentences: Sequence[FoundSentence], most: int) -> tuple[FoundSentence, ...]:
    """The first sentences that have no more bytes than `most` together, and at least one."""
    return tuple(sentences[: _fitting((_size(one.text) for one in sentences), most)])


def fields_that_fit(fields: Sequence[MetadataField], most: int) -> tuple[MetadataField, ...]:
    """The first fields that have no more bytes than `most` together; one that has more by itself loses its values."""
    short = [
        field if _size(field.values) <= most // 2 else field.model_copy(update={"values": ()})
        for field in fields
    ]
    return tuple(short[: _fitting((_size(field.model_dump()) for field in short), most)])


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))


def _fitting(sizes: Iterable[int], most: int) -> int:
    """How many of the first fit; one in any case, or nobody could page on."""
    count = total = 0
    # what comes behind the end is not measured
    for size in sizes:
        total += size + _EACH
        if total > most:
            break
        count += 1
    return max(1, count)

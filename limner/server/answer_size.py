"""The sizes of metadata: of one picture that is added, and of all pictures that one answer tells."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Int

from limner.search.snapshot import Snapshot
from limner.server.problems import RefusedError
from limner.wire import Hit, MetadataField

_EACH = 512
"""Bytes that an answer has for each picture beside its metadata: key, name, scores, the names of fields."""


def check_metadata(metadata: Mapping[str, Any], most: int) -> None:
    """Raise `RefusedError` (413) for metadata of more bytes than `most`."""
    size = _size(metadata)
    if size > most:
        raise RefusedError(413, f"metadata: at most {most:,} bytes of JSON here, got {size:,}")


def rows_that_fit(
    snapshot: Snapshot, rows: Int[np.ndarray, " some"], most: int
) -> Int[np.ndarray, " fitting"]:
    """The first rows whose items have no more bytes than `most` together, and at least one."""
    sizes = pc.binary_length(snapshot.columns["metadata"].take(rows)).to_numpy()
    return rows[: _fitting(sizes, most)]


def hits_that_fit(hits: Sequence[Hit], most: int) -> tuple[Hit, ...]:
    """The first hits that have no more bytes than `most` together, and at least one."""
    # without their attention, which has a size of the model's
    sizes = np.array([_size(hit.metadata) for hit in hits], np.int64)
    return tuple(hits[: _fitting(sizes, most)])


def fields_that_fit(fields: Sequence[MetadataField], most: int) -> tuple[MetadataField, ...]:
    """The first fields that have no more bytes than `most` together; one that has more by itself loses its values."""
    short = [
        field if _size(field.values) <= most // 2 else field.model_copy(update={"values": ()})
        for field in fields
    ]
    sizes = np.array([_size(field.model_dump()) for field in short], np.int64)
    return tuple(short[: _fitting(sizes, most)])


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))


def _fitting(sizes: Int[np.ndarray, " some"], most: int) -> int:
    """How many of the first fit; one in any case, or nobody could page on."""
    return max(1, int(np.searchsorted(np.cumsum(sizes + _EACH), most, side="right")))

"""Digests of a table's rows: one of the vector, and one of all other columns and the vector's digest.

Two, so that a row whose vector alone is damaged keeps its facts when it is repaired.
"""

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limner.search.segments import DIGEST_BYTES

DIGEST = "digest"
"""Column with the digest of a row."""

VECTOR_DIGEST = "vector_digest"
"""Column with the digest of its vector."""

COLUMNS = [pa.field(VECTOR_DIGEST, pa.binary(DIGEST_BYTES)), pa.field(DIGEST, pa.binary(DIGEST_BYTES))]
"""Both columns of a table."""

_SEPARATOR = b"\x1f"


def with_digests(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with their digests, in the columns of a schema; digests that they have are computed anew."""
    rows = rows.drop_columns([name for name in (VECTOR_DIGEST, DIGEST) if name in rows.schema.names])
    rows = rows.append_column(COLUMNS[0], pa.array(vector_digests(rows["vector"]), COLUMNS[0].type))
    rows = rows.append_column(COLUMNS[1], pa.array(facts_digests(rows, schema), COLUMNS[1].type))
    return rows.select(schema.names).cast(schema)


def vector_digests(vectors: pa.ChunkedArray) -> list[bytes]:
    """Digests of vectors as they stand in memory, 32 bits a number, little endian."""
    width = vectors.type.list_size
    found: list[bytes] = []
    for chunk in vectors.chunks:
        matrix = np.ascontiguousarray(
            chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width), "<f4"
        )
        found += [blake2b(row, digest_size=DIGEST_BYTES).digest() for row in matrix]
    return found


def facts_digests(rows: pa.Table, schema: pa.Schema) -> list[bytes]:
    """Digests of all columns of a schema but the vector and the digest itself."""
    names = [name for name in schema.names if name not in ("vector", DIGEST)]
    # joined by Arrow: a loop over Python's values takes five times as long
    columns = [_as_binary(rows[name]) for name in names]
    joined = pc.binary_join_element_wise(
        *columns, pa.scalar(_SEPARATOR, pa.binary()), null_handling="replace", null_replacement=b"\x00"
    )
    return [blake2b(row, digest_size=DIGEST_BYTES).digest() for row in joined.to_pylist()]


def damaged(rows: pa.Table, schema: pa.Schema) -> tuple[np.ndarray, np.ndarray]:
    """For each row, True if its facts are damaged, and True if its vector is."""
    facts = np.array(facts_digests(rows, schema), object) != np.array(rows[DIGEST].to_pylist(), object)
    vectors = np.array(vector_digests(rows["vector"]), object) != np.array(
        rows[VECTOR_DIGEST].to_pylist(), object
    )
    return facts, vectors


def _as_binary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())

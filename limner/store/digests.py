"""Digests of what a store holds: damage that the engine does not see shows by them.

An engine's own checks find a broken file, and no bit that has changed within a value. So each picture's row has a
digest of its facts, which hold the digests of its vector, thumbnail and region features; and with the rows of a table
goes their number and the sum of their digests, by which a row that is gone, or there twice, is found.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Float, UInt64

SIZE = 16
"""Bytes of a digest."""

_MODULUS = 1 << 8 * SIZE


def digest_of(content: bytes | memoryview) -> bytes:
    """Digest of bytes, BLAKE2b, at about 1 GB a second."""
    return blake2b(content, digest_size=SIZE).digest()


def row_digest(values: Sequence[Any]) -> bytes:
    """Digest of the plain values of a row, with their types."""
    # surrogatepass: a damaged text must not stop whoever looks for damage
    return blake2b(repr(tuple(values)).encode("utf-8", "surrogatepass"), digest_size=SIZE).digest()


def vector_sums(vectors: Float[np.ndarray, "rows dim"]) -> list[int]:
    """A sum of each vector's numbers as they stand in memory, each times an odd number of its own; 64 bits, signed.

    One changed bit changes it always, any other damage with a probability of 1 - 2^-32 or more. BLAKE2b takes ten times
    as long, which each opening of a store would wait for.
    """
    words = np.ascontiguousarray(vectors, "<f4").view("<u4")
    # einsum converts a little at a time, where `words.astype(np.uint64) @ …` takes three times as long
    sums: UInt64[np.ndarray, " rows"] = np.einsum("rw,w->r", words, _odd(words.shape[1]))
    # a row of zeros has a sum of its own, too
    sums += np.uint64(words.shape[1])
    signed: list[int] = sums.view(np.int64).tolist()
    return signed


def _odd(count: int) -> UInt64[np.ndarray, " count"]:
    # the mixing of SplitMix64: the sums stand in stores, and a library's generator may change with its version
    numbers = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    odd: UInt64[np.ndarray, " count"] = (numbers ^ (numbers >> np.uint64(27))) | np.uint64(1)
    return odd


def known(digests: Iterable[Any]) -> list[bytes]:
    """Digests of rows that may be damaged: what is of another type counts as nothing in a sum."""
    return [one if isinstance(one, bytes) else b"" for one in digests]


def total_of(digests: Iterable[bytes], start: int = 0) -> int:
    """The sum of digests, in any order."""
    return (start + sum(int.from_bytes(one, "little") for one in digests)) % _MODULUS


def total_without(digests: Iterable[bytes], start: int) -> int:
    """The sum without some digests."""
    return (start - total_of(digests)) % _MODULUS

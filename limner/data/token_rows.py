"""Rows of token ids as networks take them: laid out in a fixed length, shifted, measured.

Source of the position shift: dual-path TOMM 2020, section 3.2.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int64

from limner.types import PADDING, TokenBatch, TokenizedSentence, Word


def lay_out(
    rows: Sequence[Sequence[int]], length: int, *, shift: np.random.Generator | None = None
) -> Int64[np.ndarray, "sentences words"]:
    """Place token ids in rows of fixed length; longer ones lose their end (section 3.2).

    Without `shift` a row begins at 0 (left alignment). With it, the start is uniform over 0 … length − n for a
    sentence of n tokens (position shift).
    """
    out = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, (token_ids, start) in enumerate(zip(rows, _starts(rows, length, shift), strict=True)):
        kept = token_ids[:length]
        out[row, start : start + len(kept)] = kept
    return out


def token_batch(
    sentences: Sequence[TokenizedSentence],
    length: int,
    *,
    phrases: bool = False,
    words: bool = False,
    shift: np.random.Generator | None = None,
) -> TokenBatch:
    """Lay out sentences of at most `length` tokens; their phrases and words, where wanted, move along."""
    starts = _starts([sentence.token_ids for sentence in sentences], length, shift)
    # `PADDING` is 0, which is also "in no phrase".
    token_ids, of_phrases = np.full((2, len(sentences), length), PADDING, dtype=np.int64)
    moved = []
    for row, (sentence, start) in enumerate(zip(sentences, starts, strict=True)):
        place = slice(start, start + len(sentence.token_ids))
        token_ids[row, place] = sentence.token_ids
        of_phrases[row, place] = sentence.phrases or 0
        moved.append(_moved(sentence.words or (), start))
    return TokenBatch(
        token_ids,
        np.array([sentence.truncated for sentence in sentences], np.bool_),
        of_phrases if phrases else None,
        tuple(moved) if words else None,
    )


def _starts(rows: Sequence[Sequence[int]], length: int, shift: np.random.Generator | None) -> list[int]:
    # One draw a row, whatever its length, keeps the stream of random numbers independent of the words.
    draws = np.zeros(len(rows)) if shift is None else shift.random(len(rows))
    # `draw` is below 1, so the last start is as likely as the others and none lies beyond it.
    return [int(draw * (length - min(len(row), length) + 1)) for row, draw in zip(rows, draws, strict=True)]


def _moved(words: Sequence[Word], start: int) -> tuple[Word, ...]:
    return tuple(
        word._replace(tokens=range(word.tokens.start + start, word.tokens.stop + start)) for word in words
    )


def longest(rows: Int64[np.ndarray, "sentences words"]) -> int:
    """Columns up to the last token of any row, at least 1.

    >>> longest(np.array([[7, 0, 0, 0], [7, 8, 0, 0]]))
    2
    """
    used = np.flatnonzero((rows != PADDING).any(axis=0))
    return int(used[-1]) + 1 if len(used) else 1


def place_evenly(
    rows: Int64[np.ndarray, "sentences words"], count: int
) -> tuple[Int64[np.ndarray, "places words"], Int64[np.ndarray, " places"]]:
    """Left-aligned rows with each sentence at `count` places, evenly spread from the left to the right end; 0 is all.

    Returns them and the number of the sentence that each is of, ascending. A sentence with less room has fewer.

    >>> place_evenly(np.array([[7, 8, 0, 0]]), 0)[0].tolist()
    [[7, 8, 0, 0], [0, 7, 8, 0], [0, 0, 7, 8]]
    """
    length = rows.shape[1]
    # Counted, not measured to the last token: rows are left-aligned, so both are the same.
    room = length - np.count_nonzero(rows != PADDING, axis=1)
    starts = [
        np.unique(np.linspace(0, free, min(count or length, free + 1)).round().astype(np.int64))
        for free in room
    ]
    owners = np.repeat(np.arange(len(rows)), [len(places) for places in starts])
    # A row is rolled, not copied: what leaves it at the right is padding, of which there is enough by `room`.
    columns = (np.arange(length) - np.concatenate(starts)[:, None]) % length
    return np.take_along_axis(rows[owners], columns, axis=1), owners


def by_word(
    values: Float[np.ndarray, "..."], words: Sequence[Word], axis: int, *, mean: bool = False
) -> Float[np.ndarray, "..."]:
    """Sum or average an array over the tokens of each word; tokens lie along `axis`.

    A word of one token keeps its value to the bit.
    """
    # `np.stack` refuses an empty list.
    if not words:
        return values.take([], axis)
    parts = [values.take(word.tokens, axis) for word in words]
    return np.stack([part.mean(axis) if mean else part.sum(axis) for part in parts], axis)

"""Words and their numbers: built from the training split only, saved with the model.

A sentence becomes a row of word numbers of fixed length (dual-path TOMM 2020, section 3.2): words missing from the
vocabulary are dropped, at test time as well; a longer sentence loses its last words; a shorter one is
filled with `PADDING`, on the right (*left alignment*) or on both sides at random (*position shift*).
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from jaxtyping import Int64

from limner.errors import DataError

PADDING = 0
"""The word number of an empty position; real words count from 1."""

_WORD = re.compile(r"[^\W_]+")


def words(sentence: str) -> list[str]:
    """Split a sentence into lower-case runs of letters and digits of any script, with their combining marks.

    >>> words("A man's T-shirt, size 42.")
    ['a', 'man', 's', 't', 'shirt', 'size', '42']
    """
    folded = fold(sentence)
    return (_WORD if folded.isascii() else _word_with_marks()).findall(folded)


def fold(text: str) -> str:
    """The form in which words are compared: lower case, composed characters (Unicode's NFC)."""
    return unicodedata.normalize("NFC", text.lower())


@cache
def _word_with_marks() -> re.Pattern[str]:
    """`_WORD` with the vowel signs and accents on its letters, which `re` has no class for.

    Looking for them among all characters takes 0.1 s, once.
    """
    characters = map(chr, range(sys.maxunicode + 1))
    marks = "".join(one for one in characters if unicodedata.category(one).startswith("M"))
    return re.compile(rf"[^\W_]+(?:[{marks}]+[^\W_]*)*")


@dataclass(frozen=True)
class Vocabulary:
    """The known words, most frequent first; the number of `entries[i]` is i + 1."""

    entries: tuple[str, ...]

    @classmethod
    def build(
        cls, sentences: Iterable[str], *, min_count: int = 1, known: Collection[str] | None = None
    ) -> "Vocabulary":
        """Collect the words of the training sentences.

        `min_count` drops words seen less often; `known`, the dictionary of pre-trained word vectors, drops the words
        it lacks (the paper's filter for rare words). Equal counts are ordered alphabetically.
        Raises `DataError` when no word is left.
        """
        counts = Counter(word for sentence in sentences for word in words(sentence))
        kept = [
            word
            for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            if count >= min_count and (known is None or word in known)
        ]
        if not kept:
            raise DataError(
                f"no word is left for the vocabulary: {len(counts)} words in the training sentences, min_count "
                f"{min_count}{'' if known is None else f', {len(known)} words with vectors'}; lower min_count or "
                "check the captions"
            )
        return cls(tuple(kept))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.entries, start=1)}

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def numbers(self, sentence: str) -> list[int]:
        """The word numbers of a sentence, unknown words left out."""
        return [self._numbers[word] for word in words(sentence) if word in self._numbers]

    def with_words(self, more: Iterable[str]) -> "Vocabulary":
        """The same with further words behind, such as those that a pretrained encoder knows."""
        return Vocabulary(tuple(dict.fromkeys((*self.entries, *more))))

    def encode(
        self, sentences: Sequence[str], length: int, *, shift: np.random.Generator | None = None
    ) -> Int64[np.ndarray, "sentences words"]:
        """Rows of `length` word numbers; with `shift`, each sentence starts at a random position that fits it."""
        return lay_out([self.numbers(sentence) for sentence in sentences], length, shift=shift)


def lay_out(
    rows: Sequence[Sequence[int]], length: int, *, shift: np.random.Generator | None = None
) -> Int64[np.ndarray, "sentences words"]:
    """Place word numbers in rows of fixed length (section 3.2).

    Without `shift` a row begins at 0 (left alignment). With it, the start is uniform over 0 … length − n for a
    sentence of n words (position shift); one draw is used per row whatever its length, so that the stream
    of random numbers does not depend on the words.
    """
    out = np.full((len(rows), length), PADDING, dtype=np.int64)
    draws = np.zeros(len(rows)) if shift is None else shift.random(len(rows))
    for row, (numbers, draw) in enumerate(zip(rows, draws, strict=True)):
        kept = numbers[:length]
        start = int(draw * (length - len(kept) + 1))
        out[row, start : start + len(kept)] = kept
    return out


def longest(rows: Int64[np.ndarray, "sentences words"]) -> int:
    """Columns up to the last word of any row, at least 1.

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
    room = length - np.count_nonzero(rows != PADDING, axis=1)
    starts = [
        np.unique(np.linspace(0, free, min(count or length, free + 1)).round().astype(np.int64))
        for free in room
    ]
    owners = np.repeat(np.arange(len(rows)), [len(own) for own in starts])
    columns = (np.arange(length) - np.concatenate(starts)[:, None]) % length
    return np.take_along_axis(rows[owners], columns, axis=1), owners

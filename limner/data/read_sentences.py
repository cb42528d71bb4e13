"""Sentences as networks read them: the numbers of their words, and for some the noun phrase that each word is in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int64

from limner.data.noun_phrases import phrase_numbers
from limner.data.vocabulary import Vocabulary, lay_out, words


@dataclass(frozen=True)
class ReadSentences:
    """Rows of word numbers, at the left.

    - `phrases`: of each word the number of its noun phrase, from 1, 0 = in none; None where they are not asked for.
    """

    numbers: Int64[np.ndarray, "sentences words"]
    phrases: Int64[np.ndarray, "sentences words"] | None = None

    @classmethod
    def of(
        cls, sentences: Sequence[str], vocabulary: Vocabulary, length: int, *, phrases: bool = False
    ) -> "ReadSentences":
        """Read sentences into rows of `length` words."""
        numbers = vocabulary.encode(sentences, length)
        if not phrases:
            return cls(numbers)
        return cls(numbers, lay_out([phrases_of(sentence, vocabulary) for sentence in sentences], length))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice | Int[np.ndarray, " rows"]) -> "ReadSentences":
        return ReadSentences(self.numbers[rows], None if self.phrases is None else self.phrases[rows])


def phrases_of(sentence: str, vocabulary: Vocabulary) -> list[int]:
    """For each word that the vocabulary keeps, the number of the noun phrase it is in, from 1; 0 = in none."""
    return phrase_numbers(sentence, [word in vocabulary for word in words(sentence)])

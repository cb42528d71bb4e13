"""Word vectors: read from a file, or learnt from the training captions.

The paper starts its word table from word2vec (dual-path TOMM 2020, section 3.2 and Table 6). Where no such
file is at hand, `learn_word_vectors` makes vectors of the training captions themselves: a **departure**.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from limner.data.tokenizers import WordTokenizer
from limner.data.words import fold
from limner.errors import DataError, SettingsError, install_hint

_MOST_WORDS = 30_000
"""Largest vocabulary that vectors are learnt for: a float32 for each two words, 3.6 GB."""

_BLOCK = 256
"""Rows of that matrix that are computed at once."""


def read_word_vectors(path: Path, wanted: Iterable[str]) -> dict[str, Float[np.ndarray, " word_dim"]]:
    """The vectors of the wanted words, from word2vec (`.bin`, `.bin.gz`, or text with a header line) or GloVe text.

    A file without a header line is read as GloVe; a word of it may hold blanks, as `. . .` in `glove.840B.300d.txt`
    does. A wanted word gets the first row of exactly that word; failing that, the first that equals it in lower
    case (`us` gets that of `us`, not that of `US`). Raises `DataError` when the file is missing, damaged or
    holds none of the words.
    """
    names = set(wanted)
    if not path.is_file():
        raise DataError(f"{path}: no such file of word vectors")
    rows = _binary_rows(path) if path.name.endswith((".bin", ".bin.gz")) else _text_rows(path)
    exact: dict[str, Float[np.ndarray, " word_dim"]] = {}
    folded: dict[str, Float[np.ndarray, " word_dim"]] = {}
    try:
        for number, word, values in rows:
            # Cased files have "US" and "us" in any order: a word's own row beats the order of the file.
            key, found = (word, exact) if word in names else (fold(word), folded)
            if key in names and key not in found:
                found[key] = _vector(number, values)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: not word2vec or GloVe vectors ({error})") from None
    if not exact and not folded:
        raise DataError(f"{path}: none of the {len(names)} words of the captions has a vector here")
    # The right one wins where both have the word.
    return folded | exact


def _text_rows(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, word and its numbers, still as text: few rows are wanted, and reading numbers takes longest."""
    width = 0
    # Only "\n" ends a line: a word may hold other line ends of Unicode.
    # One broken character in a word list from the web must not refuse the file.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            row = line.rstrip()
            if number == 1 and re.fullmatch(r"[0-9]+ [0-9]{1,9}", row):
                width = int(row.split(" ")[1])
                continue
            # From the end, because a word may hold blanks. GloVe has no header that says how many numbers follow.
            width = width or len(list(takewhile(_is_number, reversed(row.split(" ")[1:]))))
            word, *values = row.rsplit(" ", width)
            # A number at the end of the word is one too many.
            if not width or len(values) != width or not _is_number(values[0]) or _ends_in_number(word):
                raise ValueError(
                    f"line {number}: expected a word and {width or 'its'} numbers, got {row[:40]!r}"
                )
            yield number, word, values


def _vector(
    number: int, values: Sequence[str] | Float[np.ndarray, " word_dim"]
) -> Float[np.ndarray, " word_dim"]:
    try:
        return np.array(values, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ends_in_number(word: str) -> bool:
    return " " in word and _is_number(word.rpartition(" ")[2])


def _binary_rows(path: Path) -> Iterator[tuple[int, str, Float[np.ndarray, " word_dim"]]]:
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        raise DataError(f"{path}: binary word2vec needs gensim; {install_hint('vectors')}") from None
    # gensim reads the whole table: 3.6 GB of float32 for word2vec's 3 million words of 300 numbers.
    table = KeyedVectors.load_word2vec_format(str(path), binary=True)
    for number, word in enumerate(table.index_to_key, start=1):
        yield number, word, table[word]


def learn_word_vectors(
    sentences: Iterable[str], tokenizer: WordTokenizer, *, dim: int = 300, window: int = 5, seed: int = 0
) -> Float[np.ndarray, "vocabulary word_dim"]:
    """Vectors of a tokenizer's words from the captions they stand in, row i for token id i + 1.

    Positive pointwise mutual information of words within `window` positions (a pair d apart counts 1/d, contexts
    smoothed by the power 0.75), factored by a truncated singular value decomposition, U·√Σ: Levy, Goldberg and Dagan,
    "Improving distributional similarity with lessons learned from word embeddings" (TACL 2015), sections
    3.1–3.3. Rows have unit length on average. Vocabularies smaller than `dim` leave the last columns 0.

    Takes one matrix of vocabulary² float32. Raises `SettingsError` for more than 30,000 words.
    """
    size = tokenizer.size
    if size > _MOST_WORDS:
        raise SettingsError(
            f"setting 'vocabulary.vectors': captions can give vectors to at most {_MOST_WORDS:,} words, and the "
            f"vocabulary has {size:,}; raise vocabulary.min_count"
        )
    counts = np.zeros((size, size), dtype=np.float32)
    for sentence in sentences:
        rows = np.array(tokenizer.token_ids(sentence), np.int64) - 1
        for distance in range(1, min(window, len(rows) - 1) + 1):
            # Not `+=`, which counts a pair once however often it stands in the sentence.
            # Later words only: `_to_information` adds the transpose, so a pair is not counted from both ends here.
            np.add.at(counts, (rows[:-distance], rows[distance:]), 1.0 / distance)
    _to_information(counts)
    positive = torch.from_numpy(counts)
    rank = min(dim, size)
    # `svd_lowrank` draws from the global generator and takes no other; callers must not notice.
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    # Exact only within what it samples: ten columns more than wanted, and four power iterations where
    # torch's default is two.
    left, values, _ = torch.svd_lowrank(positive, q=min(size, rank + 10), niter=4)
    torch.random.set_rng_state(generator_state)
    # A small vocabulary has fewer directions than `dim`; the network's width is fixed all the same.
    vectors = np.zeros((size, dim), dtype=np.float32)
    vectors[:, :rank] = (left[:, :rank] * values[:rank].sqrt()).numpy()
    lengths = np.linalg.norm(vectors, axis=1)
    # One factor for all rows, which keeps their lengths to each other.
    return vectors / max(float(lengths.mean()), 1e-12)


def _to_information(counts: Float[np.ndarray, "vocabulary vocabulary"]) -> None:
    """Turn counts of (word, later word) into positive pointwise mutual information, in place: two would not fit."""
    starts = range(0, len(counts), _BLOCK)
    for start in starts:
        rows = slice(start, start + _BLOCK)
        # From the diagonal on, each block with its mirror image: no count is added twice.
        both = counts[rows, start:] + counts[start:, rows].T
        counts[rows, start:], counts[start:, rows] = both, both.T
    context = counts.sum(axis=0) ** 0.75
    share = context / max(context.sum(), 1e-12)
    totals = counts.sum(axis=1, keepdims=True)
    for start in starts:
        rows = slice(start, start + _BLOCK)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Pairs that never meet give log 0; they are set to 0 in the next line.
            information = np.log(counts[rows] / (totals[rows] * share))
        counts[rows] = np.where(counts[rows] > 0, np.maximum(information, 0.0), 0.0)

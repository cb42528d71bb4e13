"""Word vectors: read from a file, or learnt from the training captions.

The paper starts its word table from word2vec (dual-path TOMM 2020, section 3.2 and Table 6). Where no such
file is at hand, `learn_word_vectors` makes vectors of the training captions themselves: a **departure**.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from limner.data.vocabulary import Vocabulary, words
from limner.errors import DataError


def read_word_vectors(path: Path, wanted: Iterable[str]) -> dict[str, Float[np.ndarray, " word_dim"]]:
    """The vectors of the wanted words, from word2vec (`.bin`, or text with a header line) or GloVe text.

    A file without a header line is read as GloVe. Words are matched in lower case, the first row wins. Raises
    `DataError` when the file is missing, damaged or holds none of the words.
    """
    names = set(wanted)
    if not path.is_file():
        raise DataError(f"{path}: no such file of word vectors")
    try:
        found = _read_binary(path, names) if path.suffix == ".bin" else _read_text(path, names)
    except (ValueError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not word2vec or GloVe vectors ({error})") from None
    if not found:
        raise DataError(f"{path}: none of the {len(names)} words of the captions has a vector here")
    return found


def _read_text(path: Path, names: set[str]) -> dict[str, Float[np.ndarray, " word_dim"]]:
    found: dict[str, Float[np.ndarray, " word_dim"]] = {}
    width: int | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1 and word.isdigit() and values[0].isdigit():
                continue
            width = width or len(values)
            if len(values) != width:
                raise ValueError(f"line {number}: {len(values)} numbers, expected {width}")
            key = word.lower()
            if key in names and key not in found:
                found[key] = np.array(values, dtype=np.float32)
    return found


def _read_binary(path: Path, names: set[str]) -> dict[str, Float[np.ndarray, " word_dim"]]:
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        raise DataError(f"{path}: binary word2vec needs gensim; pip install 'limner[vectors]'") from None
    table = KeyedVectors.load_word2vec_format(str(path), binary=True)
    found: dict[str, Float[np.ndarray, " word_dim"]] = {}
    for word in table.index_to_key:
        key = word.lower()
        if key in names and key not in found:
            found[key] = np.asarray(table[word], dtype=np.float32)
    return found


def learn_word_vectors(
    sentences: Iterable[str], vocabulary: Vocabulary, *, dim: int = 300, window: int = 5, seed: int = 0
) -> Float[np.ndarray, "vocabulary word_dim"]:
    """Vectors of a vocabulary's words from the captions they stand in, row i for word number i + 1.

    Positive pointwise mutual information of words within `window` positions (a pair d apart counts 1/d, contexts
    smoothed by the power 0.75), factored by a truncated singular value decomposition, U·√Σ: Levy, Goldberg and Dagan,
    "Improving distributional similarity with lessons learned from word embeddings" (TACL 2015), sections
    3.1–3.3. Rows have unit length on average. Vocabularies smaller than `dim` leave the last columns 0.
    """
    size = len(vocabulary)
    counts = np.zeros((size, size), dtype=np.float32)
    for sentence in sentences:
        numbers = np.array(
            [vocabulary.numbers(word)[0] - 1 for word in words(sentence) if word in vocabulary]
        )
        for distance in range(1, min(window, len(numbers) - 1) + 1):
            np.add.at(counts, (numbers[:-distance], numbers[distance:]), 1.0 / distance)
    counts += counts.T
    context = counts.sum(axis=0) ** 0.75
    expected = counts.sum(axis=1, keepdims=True) * (context / max(context.sum(), 1e-12))
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(counts / expected)
    positive = torch.from_numpy(np.where(counts > 0, np.maximum(information, 0.0), 0.0))
    rank = min(dim, size)
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    left, values, _ = torch.svd_lowrank(positive, q=min(size, rank + 10), niter=4)
    torch.random.set_rng_state(generator_state)
    vectors = np.zeros((size, dim), dtype=np.float32)
    vectors[:, :rank] = (left[:, :rank] * values[:rank].sqrt()).numpy()
    lengths = np.linalg.norm(vectors, axis=1)
    return vectors / max(float(lengths.mean()), 1e-12)

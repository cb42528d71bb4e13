from pathlib import Path

import numpy as np
import pytest

from limner.data.vocabulary import Vocabulary
from limner.data.word_vectors import learn_word_vectors, read_word_vectors
from limner.errors import DataError


def test_glove_and_word2vec_text(tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("red 1 2\nBlue 3 4\nred 9 9\n", encoding="utf-8")
    found = read_word_vectors(glove, ["red", "blue", "green"])
    assert {word: row.tolist() for word, row in found.items()} == {"red": [1, 2], "blue": [3, 4]}
    with_header = tmp_path / "w2v.txt"
    with_header.write_text("1 2\nred 1 2\n", encoding="utf-8")
    assert read_word_vectors(with_header, ["red"])["red"].tolist() == [1, 2]


def test_word2vec_binary(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    file = tmp_path / "w2v.bin"
    row = np.array([0.5, -2], np.float32).tobytes()
    file.write_bytes(b"2 2\nred " + row + b"\nBlue " + row + b"\n")
    assert read_word_vectors(file, ["blue"])["blue"].tolist() == [0.5, -2]


@pytest.mark.parametrize("text", ["red 1 2\nblue 3\n", "red a b\n", ""])
def test_damaged_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"vectors\.txt"):
        read_word_vectors(file, ["red", "blue"])
    with pytest.raises(DataError, match="no such file"):
        read_word_vectors(tmp_path / "none.txt", ["red"])


def test_words_in_like_places_get_like_vectors() -> None:
    colours, things = ["red", "blue", "green"], ["shirt", "dress", "coat"]
    sentences = [f"a person wears a {colour} {thing} today" for colour in colours for thing in things] * 3
    vocabulary = Vocabulary.build(sentences)
    vectors = learn_word_vectors(sentences, vocabulary, dim=8, seed=0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    row = {word: unit[number] for number, word in enumerate(vocabulary.entries)}
    assert row["red"] @ row["blue"] > row["red"] @ row["shirt"]
    assert row["coat"] @ row["dress"] > row["coat"] @ row["blue"]
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(vectors, learn_word_vectors(sentences, vocabulary, dim=8, seed=0))


def test_small_vocabularies_fill_with_zeros() -> None:
    vocabulary = Vocabulary.build(["red shirt"])
    assert learn_word_vectors(["red shirt"], vocabulary, dim=10).shape == (2, 10)

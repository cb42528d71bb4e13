import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from limner.data.tokenizers import WordTokenizer
from limner.data.word_vectors import _to_information, learn_word_vectors, read_word_vectors
from limner.errors import DataError, SettingsError


def test_glove_and_word2vec_text(tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("red 1 2\nBlue 3 4\nred 9 9\n", encoding="utf-8")
    found = read_word_vectors(glove, ["red", "blue", "green"])
    assert {word: row.tolist() for word, row in found.items()} == {"red": [1, 2], "blue": [3, 4]}
    with_header = tmp_path / "w2v.txt"
    with_header.write_text("1 2\nred 1 2\n", encoding="utf-8")
    assert read_word_vectors(with_header, ["red"])["red"].tolist() == [1, 2]


def test_a_word_of_glove_may_hold_blanks(tmp_path: Path) -> None:
    glove = tmp_path / "glove.840B.2d.txt"
    rows = ["red 1 2", ". . . -0.1 7e-2", "at name@domain.com 5 6", "a\x85b\u2028c 0 0", "blue 3 4"]
    glove.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    found = read_word_vectors(glove, ["red", "blue", "at"])
    assert {word: row.tolist() for word, row in found.items()} == {"red": [1, 2], "blue": [3, 4]}
    glove.write_text("\n".join(rows[1:]), encoding="utf-8", newline="\n")
    assert read_word_vectors(glove, ["blue"])["blue"].tolist() == [3, 4]


@pytest.mark.parametrize("name", ["w2v.bin", "w2v.bin.gz"])
def test_word2vec_binary(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    file = tmp_path / name
    row = np.array([0.5, -2], np.float32).tobytes()
    content = b"2 2\nred " + row + b"\nBlue " + row + b"\n"
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_word_vectors(file, ["blue"])["blue"].tolist() == [0.5, -2]


ROWS = (("US", 1), ("Rom", 2), ("us", 3), ("ROM", 4), ("us", 5), ("Cafe\u0301", 6))
WANTED = ("us", "rom", "café", "them")
MATCHED = {"us": [3, 3], "rom": [2, 2], "café": [6, 6]}


def test_the_word_itself_beats_another_case_of_it_in_text(tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("".join(f"{word} {value} {value}\n" for word, value in ROWS), encoding="utf-8")
    found = read_word_vectors(file, WANTED)
    assert {word: row.tolist() for word, row in found.items()} == MATCHED


def test_the_word_itself_beats_another_case_of_it_in_a_binary(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    file = tmp_path / "w2v.bin"
    rows = [
        word.encode() + b" " + np.full(2, value, np.float32).tobytes() for word, value in ROWS if value != 5
    ]
    file.write_bytes(b"5 2\n" + b"\n".join(rows))
    found = read_word_vectors(file, WANTED)
    assert {word: row.tolist() for word, row in found.items()} == MATCHED


def test_a_packed_binary_of_many_words_and_a_damaged_one(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    vectors = np.random.default_rng(0).random((3000, 30), np.float32)
    rows = [f"w{number} ".encode() + row.tobytes() + b"\n" for number, row in enumerate(vectors)]
    packed = gzip.compress(b"3000 30\n" + b"".join(rows))
    file = tmp_path / "GoogleNews-vectors-negative300.bin.gz"
    file.write_bytes(packed)
    found = read_word_vectors(file, ["w0", "w2999"])
    np.testing.assert_array_equal([found["w0"], found["w2999"]], vectors[[0, -1]])
    middle = len(packed) // 2
    damaged = (packed[:middle], b"3000 30\n" + packed, packed[:middle] + bytes(99) + packed[middle + 99 :])
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"bin\.gz: not word2vec"):
            read_word_vectors(file, ["w0"])


@pytest.mark.parametrize("text", ["red 1 2\nblue 3\n", "red a b\n", ""])
def test_damaged_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"vectors\.txt"):
        read_word_vectors(file, ["red", "blue"])
    with pytest.raises(DataError, match="no such file"):
        read_word_vectors(tmp_path / "none.txt", ["red"])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("blue 3", "expected a word and 2 numbers, got 'blue 3'"),
        ("blue 3 4 5", "expected a word and 2 numbers, got 'blue 3 4 5'"),
        ("at name@domain.com 3", "expected a word and 2 numbers"),
        ("blue 3 four", "'four'"),
        ("", "got ''"),
    ],
)
@pytest.mark.parametrize("first", ["2 2", "grey 1 2"])
def test_a_damaged_row_is_named(first: str, row: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(f"{first}\nred 1 2\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"line 3: .*{re.escape(said)}"):
        read_word_vectors(file, ["red", "blue"])


def test_words_in_like_places_get_like_vectors() -> None:
    colours, things = ["red", "blue", "green"], ["shirt", "dress", "coat"]
    sentences = [f"a person wears a {colour} {thing} today" for colour in colours for thing in things] * 3
    vocabulary = WordTokenizer.build(sentences)
    vectors = learn_word_vectors(sentences, vocabulary, dim=8, seed=0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    row = {word: unit[number] for number, word in enumerate(vocabulary.entries)}
    assert row["red"] @ row["blue"] > row["red"] @ row["shirt"]
    assert row["coat"] @ row["dress"] > row["coat"] @ row["blue"]
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(vectors, learn_word_vectors(sentences, vocabulary, dim=8, seed=0))


def test_small_vocabularies_fill_with_zeros() -> None:
    vocabulary = WordTokenizer.build(["red shirt"])
    assert learn_word_vectors(["red shirt"], vocabulary, dim=10).shape == (2, 10)


def whole_information(counts: np.ndarray) -> np.ndarray:
    """Levy, Goldberg and Dagan's definition on whole matrices."""
    counts = counts + counts.T
    context = counts.sum(axis=0) ** 0.75
    expected = counts.sum(axis=1, keepdims=True) * (context / context.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(counts / expected)
    return np.where(counts > 0, np.maximum(information, 0.0), 0.0)


@pytest.mark.parametrize("size", [1, 7, 8, 61])
def test_blocks_of_rows_give_the_bits_of_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.data.word_vectors._BLOCK", 8)
    rng = np.random.default_rng(size)
    counts = (rng.poisson(0.3, (size, size)) * rng.random((size, size))).astype(np.float32)
    counts[0, 0] = 1
    counts[1:2] = counts[:, 1:2] = 0
    expected = whole_information(counts)
    _to_information(counts)
    assert counts.tobytes() == expected.tobytes()


def test_a_vocabulary_whose_counts_do_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.data.word_vectors._MOST_WORDS", 2)
    learn_word_vectors(["red shirt"], WordTokenizer(("red", "shirt")), dim=2)
    with pytest.raises(
        SettingsError, match=r"at most 2 words, and the vocabulary has 3; raise vocabulary\.min_count"
    ):
        learn_word_vectors(["red shirt"], WordTokenizer(("red", "shirt", "blue")), dim=2)

import re
import unicodedata
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.vocabulary import PADDING, Vocabulary, lay_out, place_evenly, words
from limner.errors import DataError


def test_words_are_lower_case_runs_of_letters_and_digits() -> None:
    assert words("A man's T-shirt_x, size 42. Größe!") == [
        "a",
        "man",
        "s",
        "t",
        "shirt",
        "x",
        "size",
        "42",
        "größe",
    ]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("लाल कमीज़ में एक आदमी।", ["लाल", "कमीज़", "में", "एक", "आदमी"]),
        ("một người mặc áo đỏ", ["một", "người", "mặc", "áo", "đỏ"]),
        ("ผู้ชาย, เสื้อสีแดง", ["ผู้ชาย", "เสื้อสีแดง"]),
        ("Café_Ångström 2", ["café", "ångström", "2"]),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_marks_stay_in_words_and_the_coding_of_accents_does_not_matter(
    form: Literal["NFC", "NFD"], sentence: str, expected: list[str]
) -> None:
    assert words(unicodedata.normalize(form, sentence)) == [
        unicodedata.normalize("NFC", word) for word in expected
    ]


def test_a_mark_on_no_letter_is_no_word() -> None:
    assert words("\u0301 ☺\ufe0f -\u0301a\u0301") == ["á"]


@given(st.text(st.characters(codec="latin-1") | st.sampled_from("ĀăČđğŁœŠșŽẞ"), max_size=30))
def test_composed_latin_text_is_split_at_all_but_letters_and_digits(sentence: str) -> None:
    assert words(sentence) == re.findall(r"[^\W_]+", sentence.lower())


@given(st.text(max_size=30))
def test_words_are_their_own_words(sentence: str) -> None:
    found = words(sentence)
    assert words(" ".join(found)) == found


def test_most_frequent_first_and_ties_by_letter() -> None:
    vocabulary = Vocabulary.build(["b a c", "c b", "c"])
    assert vocabulary.entries == ("c", "b", "a")
    assert vocabulary.numbers("A zebra C") == [3, 1]
    assert "zebra" not in vocabulary


def test_min_count_and_known_words() -> None:
    assert Vocabulary.build(["b a c", "c b"], min_count=2).entries == ("b", "c")
    assert Vocabulary.build(["b a c"], known={"a"}).entries == ("a",)
    with pytest.raises(DataError, match="no word is left"):
        Vocabulary.build(["a"], min_count=2)


def test_left_alignment_and_clipping() -> None:
    assert lay_out([[1, 2], [3, 4, 5, 6]], 3).tolist() == [[1, 2, PADDING], [3, 4, 5]]


@given(st.lists(st.lists(st.integers(1, 99), max_size=8), max_size=6), st.integers(1, 10), st.integers(0, 99))
def test_shift_keeps_order_and_drops_only_the_end(rows: list[list[int]], length: int, seed: int) -> None:
    out = lay_out(rows, length, shift=np.random.default_rng(seed))
    assert out.shape == (len(rows), length)
    for row, numbers in zip(out, rows, strict=True):
        kept = numbers[:length]
        places = np.flatnonzero(row)
        assert row[places].tolist() == kept
        assert not len(kept) or places.tolist() == list(range(places[0], places[0] + len(kept)))


def test_shift_reaches_every_position_alike() -> None:
    out = lay_out([[7, 8]] * 4000, 5, shift=np.random.default_rng(0))
    starts = np.bincount((out == 7).argmax(axis=1), minlength=5)
    assert starts[4] == 0
    assert (abs(starts[:4] - 1000) < 130).all()


def test_sentences_are_placed_evenly() -> None:
    rows = lay_out([[1, 2], [3, 4, 5, 6, 7], [], [8]], 5)
    every, owners = place_evenly(rows, 0)
    assert every[owners == 0].tolist() == [[1, 2, 0, 0, 0], [0, 1, 2, 0, 0], [0, 0, 1, 2, 0], [0, 0, 0, 1, 2]]
    assert every[owners == 1].tolist() == [[3, 4, 5, 6, 7]]
    assert not every[owners == 2].any()
    assert np.bincount(owners).tolist() == [4, 1, 5, 5]
    three, owners = place_evenly(rows, 3)
    assert three[owners == 3].tolist() == [[8, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 0, 0, 8]]
    one, owners = place_evenly(rows, 1)
    np.testing.assert_array_equal(one, rows)

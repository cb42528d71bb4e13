import re
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.words import WIDE, as_it_looks, fold, seen_places, word_spans, words


def test_words_are_lower_case_runs_of_letters_and_digits() -> None:
    assert words("A man's T-shirt_x, size 42. Größe!") == [
        *("a", "man", "s", "t", "shirt", "x", "size", "42", "größe"),
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
    assert words(sentence) == re.findall(r"[^\W_]+", sentence.replace("\u00ad", "").lower())


@given(st.text(max_size=30))
def test_words_are_their_own_words(sentence: str) -> None:
    found = words(sentence)
    assert words(" ".join(found)) == found


UNSEEN = "\u00ad\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff"


@given(st.text("a red coat, 42 é Я!"), st.data())
def test_what_nobody_sees_is_not_read(sentence: str, data: st.DataObject) -> None:
    places = data.draw(
        st.lists(st.tuples(st.integers(0, len(sentence)), st.sampled_from(UNSEEN)), max_size=6)
    )
    shown = list(sentence)
    for place, letter in sorted(places, reverse=True):
        shown.insert(place, letter)
    assert as_it_looks("".join(shown)) == sentence
    assert words("".join(shown)) == words(sentence)
    wide = "".join(chr(ord(one) + 0xFEE0) if one.isascii() and one.isalnum() else one for one in shown)
    assert words(wide) == words(sentence)
    spans = [wide[span.start : span.stop] for span in word_spans(wide)]
    assert [word for span in spans for word in words(span)] == words(sentence)


@pytest.mark.parametrize(
    "text", ["می‌خواهم", "क्‍ष", "👩\u200d🎨", "ខ្ញុំ\u200bស្រឡាញ់", "一个人，红衣服。", "\u3000", "ﾊﾝｶｸ", "½ ﬁ ²"]
)
def test_signs_without_width_stay_where_they_mean_something(text: str) -> None:
    assert as_it_looks(text) == text


@given(st.text() | st.text("aक\u200b\u200d\u200e\u00adａ", max_size=9))
def test_as_it_looks_says_where_its_characters_stand(text: str) -> None:
    looks = as_it_looks(text)
    assert as_it_looks(looks) == looks
    assert "".join(text[place] for place in seen_places(text)).translate(WIDE) == looks


def same(word: str) -> str:
    """A word without the difference between the two small sigmas, which depends on what follows the word."""
    return word.replace("ς", "σ")


@given(
    st.text(max_size=40)
    | st.text("aÀ\u0300\u0323İΣσ'. _-각\u1100\u1161\u11a8\u0958\u09c7\u09be½ﬁ", max_size=12)
)
def test_spans_slice_the_sentence_to_its_words(sentence: str) -> None:
    spans = word_spans(sentence)
    assert [span.text for span in spans] == words(sentence)
    assert [same(fold(sentence[span.start : span.stop])) for span in spans] == [
        same(span.text) for span in spans
    ]
    ends = [0, *(end for span in spans for end in (span.start, span.stop)), len(sentence)]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    "first",
    [
        *("I\u0307", "İki", "cafe\u0301s", "a\u0315\u0301\u0323", "\u1100\u1161\u11a8", "ক\u09c7\u09be"),
        *("\u0958", "ΑΣ"),
    ],
)
def test_spans_count_the_characters_of_the_sentence_as_it_was_given(first: str) -> None:
    # What folding makes of the first word is longer or shorter than it; the words behind tell whether that was counted.
    sentence = f"{first} b, {first}_c"
    assert [sentence[span.start : span.stop] for span in word_spans(sentence)] == [first, "b", first, "c"]
    assert [span.text for span in word_spans(sentence)] == words(sentence)

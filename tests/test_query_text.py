"""Descriptions as people type them: what is taken away, what counts more, and what stays of the sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.query_text import read_query

READ = {
    "a beach without people": ("a beach", {"people": -0.5}),
    "a beach -people": ("a beach", {"people": -0.5}),
    'a beach -"a big dog" at night': ("a beach at night", {"a big dog": -0.5}),
    "a beach −people": ("a beach", {"people": -0.5}),
    "a woman without a hat or bag in a red coat": ("a woman in a red coat", {"a hat": -0.5, "bag": -0.5}),
    "a man with no shoes and socks, walking": ("a man, walking", {"shoes": -0.5, "socks": -0.5}),
    "a woman without a bag and with a hat": ("a woman and with a hat", {"a bag": -0.5}),
    "A street Without cars": ("A street", {"cars": -0.5}),
    "2*red car": ("red car", {"red": 1.0}),
    '0.5*"red car" street': ("red car street", {"red car": -0.5}),
    "3*red car -people without trees": ("red car", {"red": 2.0, "people": -0.5, "trees": -0.5}),
    "a man without a bag or hat 2*red -cars": (
        "a man red",
        {"a bag": -0.5, "hat": -0.5, "red": 1.0, "cars": -0.5},
    ),
    "-people": ("", {"people": -0.5}),
    # sentences that take nothing away
    "a woman in a t-shirt": None,
    "a man - tall and thin": None,
    "2 -3 people": None,
    "a man who is not on a bike": None,
    "without": None,
    "a street without": None,
    "20*red": None,
    '-"" a dog': None,
}


@pytest.mark.parametrize("text", READ)
def test_what_a_text_means(text: str) -> None:
    read = READ[text]
    wanted, terms, _ = read_query(text)
    assert wanted == (text if read is None else read[0])
    assert {term.text: term.weight for term in terms} == ({} if read is None else read[1])
    # a page marks them, and takes them out
    assert all(term.text.split()[-1] in text[term.start : term.end] for term in terms)


def test_what_stands_in_quotes() -> None:
    assert read_query('a van "red cross" -"a dog" “in oslo”') == (
        "a van red cross in oslo",
        read_query('a van "red cross" -"a dog"').terms,
        ("red cross", "in oslo"),
    )


def test_at_most_eight_terms() -> None:
    wanted, terms, _ = read_query("a dog " + " ".join(f"-{letter}x" for letter in "abcdefghij"))
    assert len(terms) == 8
    assert wanted == "a dog -ix -jx"


PARTS = st.lists(
    st.sampled_from(
        ["a dog", "without", "-cat", '-"a b"', "2*red", ",", "or", "and", "in", "ünder", "“q”", "-", "*"]
    ),
    max_size=14,
).map(" ".join)


@given(PARTS | st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    """What is left has no term's words of its own, and reading it again finds no sign that was read before."""
    wanted, terms, quoted = read_query(text)
    assert all(term.text.strip() == term.text != "" for term in terms)
    assert all(0 <= term.start < term.end <= len(text) for term in terms)
    if not terms and not quoted:
        assert wanted == text
    else:
        assert len(wanted) < len(text)

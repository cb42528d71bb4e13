from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ImageFont

from limner.search.contact_sheet import drawable, wrap

FONT = ImageFont.load_default(15)


@settings(max_examples=60)
@given(st.text(alphabet="abc dé\n\t\x00–", max_size=120), st.integers(30, 200))
def test_lines_fit_and_lose_no_letter(text: str, width: int) -> None:
    lines = wrap(text, FONT, width, 1000)
    assert all(0 < FONT.getlength(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(drawable(text.replace("\0", "")).split())


def test_words_are_kept_whole_where_they_fit() -> None:
    assert wrap("a long red coat", FONT, round(FONT.getlength("a long red") + 0.5), 9) == [
        "a long red",
        "coat",
    ]


def test_what_does_not_fit_ends_in_an_ellipsis() -> None:
    lines = wrap("word " * 100_000, FONT, 100, 2)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert FONT.getlength(lines[1]) <= 100
    assert wrap("x" * 50, FONT, 40, 1)[0].endswith("x…")
    assert wrap("", FONT, 40, 1) == wrap(" \n", FONT, 40, 1) == []

import json
from pathlib import Path
from typing import Any

import pytest

from limner.data.people import generate_people
from limner.data.people.sentences import words_of
from tests.data.people.reader import claims_of, is_true


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any], list[str]]]:
    """(identity's record, view's record, sentences) of a small set."""
    folder: Path = tmp_path_factory.mktemp("people")
    generate_people(folder, 60, seed=5, views=(3, 4))
    records = {record["file_path"]: record for record in json.loads((folder / "reid_raw.json").read_text())}
    about = json.loads((folder / "attributes.json").read_text())["identities"]
    return [
        (identity, view, records[view["file_path"]]["captions"])
        for identity in about
        for view in identity["views"]
    ]


def test_reader_reads_a_sentence() -> None:
    claims = claims_of(
        "A man with short black hair wears an open red and white striped jacket with a blue t-shirt underneath, "
        "a pair of brown shorts and gray trainers, and carries a small pink handbag."
    )
    assert claims == {
        ("sex", "man"),
        ("hair", "short"),
        ("hair_colour", "black"),
        ("upper", "jacket"),
        ("upper_colour", "red"),
        ("pattern", ("stripes", "white")),
        ("inner", "blue"),
        ("lower", "shorts"),
        ("lower_colour", "brown"),
        ("shoes", "sneakers"),
        ("shoes_colour", "grey"),
        ("bag", ("handbag", "pink")),
    }
    with pytest.raises(ValueError, match="enormous"):
        claims_of("A man with an enormous hat.")


def test_nothing_false_and_nothing_unseen_is_said(
    views: list[tuple[dict[str, Any], dict[str, Any], list[str]]],
) -> None:
    for identity, view, captions in views:
        for caption in captions:
            for claim in claims_of(caption):
                assert is_true(claim, identity["attributes"], view["walking"]), (caption, claim, view)
                assert claim[0] in view["visible"] or claim[0] == "walking", (caption, claim, view)


def test_two_or_more_different_sentences_a_picture(
    views: list[tuple[dict[str, Any], dict[str, Any], list[str]]],
) -> None:
    for _, _, captions in views:
        assert len(captions) >= 2
        assert len(set(captions)) == len(captions)
        assert all(caption[0].isupper() and caption.endswith(".") for caption in captions)


def test_most_sentences_name_enough_to_decide(
    views: list[tuple[dict[str, Any], dict[str, Any], list[str]]],
) -> None:
    counts = [len(claims_of(caption)) for _, _, captions in views for caption in captions]
    assert min(counts) >= 3
    assert sorted(counts)[len(counts) // 2] >= 7


def test_what_tells_twins_apart_is_usually_mentioned(
    views: list[tuple[dict[str, Any], dict[str, Any], list[str]]],
) -> None:
    told = seen = 0
    for identity, view, captions in views:
        detail = identity["detail"]
        names = {"upper_colour", "lower_colour"} if detail == "swapped colours" else {detail}
        if detail and names & set(view["visible"]):
            for caption in captions:
                seen += 1
                said = {name for name, _ in claims_of(caption)}
                plain = detail == "pattern" and identity["attributes"]["pattern"] is None
                told += bool(names & said) or plain
    assert seen > 50
    assert told / seen > 0.8


def test_nobody_is_named(views: list[tuple[dict[str, Any], dict[str, Any], list[str]]]) -> None:
    assert not any(char.isdigit() for _, _, captions in views for caption in captions for char in caption)


def test_words() -> None:
    assert words_of("A man's T-shirt, red.") == ["a", "man's", "t-shirt", "red"]

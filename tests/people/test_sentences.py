import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.people import generate_people
from limner.people.attributes import Identity
from limner.people.cast import sample_people
from limner.people.sentences import describe, words_of
from tests.people.reader import claims_of, is_true


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any], list[str]]]:
    """(identity's record, view's record, sentences) of a small set."""
    folder: Path = tmp_path_factory.mktemp("people")
    generate_people(folder, 14, seed=5, views=(2, 3))
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


def test_nothing_false_whatever_can_be_seen() -> None:
    rng = np.random.default_rng(3)
    details = sorted(
        {field.name for field in dataclasses.fields(Identity)} - {"upper", "upper_colour", "sex"}
    )
    for person in sample_people({"train": 250}, 6):
        record = json.loads(json.dumps(person.identity.as_json()))
        there = [name for name in details if record[name] or name == "pattern"]
        seen = {"upper", "upper_colour", "sex", *(name for name in there if rng.random() < 0.8)}
        # A garment and its colour are seen together.
        for name in ("lower", "shoes"):
            if name in seen:
                seen.add(f"{name}_colour")
            seen -= {f"{name}_colour"} - ({f"{name}_colour"} if name in seen else set())
        for caption in describe(person, seen, True, rng, 3):
            for claim in claims_of(caption):
                assert is_true(claim, record, True), (caption, claim)
                assert claim[0] in seen or claim[0] == "walking", (caption, claim)


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


def test_what_tells_twins_apart_is_usually_mentioned() -> None:
    rng = np.random.default_rng(4)
    everything = {field.name for field in dataclasses.fields(Identity)}
    twins = [person for person in sample_people({"train": 400}, 8) if person.detail is not None]
    told = 0
    for person in twins:
        names = {"upper_colour", "lower_colour"} if person.detail == "swapped colours" else {person.detail}
        said = {name for name, _ in claims_of(describe(person, everything, False, rng, 1)[0])}
        # Somebody in plain clothes is told apart by no pattern being mentioned.
        told += names <= said or (person.detail == "pattern" and person.identity.pattern is None)
    assert len(twins) > 100
    assert told / len(twins) > 0.8


def test_nobody_is_named(views: list[tuple[dict[str, Any], dict[str, Any], list[str]]]) -> None:
    assert not any(char.isdigit() for _, _, captions in views for caption in captions for char in caption)


def test_words() -> None:
    assert words_of("A man's T-shirt, red.") == ["a", "man's", "t-shirt", "red"]

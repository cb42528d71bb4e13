"""Nothing of the machine that trained a run is left in a description that is published."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.hub.description import NOT_PUBLISHED, has_place, published, published_source
from limner.recipes import RECIPES, get_recipe
from limner.recipes.change import change
from limner.training.recipe import Recipe

# a name that no rule can know, in the place of a user's
SECRET = "quuxley"
PARTS = st.lists(st.from_regex(r"[a-zA-Z0-9 _.#=-]{1,9}", fullmatch=True), max_size=3)


@st.composite
def places(draw: st.DrawFn) -> str:
    """Paths of any system, absolute and relative, with a user's name in them."""
    parts = [part.strip(". ") or "x" for part in draw(PARTS)]
    inside = [SECRET, *parts] if draw(st.booleans()) else [*parts, SECRET, "x"]
    start, separator = draw(
        st.sampled_from(
            [
                ("/home/", "/"),
                ("/", "/"),
                ("~/", "/"),
                ("./", "/"),
                ("../", "/"),
                ("", "/"),
                ("C:\\Users\\", "\\"),
                ("D:/", "/"),
                ("\\\\server\\", "\\"),
                ("file:///", "/"),
                ("s3://", "/"),
            ]
        )
    )
    return start + separator.join(inside) + (separator + "x" if not start and len(inside) == 1 else "")


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """What a description may hold: places in every setting that names one, and in settings of another package."""
    place = places()
    model = {
        "system": "dual-path",
        "backbone": {"name": "auto", "weights": draw(place), "auto_model": draw(place)},
        "text": {"model": draw(place), "bert": {"model": draw(place)}, "words": 10},
        draw(st.sampled_from(["theirs", "extra"])): {"files": [draw(place)], draw(place): 1},
    }
    drawn = draw(st.sampled_from(["", "#seed=3", "#fold=2/10", "#draw=1/2/3", "#seed=1#noise=0.5"]))
    source = draw(st.sampled_from(["flickr8k:", "webdataset:", "their-format:", ""])) + draw(place) + drawn
    return {
        "system": "dual-path",
        "model": model,
        "recipe": {
            "name": "toy",
            "model": model,
            "start": draw(place),
            "vocabulary": {
                "vectors": draw(st.sampled_from(["", "tower:"])) + draw(place),
                "tokenizer": draw(place),
            },
            "stages": [{"name": "stage-1", "theirs": draw(place)}],
        },
        "data": {"source": source, "train": "ab", "val": "cd"},
        "terms": [{"name": "set", "source": draw(st.sampled_from(["/", "~/", "see C:\\"])) + SECRET}],
        "versions": {"limner": "1"},
        "tokenizer": {"kind": "words", "words": ["a", "red"]},
        "files": {},
    }


@given(descriptions())
def test_no_place_is_left(description: dict[str, Any]) -> None:
    found, replaced = published(description)
    assert SECRET not in json.dumps(found)
    assert SECRET not in json.dumps(replaced)
    assert {"recipe.start", "model.backbone.weights", "data.source"} <= set(replaced)
    # what is no place stays, and a second time changes nothing
    assert (found["recipe"]["name"], found["data"]["train"], found["tokenizer"]) == (
        *("toy", "ab"),
        description["tokenizer"],
    )
    assert published(found)[0] == found


def test_names_that_are_the_same_on_every_machine_stay() -> None:
    description = {
        "model": {
            "backbone": {"weights": "imagenet", "auto_model": None},
            "text": {"model": "sentence-transformers/all-MiniLM-L6-v2"},
        },
        "recipe": {
            "name": "import of hf:some/pair",
            "start": "hf:me/run@main",
            "vocabulary": {"vectors": "random"},
            "select": "text_to_image R@1",
        },
        "data": {"source": "flickr8k:not-published#seed=1"},
        "terms": [{"source": "github.com/zifyloo/SSAN; https://example.org/a/b", "licence": "MIT, BSD / CC"}],
    }
    assert published(description) == (description, [])


def test_a_pair_is_named_where_its_source_is() -> None:
    """The towers of an imported pair name it again; without "hf:" before it that might be a folder."""
    model = {"backbone": {"auto_model": "some/pair"}, "text": {"model": "some/pair"}}
    found, _ = published({"model": model, "recipe": {"name": "x"}, "data": {"source": "hf:some/pair"}})
    assert found["model"] == model
    found, replaced = published({"model": model, "recipe": {"name": "x"}, "data": {"source": "pair"}})
    assert found["model"]["text"]["model"] == found["data"]["source"] == NOT_PUBLISHED
    assert replaced == ["data.source", "model.backbone.auto_model", "model.text.model"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("flickr8k:/data/f8k", "flickr8k:not-published"),
        ("folder:a#b#fold=2/10", "folder:not-published#fold=2/10"),
        ("folder:a#seed=1#noise=0.5", "folder:not-published#seed=1#noise=0.5"),
        ("webdataset:/x/train-{000..120}.tar", "webdataset:not-published"),
        ("hf:org/name", "hf:org/name"),
        ("C:\\Users\\me", "not-published"),
        ("my-clip", "not-published"),
    ],
)
def test_a_source_keeps_its_format_and_its_splits(source: str, expected: str) -> None:
    assert published_source(source) == expected
    assert published_source(expected) == expected


@pytest.mark.parametrize(
    "text", ["image→text", "R@1 + R@5", "CC BY 4.0", "https://a.org/b", "a, b; c", "1/2"]
)
def test_other_text_is_no_place(text: str) -> None:
    assert not has_place(text)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_read_when_it_is_published(name: str) -> None:
    """A setting that only looks like a place would be refused by its own type."""
    recipe = get_recipe(name)
    plain = recipe.model_dump(mode="json")
    found, replaced = published({"recipe": plain, "model": plain["model"], "data": {"source": "folder:x"}})
    assert Recipe.parse(found["recipe"]) == recipe
    assert replaced == ["data.source"]


@pytest.mark.parametrize(
    "settings",
    [
        {"model.backbone.weights": "/home/quuxley/w.safetensors"},
        {"model.backbone.weights": "w.pth"},
        {"vocabulary.vectors": "/home/quuxley/glove.txt"},
        {"vocabulary.vectors": "tower:/home/quuxley/minilm"},
        {"vocabulary.tokenizer": "/home/quuxley/minilm", "model.text.start": "still"},
        {"model.backbone": {"name": "auto", "auto_model": "quuxley/resnet"}},
    ],
    ids=str,
)
def test_a_recipe_with_places_can_be_read_when_it_is_published(settings: dict[str, Any]) -> None:
    """A setting keeps the form that its own check asks for, such as the ending of a file of weights."""
    recipe = change(
        get_recipe("dual-path"), [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    )
    plain = recipe.model_dump(mode="json")
    found, replaced = published({"recipe": plain, "model": plain["model"], "data": {"source": "folder:x"}})
    assert SECRET not in json.dumps(found)
    assert Recipe.parse(found["recipe"]) != recipe
    assert len(replaced) > 1
    assert published(found) == (found, [])


@pytest.mark.parametrize("name", ["models/-", "models/-b16", "models/.hidden", "-/b16", "hf:models/-"])
def test_a_folder_that_the_hub_could_not_name_is_a_place(name: str) -> None:
    model = {"system": "dual-path", "text": {"model": name}}
    found, replaced = published({"system": "dual-path", "model": model, "recipe": {"start": name}})
    assert set(replaced) == {"model.text.model", "recipe.start"}
    assert name not in json.dumps(found)

"""Weights are under an open licence only where all that they have learnt from states one."""

import pytest

from limner.data.terms import OWN, TERMS, WEIGHTS, TermsOfUse
from limner.errors import SettingsError
from limner.hub.licence import OPEN, hub_licence, is_hub_licence, licence_of, state_terms
from limner.models.known import weight_terms


def _of(*terms: TermsOfUse, source: str = "flickr8k:x") -> dict[str, object]:
    return {"terms": [one.model_dump(mode="json") for one in terms], "data": {"source": source}}


def test_only_what_limner_draws_is_open_among_the_sets() -> None:
    assert [name for name, terms in TERMS.items() if hub_licence(terms) is not None] == ["people"]


def test_unknown_is_no_permission() -> None:
    assert hub_licence(WEIGHTS["imagenet"]) is None
    assert hub_licence(weight_terms("somewhere/else.safetensors")) is None
    assert hub_licence(weight_terms("openai/clip-vit-base-patch32")) == "mit"


@pytest.mark.parametrize(
    "licence",
    ["annotations: MIT; pictures: none", "not MIT", "MIT-like", "CC BY 4.0 for research", "mit", ""],
)
def test_a_licence_of_a_part_is_none_of_the_whole(licence: str) -> None:
    assert hub_licence(TermsOfUse(licence=licence)) is None


def test_terms_of_others_hold_as_well() -> None:
    open_set = TermsOfUse(name="a", licence="MIT")
    assert hub_licence(open_set) == "mit"
    assert hub_licence(open_set.replace(composed_of=("another",))) is None
    assert hub_licence(open_set.replace(withdrawn="yes")) is None


@pytest.mark.parametrize(
    "name", ["flickr8k", "cuhk-pedes", "icfg-pedes", "rstpreid", "cub", "flickr30k", "mscoco"]
)
def test_research_sets_make_weights_restricted(name: str) -> None:
    found = licence_of(_of(TERMS[name], weight_terms("openai/clip-vit-base-patch32")), "apache-2.0")
    assert (found.licence, found.restricted) == ("other", (TERMS[name],))


def test_open_ones_give_their_licence() -> None:
    people, clip = TERMS["people"], weight_terms("openai/clip-vit-base-patch32")
    assert licence_of(_of(people)).licence == "apache-2.0"
    both = licence_of(_of(people, clip))
    assert (both.licence, both.restricted) == ("other", ())
    assert licence_of(_of(people, clip), "apache-2.0").licence == "apache-2.0"


def test_an_owner_states_the_licence_of_own_pictures_and_of_no_others() -> None:
    own = [TERMS[name] for name in OWN]
    assert licence_of(_of(*own)).restricted == tuple(own)
    stated = licence_of(_of(*own), "cc-by-4.0")
    assert (stated.licence, stated.restricted) == ("cc-by-4.0", ())
    assert licence_of(_of(*own, TERMS["cub"]), "cc-by-4.0").licence == "other"


def test_a_run_that_states_no_terms_has_unknown_ones() -> None:
    (unknown,) = licence_of({"data": None}).restricted
    assert unknown.licence == "unknown"
    # of a later version: words that this one does not know
    assert licence_of({"terms": [{"name": "a", "licence": "MIT", "more": 1}]}).licence == "other"
    assert licence_of({"terms": []}).licence == "other"


def test_names_of_the_hub() -> None:
    assert all(map(is_hub_licence, OPEN.values()))
    assert not any(map(is_hub_licence, ("CC BY 4.0", "", "a\nb", "x" * 50)))


def test_an_owner_states_the_terms_of_what_limner_knows_none() -> None:
    weights = weight_terms("/x/mobilenet.safetensors")
    described = _of(TERMS["people"], weights)
    assert licence_of(described).restricted == (weights,)
    stated = {"name": "MobileNetV2 of timm", "source": "timm", "licence": "Apache-2.0"}
    found = licence_of(state_terms(described, {weights.name: stated}))
    assert (found.licence, found.restricted) == ("apache-2.0", ())
    assert found.terms[1].name == "MobileNetV2 of timm"
    assert found.terms[1].checked == "stated by whoever published the weights"
    for wrong, message in (
        (
            {"another": stated},
            "learnt from no 'another'; there are: Generated people, weights from mobilenet",
        ),
        ({"Generated people": stated}, "limner knows the terms of Generated people"),
        ({weights.name: "Apache-2.0"}, "expected the fields of a terms.json"),
        ({weights.name: {"license": "MIT"}}, "unknown setting 'license'"),
    ):
        with pytest.raises(SettingsError, match=message):
            state_terms(described, wrong)
    with pytest.raises(SettingsError, match="limner knows the terms of Flickr8k"):
        state_terms(_of(TERMS["flickr8k"]), {"Flickr8k": stated})

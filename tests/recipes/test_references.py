import re
from pathlib import Path

import pytest
import yaml

from limner.data.terms import TERMS
from limner.losses.registry import LOSSES
from limner.models.known import KNOWN
from limner.models.registry import find_system
from limner.recipes.change import change
from limner.recipes.references import OF_DATA, OF_LOSS, OF_SYSTEM, cited_by, software
from limner.recipes.registry import RECIPES, get_recipe
from limner.recipes.works import REFERENCES

ROOT = Path(__file__).parents[2]
_FIELD = re.compile(r"  ([a-z]+) = \{(.+)\},")


def fields(bibtex: str) -> dict[str, str]:
    """The fields of an entry, held to the form that BibTeX reads."""
    first, *lines, last = bibtex.split("\n")
    assert re.fullmatch(r"@[a-z]+\{[a-z0-9]+,", first)
    assert last == "}"
    found = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        assert match is not None, line
        # braces in pairs: one alone swallows the rest of a .bib file
        assert match[2].count("{") == match[2].count("}"), line
        assert match[1] not in found
        found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("key", REFERENCES)
def test_entries_are_whole(key: str) -> None:
    entry = REFERENCES[key]
    written = fields(entry.bibtex())
    assert {"author", "title", "year"} <= written.keys()
    # as its own key says
    assert key.startswith(entry.authors[0].partition(",")[0].lower())
    assert str(entry.year) in key
    assert all(", " in name for name in entry.authors if name != "others")
    assert "others" not in entry.authors[:-1]


def test_every_system_loss_and_dataset_is_there() -> None:
    assert OF_DATA.keys() == TERMS.keys()
    # other tests add losses of their own
    assert set(OF_LOSS) == {kind for kind, place in LOSSES.items() if str(place).startswith("limner.")}
    for name in OF_SYSTEM:
        find_system(name)
    for table in (OF_SYSTEM, OF_LOSS, OF_DATA):
        assert {key for keys in table.values() for key in keys} <= REFERENCES.keys()


def test_the_years_are_those_of_the_terms() -> None:
    for name, keys in OF_DATA.items():
        for key in keys:
            year = str(REFERENCES[key].year)
            # of a preprint the terms may name the number alone
            assert (
                year in TERMS[name].source or REFERENCES[key].more.get("eprint", "?") in TERMS[name].source
            ), name


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_cite_their_paper_their_losses_and_their_data(name: str) -> None:
    recipe, listed = get_recipe(name), RECIPES[name]
    cited = cited_by(recipe, listed.data)
    keys = [entry.key for _, entry in cited]
    assert len(set(keys)) == len(keys)
    expected = {*OF_SYSTEM[recipe.model.system]}
    expected |= {key for stage in recipe.stages for loss in stage.losses for key in OF_LOSS[loss.kind]}
    expected |= {key for one in listed.data for key in OF_DATA[one]}
    assert expected <= set(keys)
    # a network that nobody made is no work to cite; every other has one
    assert [role for role, _ in cited if role == "network"], name


def test_networks_are_known_by_their_names() -> None:
    def networks(name: str) -> set[str]:
        return {entry.key for role, entry in cited_by(get_recipe(name), ()) if role == "network"}

    assert networks("minilm-flickr8k") == {
        "sandler2018mobilenetv2",
        "russakovsky2015imagenet",
        "wang2020minilm",
        "reimers2019sentence",
    }
    # weights that start at random rest on no ImageNet
    assert networks("dual-path-people") == {"he2016deep"}
    assert networks("clip-flickr30k") == {"tschannen2025siglip"}
    assert networks("hgan-cuhk-pedes") == {"he2016deep", "russakovsky2015imagenet", "devlin2019bert"}


def works_of_pair(name: str) -> list[str]:
    recipe = change(
        get_recipe("clip-rstpreid"), [f"model.backbone.auto_model={name}", f"model.text.model={name}"]
    )
    return [entry.key for role, entry in cited_by(recipe, ()) if role == "network"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((model.name, None) for model in KNOWN),
        ("google/siglip-base-patch16-224", "zhai2023sigmoid"),
        ("openai/clip-vit-base-patch16", "radford2021learning"),
        ("BAAI/AltCLIP", "chen2022altclip"),
        ("OFA-Sys/chinese-clip-vit-base-patch16", "yang2022chinese"),
        # the folder above is the user's
        ("clips/siglip2-mine", "tschannen2025siglip"),
    ],
)
def test_pretrained_pairs_have_their_own_paper(name: str, key: str | None) -> None:
    cited = works_of_pair(name)
    assert cited
    assert key is None or cited == [key]


def test_a_folder_above_a_model_names_no_work() -> None:
    assert works_of_pair("clips/mine") == []


def test_citation_file_says_the_same() -> None:
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    own = software()
    assert content["cff-version"] == "1.2.0"
    assert {"message", "authors", "title"} <= content.keys()
    assert (content["title"], content["version"], content["license"]) == (
        own.title,
        own.more["version"],
        own.more["license"],
    )
    assert [author["name"] for author in content["authors"]] == [own.authors[0].strip("{}")]


def test_the_systems_papers_have_the_numbers_that_the_readme_links() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| system |")[2].partition("\n\n")[0]
    linked = re.findall(r"\]\(https://(?:doi\.org|arxiv\.org/abs)/([^)]+)\)", table)
    cited = "\n".join(work.bibtex() for work in REFERENCES.values())
    assert len(linked) == 5
    assert [number for number in linked if f"{{{number}}}" not in cited] == []

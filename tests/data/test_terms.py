import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.check import check_dataset, render
from limner.data.readers import FORMATS, open_dataset
from limner.data.readers.composed import FORMATS as COMPOSED
from limner.data.readers.stated_terms import FILE, terms_of
from limner.data.records import Dataset
from limner.data.terms import OWN, TERMS, WEIGHTS, TermsOfUse
from limner.errors import DataError
from limner.models.known import KNOWN, weight_terms
from limner.recipes import RECIPES, get_recipe
from tests.data.trees import FORMS, ROWS

TEXT = st.text(min_size=1, max_size=40)
STATED = st.builds(
    TermsOfUse,
    name=TEXT,
    source=TEXT,
    licence=TEXT,
    people=st.sampled_from(["yes", "some", "no", "unknown"]),
    composed_of=st.lists(TEXT, max_size=3).map(tuple),
    withdrawn=st.sampled_from(["yes", "no", "unknown"]),
    checked=TEXT,
)


@contextmanager
def suppress_named(file: Path) -> Iterator[None]:
    """Let a refusal pass that is one line and names the file."""
    try:
        yield
    except DataError as error:
        if not str(error).startswith(str(file)) or "\n" in str(error):
            raise


@contextmanager
def _folder() -> Iterator[Path]:
    """An empty folder for one example of hypothesis, which runs many in one test."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_every_format_has_terms_and_says_what_was_read() -> None:
    assert TERMS.keys() == FORMATS.keys() | COMPOSED.keys() | {"people"}
    assert all(terms.checked.startswith("2026-") for name, terms in TERMS.items() if name not in OWN)
    assert all(terms.checked.startswith("2026-") for terms in WEIGHTS.values())
    # only of one's own drawings is it known
    assert [name for name, terms in TERMS.items() if terms.withdrawn != "unknown"] == ["people"]


def test_sets_of_people_are_marked_and_say_what_they_are_made_of() -> None:
    shown = {name for name, terms in TERMS.items() if terms.people == "yes"}
    collected = {"ufine6926", "vn3k", "mals"}
    taken = {
        "cuhk-pedes",
        "icfg-pedes",
        "rstpreid",
        "prw-tps-cn",
        "synth-pedes",
        "luperson-mllm",
        "webperson",
        "itcpr",
    }
    assert shown == collected | taken
    assert {name for name in shown if TERMS[name].composed_of} == taken


@pytest.mark.parametrize("form", FORMS)
def test_a_dataset_has_the_terms_of_its_format_and_the_report_one_line(form: str, tmp_path: Path) -> None:
    source = FORMS[form](tmp_path, ROWS)
    dataset = open_dataset(source)
    expected = TERMS[source.partition(":")[0]]
    assert dataset.terms == expected
    assert dataset.split("train").terms == expected
    report = check_dataset(dataset, open_images=False)
    lines = [line for line in render(report).splitlines() if line.startswith("Terms of ")]
    assert lines == [f"Terms of {expected.line()} (docs/terms.md)."]
    assert report.terms == expected


def test_a_line_says_what_is_unknown() -> None:
    assert TermsOfUse().line() == (
        "unknown: licence: unknown; unknown whether it shows people; unknown whether it is withdrawn"
    )
    assert "shows people; made of pictures of MSMT17; unknown whether" in TERMS["icfg-pedes"].line()


@given(STATED)
def test_stated_terms_are_read_as_they_stand(stated: TermsOfUse) -> None:
    with _folder() as folder:
        (folder / FILE).write_text(stated.model_dump_json(), encoding="utf-8")
        for name in (*FORMATS, "somebody-elses"):
            assert terms_of(name, folder) == stated
            assert terms_of(name, folder / "annotations.json") == stated
        assert TermsOfUse.parse(json.loads(stated.model_dump_json())) == stated


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | TEXT, st.lists).map(json.dumps))
def test_a_terms_file_of_anything_is_read_or_refused_by_name(content: bytes | str) -> None:
    with _folder() as folder:
        (folder / FILE).write_bytes(content if isinstance(content, bytes) else content.encode())
        with suppress_named(folder / FILE):
            assert isinstance(terms_of("folder", folder), TermsOfUse)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "an object with 'licence'"),
        ('{"license": "MIT"}', "unknown setting 'license'; did you mean 'licence'?"),
        ('{"people": "maybe"}', "setting 'people'"),
        ('{"licence": 4}', "setting 'licence'"),
    ],
)
def test_wrong_terms_are_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match=message):
        terms_of("folder", tmp_path)


def test_a_licence_file_counts_for_ones_own_pictures_alone(tmp_path: Path) -> None:
    for name in OWN:
        assert terms_of(name, tmp_path) == TERMS[name]
    (tmp_path / "LICENSE").write_text("\n  Shown   with consent.\nMore.\n", encoding="utf-8")
    assert terms_of("folder", tmp_path).licence == "Shown with consent."
    assert terms_of("folder", tmp_path / "captions.csv").licence == "Shown with consent."
    assert terms_of("cuhk-pedes", tmp_path) == TERMS["cuhk-pedes"]
    (tmp_path / "LICENSE").write_text("x" * 1000)
    assert len(terms_of("folder", tmp_path).licence) == 200
    (tmp_path / "LICENSE").write_text("\n")
    assert terms_of("folder", tmp_path) == TERMS["folder"]


def test_records_made_by_hand_have_unknown_terms() -> None:
    assert Dataset("x", "image", ()).terms == TermsOfUse()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_data_that_has_terms(name: str) -> None:
    formats = RECIPES[name].data
    assert formats
    assert set(formats) <= TERMS.keys()
    # the command of its docstring names one of them, in the form of another where a set is drawn or cut out
    command = " ".join((RECIPES[name].load().__doc__ or "").split())
    forms = {"people": "cuhk-pedes", "cub": "cub:|folder:CUB10"}
    assert any(
        f"--data {form}" in command
        for format_name in formats
        for form in forms.get(format_name, format_name).split("|")
    )


def test_weights_that_recipes_name_have_terms() -> None:
    for name in RECIPES:
        recipe = get_recipe(name)
        for weights in (recipe.model.backbone.weights, getattr(recipe.model.text, "model", None)):  # type: ignore[union-attr]
            assert weights is None or weight_terms(weights).checked.startswith("2026-"), (name, weights)
    for model in KNOWN:
        assert weight_terms(f"hf:{model.name}").licence in (model.licence, "unknown")


def test_an_unknown_file_is_named_without_its_folder() -> None:
    found = weight_terms("some/where/mine.safetensors")
    assert (found.name, found.licence) == ("weights from mine.safetensors", "unknown")

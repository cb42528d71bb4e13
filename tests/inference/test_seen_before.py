"""What towers have seen of a set is said by every way that a run may name them, and nothing is said to be clean."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from limner.data.readers import FORMATS
from limner.data.records import Dataset, Record
from limner.data.terms import OWN, TERMS, UNKNOWN, WEIGHTS, TermsOfUse
from limner.errors import SettingsError
from limner.evaluation.report import render_transfer
from limner.inference.evaluate_run import evaluate_run
from limner.inference.evaluations import FILE
from limner.inference.load import load_model
from limner.inference.seen_before import SeenBefore, pretrained_terms, seen_before
from limner.models import known
from limner.models.known import KNOWN, weight_terms
from limner.training.prepare import prepare
from tests.toy import toy_recipe

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PUBLISHED = sorted(FORMATS.keys() - set(OWN))
EVERY = [*WEIGHTS, *(model.name for model in KNOWN), "some/file.safetensors"]


def a_set(format_name: str, terms: TermsOfUse | None = None, names: tuple[str, ...] = ("a.jpg",)) -> Dataset:
    records = tuple(Record(Path(name), ("a dog",), name, "test") for name in names)
    return Dataset(f"{format_name}:x", "image", records, terms=terms or TERMS[format_name])


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("format_name", PUBLISHED)
def test_weights_and_a_published_set_are_known_to_overlap_known_not_to_or_unknown(
    name: str, format_name: str
) -> None:
    terms = weight_terms(name)
    [found] = seen_before([terms], a_set(format_name))
    assert found.name == terms.name
    if terms.overlaps is None:
        assert found.of_data is None
        assert "unknown" in found.line()
    else:
        assert found.of_data == terms.overlaps.get(format_name, "")
    # only a card that names its data is a reason to say nothing
    assert bool(found.line()) or name in ("bert-base-uncased", MINILM)


@pytest.mark.parametrize("format_name", ["flickr8k", "flickr30k", "mscoco", "mscoco-labels"])
def test_minilm_has_seen_captions_of_three_sets(format_name: str) -> None:
    [found] = seen_before([WEIGHTS[MINILM]], a_set(format_name))
    assert found.line().startswith("all-MiniLM-L6-v2: trained ")
    assert ("test included" in found.line() or "test as well" in found.line()) == ("flickr" in format_name)
    assert ("probably not among them" in found.line()) == ("mscoco" in format_name)


def test_overlaps_are_of_formats_that_limner_reads() -> None:
    for terms in (*TERMS.values(), *map(weight_terms, EVERY)):
        assert set(terms.overlaps or ()) <= FORMATS.keys(), terms.name
    assert all(terms.trained_on is None for terms in TERMS.values())
    assert all(weight_terms(name).trained_on for name in EVERY)


@given(st.sampled_from(PUBLISHED), st.sampled_from(EVERY))
def test_drawings_and_others_in_the_form_of_a_published_set_were_seen_by_nobody(
    format_name: str, name: str
) -> None:
    assert seen_before([weight_terms(name)], a_set(format_name, TERMS["people"])) == []
    assert seen_before([weight_terms(name)], a_set(format_name, TermsOfUse(name="Shop"))) == []


def test_a_run_trained_on_a_set_says_what_that_holds_of_another() -> None:
    trained = [TERMS["flickr30k"], TERMS["cuhk-pedes"]]
    [found] = seen_before(trained, a_set("flickr8k"))
    assert found.line().startswith("Flickr30k: has all 8,000 pictures")
    # its own pictures are compared by their content
    assert seen_before(trained, a_set("flickr30k")) == []
    [back] = seen_before([TERMS["flickr8k"]], a_set("flickr30k"))
    assert "213 of the 1,000 test pictures" in back.line()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("1000268201_693b08cb0e.jpg", "1001773457.jpg", "a.jpg"),
            "2 of these files are named as Flickr30k's are",
        ),
        (("COCO_train2014_000000000009.jpg",), "1 of these files are named as MSCOCO's are"),
        (("1000268201.jpg", "a.jpg", "b.jpg"), None),
    ],
)
def test_ones_own_pictures_are_told_by_their_names(names: tuple[str, ...], said: str | None) -> None:
    lines = [one.line() for one in seen_before([WEIGHTS[MINILM]], a_set("folder", names=names))]
    assert len(lines) == (said is not None)
    assert all(str(said) in line for line in lines)


def test_an_entry_from_before_is_read_by_what_is_known_today() -> None:
    """Runs kept the names of their weights before anything was known of what these had seen."""
    before = [
        terms.replace(trained_on=None, overlaps=None)
        for terms in (WEIGHTS[MINILM], weight_terms("some/file.safetensors"))
    ]
    lines = [one.line() for one in seen_before(before, a_set("flickr8k"))]
    assert [line.partition(":")[0] for line in lines] == ["all-MiniLM-L6-v2", "weights from file.safetensors"]
    assert "unknown" in lines[1]


@given(st.binary(min_size=1, max_size=64), st.integers(0, 63))
def test_weights_are_known_by_their_content_alone(content: bytes, place: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as made:
        folder = Path(made)
        patch.setattr(known, "_FILES", {hashlib.sha256(content).hexdigest(): (len(content), MINILM)})
        file = folder / "model.safetensors"
        file.write_bytes(content)
        for name in (folder, file):
            assert weight_terms(str(name)) == WEIGHTS[MINILM]
            assert pretrained_terms(str(name)) == (WEIGHTS[MINILM],)
        changed = bytearray(content)
        changed[place % len(content)] ^= 1
        for other in (bytes(changed), content + b"x"):
            file.write_bytes(other)
            found = weight_terms(str(folder))
            assert (found.name, found.trained_on) == (f"weights from {folder.name}", UNKNOWN)


@pytest.mark.parametrize("name", [MINILM, "all-minilm-l6-v2", f"hf:{MINILM}", "ALL-MINILM-L6-V2"])
def test_weights_are_found_by_name_or_its_last_part(name: str) -> None:
    assert pretrained_terms(name) == (WEIGHTS[MINILM],)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SettingsError, match=f"neither a run, nor weights .*{MINILM}"):
        pretrained_terms("no-such-model")


def test_a_report_and_the_log_say_what_a_tower_has_seen(
    toy_run: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its log gets a line
    copy = shutil.copytree(toy_run, tmp_path / "run")
    run = load_model(copy, device="cpu")
    terms = [json.loads(WEIGHTS[name].model_dump_json()) for name in (MINILM, "imagenet")]
    towers = replace(run, description={**run.description, "terms": terms})
    # toys in the form of a set that MiniLM has seen
    monkeypatch.setattr("limner.inference.evaluate_run.expect_same_splits", lambda *_: None)
    test = replace(toys.split("test"), source="flickr8k:toys", terms=TERMS["flickr8k"])
    report = evaluate_run(towers, test, "test")
    first, second = report.provenance["seen_before"]
    part = (WEIGHTS[MINILM].overlaps or {})["flickr8k"]
    assert first == SeenBefore(name="all-MiniLM-L6-v2", trained_on=None, of_data=part).line()
    assert second.startswith("ImageNet weights of torchvision: unknown")
    shown = str(render_transfer({"flickr8k:toys": report}, "").caption)
    assert shown.count("seen before by") == 2
    line = json.loads((copy / FILE).read_text(encoding="utf-8").splitlines()[-1])
    assert line["seen_before"] == [first, second]
    # a run without towers, on pictures of its own
    assert evaluate_run(run, toys.split("test"), "test").provenance["seen_before"] == []


def test_training_names_a_tower_by_its_content(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "somewhere" / "model.safetensors"
    recipe = toy_recipe()
    build = prepare(recipe, toys.split("train"), toys.split("val")).objective.model.backbone
    weights.parent.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in build.state_dict().items()}, weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    monkeypatch.setattr(known, "_FILES", {digest: (weights.stat().st_size, MINILM)})
    named = recipe.replace(
        model=recipe.model.replace(backbone=recipe.model.backbone.replace(weights=str(weights)))  # type: ignore[union-attr]
    )
    terms = prepare(named, toys.split("train"), toys.split("val")).terms
    assert [one["name"] for one in terms][-1] == "all-MiniLM-L6-v2"

"""A run is the same model after it was published, and nothing else of it or of the machine is."""

import getpass
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import limner
from limner.data.records import Dataset
from limner.data.terms import TERMS
from limner.durable import sealed, write_text
from limner.errors import CheckpointError, DataError, SettingsError
from limner.hub.card import INTENDED, REFUSED
from limner.hub.push import push
from limner.inference.checkpoint import read_checkpoint, read_description, read_digest, write_checkpoint
from limner.inference.learnt_images import named_by
from limner.inference.load import load_model
from limner.inference.run_file import checkpoint_path, read_listing
from limner.inference.seen_before import SeenBefore
from limner.inference.source import RUN_FILE
from limner.training.loop import train
from tests import towers
from tests.hub.cache import FakeApi, fake_api, put, use
from tests.toy import toy_recipe

hub = pytest.importorskip("huggingface_hub")


def changed(run: Path, out: Path, **changes: Any) -> Path:
    """A copy of a run with another description."""
    shutil.copytree(run, out)
    path = checkpoint_path(run, None)
    tensors, description = read_checkpoint(path)
    digest = write_checkpoint(out / path.name, tensors, {**description, **changes})
    listing = read_listing(out)
    listing["digests"][path.name] = digest
    write_text(out / RUN_FILE, sealed(listing))
    (out / "last.safetensors").unlink(missing_ok=True)
    return out


@pytest.fixture(scope="session")
def open_run(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt from what limner draws."""
    terms = [TERMS["people"].model_dump(mode="json")]
    return changed(toy_run, tmp_path_factory.mktemp("open") / "run", terms=terms)


@pytest.fixture(scope="session")
def research_run(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt from a set for research."""
    data = {
        **read_description(checkpoint_path(toy_run, None))["data"],
        "source": "cuhk-pedes:/home/quuxley/pedes",
    }
    terms = [TERMS["cuhk-pedes"].model_dump(mode="json")]
    return changed(toy_run, tmp_path_factory.mktemp("research") / "run", terms=terms, data=data)


def header_of(card: str) -> dict[str, Any]:
    _, header, _ = card.split("---\n", 2)
    values = yaml.safe_load(header)
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("kind", ["toy_run", "reranking_run", "hgan_run", "late_run"])
def test_a_round_trip_gives_the_same_model(
    kind: str, toys: Dataset, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = request.getfixturevalue(kind)
    found = push(run, str(tmp_path / "out"), accept_terms=True, digests=True)
    put(tmp_path / "out", tmp_path / "cache", "me/toys")
    use(tmp_path / "cache", monkeypatch)
    before, after = load_model(run, device="cpu"), limner.load("hf:me/toys", device="cpu")
    assert before.fingerprint == after.fingerprint == found.fingerprint
    images = [record.image for record in toys.records][:4]
    sentences = [record.sentences[0] for record in toys.records][:4]
    assert np.array_equal(before.encode_images(images), after.encode_images(images))
    assert np.array_equal(before.encode_texts(sentences), after.encode_texts(sentences))
    assert (before.reranker is None) == (after.reranker is None)
    assert before.rerank == after.rerank
    assert named_by(run) == named_by(after.path.parent)


def test_an_imported_pair_goes_and_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "tiny-pair").mkdir()
    towers.save_clip(tmp_path / "tiny-pair")
    limner.import_model(str(tmp_path / "tiny-pair"), tmp_path / "run")
    found = push(tmp_path / "run", str(tmp_path / "out"), accept_terms=True)
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert "tiny-pair" not in "".join(
        (tmp_path / "out" / name).read_text() for name in ("run.json", "config.json")
    )
    put(tmp_path / "out", tmp_path / "cache", "me/pair")
    use(tmp_path / "cache", monkeypatch)
    assert limner.load("hf:me/pair").fingerprint == found.fingerprint
    from tokenizers import Tokenizer

    assert Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).get_vocab_size() > 0


def test_what_is_uploaded_is_what_a_folder_gets(
    open_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fake_api(monkeypatch)
    push(open_run, "me/toys")
    push(open_run, "me/toys", folder=tmp_path / "out")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    # safetensors writes the parts of a header in any order
    checkpoints = [read_digest(tmp_path / "out" / "model.safetensors")]
    (tmp_path / "sent.safetensors").write_bytes(api.files.pop("model.safetensors"))
    assert [read_digest(tmp_path / "sent.safetensors")] == checkpoints
    assert api.files == {name: content for name, content in written.items() if name != "model.safetensors"}
    # the chosen checkpoint alone: no state, no other stage, no log
    assert set(written) == {"README.md", "LICENSE.md", "config.json", "model.safetensors", "run.json"}
    assert json.loads(written["run.json"])["stages"][0]["file"] == "model.safetensors"


def test_a_repository_is_private_before_anything_is_in_it(
    open_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fake_api(monkeypatch)
    push(open_run, "me/toys", public=True)
    kinds = [kind for kind, _ in api.calls]
    assert kinds == ["create", "settings", "upload", "settings"]
    assert api.calls[0][1]["private"] is True
    assert api.calls[1][1] == {"repo_id": "me/toys", "repo_type": "model", "private": True, "gated": None}
    assert api.calls[3][1] == {"repo_id": "me/toys", "repo_type": "model", "private": False}
    assert header_of(api.files["README.md"].decode())["license"] == "apache-2.0"
    api = fake_api(monkeypatch)
    assert push(open_run, "me/toys").private is True
    assert [kind for kind, _ in api.calls] == ["create", "settings", "upload"]


def test_weights_of_a_research_set_are_gated_and_ask_for_a_word(
    research_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fake_api(monkeypatch)
    with pytest.raises(SettingsError, match=r"CUHK-PEDES: academic use only.*--accept-terms"):
        push(research_run, "me/pedes", licence="mit")
    assert api.calls == []
    found = push(research_run, "me/pedes", accept_terms=True, licence="mit", public=True)
    assert [call.get("gated") for kind, call in api.calls if kind == "settings"] == ["manual", None]
    header = header_of(found.card)
    assert (header["license"], header["license_link"]) == ("other", "LICENSE.md")
    assert header["datasets"] == ["cuhk-pedes"]
    assert "text-based-person-search" in header["tags"]
    assert (
        header["extra_gated_fields"]["I will not identify or follow people who did not agree to it"]
        == "checkbox"
    )
    assert "academic use only" in api.files["LICENSE.md"].decode()
    assert all(use in found.card for use in (*INTENDED, *REFUSED))
    # BibTeX of the system and of the set
    assert "@article{zheng2020dual," in found.card
    assert "li2017person" in found.card


def test_the_uses_are_those_of_the_privacy_page() -> None:
    page = (Path(__file__).parents[2] / "docs/privacy.md").read_text(encoding="utf-8")
    assert all(use in page for use in (*INTENDED, *REFUSED))


def test_nothing_of_this_machine_is_in_any_file(research_run: Path, tmp_path: Path) -> None:
    found = push(research_run, str(tmp_path / "out"), accept_terms=True)
    assert found.replaced == ("data.source",)
    local = (
        *(str(tmp_path), str(research_run), str(Path.home()), str(Path.cwd()), "/home/", "quuxley"),
        *(f"/{getpass.getuser()}", f"/{research_run.parent.name}"),
    )
    for file in (tmp_path / "out").rglob("*"):
        content = file.read_bytes()
        assert not [place for place in local if place.encode() in content], file


def test_a_place_that_the_rules_miss_is_found(
    open_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.hub.files.published", lambda description: (description, []))
    home = changed(open_run, tmp_path / "run", versions={"limner": f"of {Path.cwd()}"})
    with pytest.raises(CheckpointError, match=r"would name a folder of this machine"):
        push(home, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_digests_of_pictures_go_with_published_sets_alone(
    open_run: Path, research_run: Path, toy_run: Path, tmp_path: Path
) -> None:
    for number, (run, asked, kept) in enumerate(
        [
            (research_run, None, True),
            (toy_run, None, False),
            (toy_run, True, True),
            (research_run, False, False),
        ]
    ):
        found = push(run, str(tmp_path / str(number)), accept_terms=True, digests=asked)
        after = load_model(tmp_path / str(number), device="cpu")
        assert bool(after.learnt) == bool(found.picture_digests) == kept
        assert after.fingerprint == load_model(run, device="cpu").fingerprint
        assert ("Eight bytes of the digest" in found.card) == kept
        assert named_by(tmp_path / str(number)) == (named_by(run) if kept else None)


def test_a_set_in_the_form_of_another_is_not_that_one(toy_run: Path, tmp_path: Path) -> None:
    """Generated people, and a shop's own customers, lie in the form of CUHK-PEDES."""
    data = {**read_description(checkpoint_path(toy_run, None))["data"], "source": "cuhk-pedes:x"}
    shop = {"name": "Shop 2026", "source": "ours", "licence": "CC BY 4.0, with consent", "people": "yes"}
    for name, terms, kept in (
        ("people", TERMS["people"].model_dump(mode="json"), True),
        ("shop", shop, False),
    ):
        run = changed(toy_run, tmp_path / name, data=data, terms=[terms])
        found = push(run, "me/toys", dry_run=True)
        assert "datasets" not in header_of(found.card)
        assert "li2017person" not in found.card
        assert bool(found.picture_digests) == kept
    assert header_of(found.card)["license"] == "cc-by-4.0"


def test_embeddings_of_training_pictures_are_published_by_a_word_only(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    recipe = recipe.replace(
        model=recipe.model.replace(hub_correction={"items": 20}), stages=(recipe.stages[0].replace(epochs=1),)
    )
    run = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    with pytest.raises(
        SettingsError, match=r"embeddings of \d+ training pictures and sentences.*--with-bank"
    ):
        push(run, str(tmp_path / "out"), accept_terms=True)
    found = push(run, str(tmp_path / "out"), accept_terms=True, bank=True)
    assert found.bank == 40
    assert "Embeddings of 40 training pictures" in found.card
    assert load_model(tmp_path / "out", device="cpu").fingerprint == found.fingerprint


def test_evaluations_stand_on_the_card_and_in_the_hubs_formats(
    open_run: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(open_run, run, ignore=shutil.ignore_patterns("evaluations.jsonl"))
    assert "No evaluation of this checkpoint is known." in push(run, "me/toys", dry_run=True).card
    with pytest.raises(SettingsError, match=r"no evaluation of this checkpoint on a test split"):
        push(run, "me/toys", dry_run=True, benchmarks=["org/toys"])
    report = limner.evaluate(load_model(run, device="cpu"), toys)
    limner.evaluate(load_model(run, device="cpu"), toys)
    (tmp_path / "report.json").write_text(report.to_json())
    found = push(
        run,
        "me/toys",
        folder=tmp_path / "out",
        reports=[tmp_path / "report.json"],
        benchmarks=["org/toys:retrieval"],
    )
    card = found.card
    assert "measured on this split 2 times in all" in card
    assert f"`{report.provenance['split_fingerprint'][:16]}`" in card
    low, high = report.intervals["text_to_image"]["R@1"]
    assert f"{report.text_to_image['R@1']:.1f} ({low:.1f} to {high:.1f})" in card
    entries = hub.ModelCard(card).data.eval_results
    assert {entry.metric_type: entry.metric_value for entry in entries}[
        "text_to_image_recall_at_1"
    ] == pytest.approx(report.text_to_image["R@1"], abs=1e-3)
    files = sorted((tmp_path / "out" / ".eval_results").iterdir())
    assert [file.name for file in files] == ["org--toys--image-to-text.yaml", "org--toys--text-to-image.yaml"]
    (entry,) = hub.parse_eval_result_entries(yaml.safe_load(files[1].read_text()))
    assert (entry.dataset_id, entry.task_id) == ("org/toys", "retrieval")
    assert entry.value == pytest.approx(report.text_to_image["R@1"], abs=1e-3)
    assert entry.source_url == "https://huggingface.co/me/toys"
    assert "R@1 text→image" in entry.notes
    assert "seen before" not in card.lower()
    # of the log as of a report
    tower = SeenBefore(name="a tower", trained_on=None, of_data="trained on | these captions")
    monkeypatch.setattr("limner.inference.evaluate_run.seen_before", lambda *_: [tower])
    seen = limner.evaluate(load_model(run, device="cpu"), toys)
    (tmp_path / "seen.json").write_text(seen.to_json())
    for reports in ((), (tmp_path / "seen.json",)):
        card = push(run, "me/toys", dry_run=True, reports=reports).card
        assert "Seen before by a tower: trained on / these captions." in card
        (run / "evaluations.jsonl").unlink(missing_ok=True)
    # another model's report is refused
    other = json.loads(report.to_json())
    other["provenance"]["model_fingerprint"] = "ab"
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match="a report of another model"):
        push(run, "me/toys", dry_run=True, reports=[tmp_path / "other.json"])
    with pytest.raises(SettingsError, match="--benchmark 'toys': expected"):
        push(run, "me/toys", dry_run=True, benchmarks=["toys"])


def test_a_dry_run_leaves_nothing(open_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = fake_api(monkeypatch)
    found = push(open_run, "me/toys", dry_run=True)
    push(open_run, "./out", folder=None, dry_run=True)
    assert (api.calls, api.files) == ([], {})
    assert not Path("out").exists()
    assert found.files["model.safetensors"] > 100_000


@pytest.mark.parametrize("target", ["toys", "a b/c", "me/", "me//toys"])
def test_what_is_no_target_is_refused_or_a_folder(
    target: str, open_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if target.endswith("/") or target.count("/") > 1:
        assert push(open_run, target, dry_run=True).private is None
    else:
        with pytest.raises(SettingsError, match="expected ORG/NAME"):
            push(open_run, target)


def test_a_folder_that_holds_something_is_left_alone(open_run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(SettingsError, match="not empty"):
        push(open_run, str(tmp_path))
    with pytest.raises(CheckpointError, match="not a checkpoint file"):
        push(checkpoint_path(open_run, None), str(tmp_path / "out"))


def test_what_the_hub_refuses_is_one_line_without_a_token(
    open_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")

    class ForbiddenError(Exception):
        response = type("Response", (), {"status_code": 403})()

    api: type[FakeApi] = fake_api(monkeypatch)
    api.refuse = ForbiddenError("403: Authorization: Bearer hf_verysecret")
    with pytest.raises(CheckpointError, match="the hub forbids it") as caught:
        push(open_run, "me/toys")
    assert "hf_verysecret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    said = capsys.readouterr()
    assert "hf_verysecret" not in said.out + said.err


@pytest.mark.parametrize("offline", ["", "1"])
def test_without_a_network_a_push_asks_for_no_download(
    offline: str, open_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    fake_api(monkeypatch).refuse = ConnectionError("no route")
    what = "HF_HUB_OFFLINE is set; unset it" if offline else "the hub cannot be reached; try again"
    with pytest.raises(CheckpointError, match=f"^me/toys: {what}, or write a folder such as ./FOLDER$"):
        push(open_run, "me/toys")


def test_words_of_a_set_cannot_break_the_card(open_run: Path, tmp_path: Path) -> None:
    """A set's terms are anybody's words, and stand in a table."""
    terms = [{"name": "a|b\n---\n<script>", "licence": "MIT, | `x`", "source": "s"}]
    found = push(changed(open_run, tmp_path / "run", terms=terms), "me/toys", dry_run=True)
    assert header_of(found.card)["license"] == "mit"
    assert "<script>" not in found.card
    assert "| a/b --- &lt;script> | MIT, / 'x' | yes |" in found.card


def test_the_tensors_of_a_checkpoint_are_those_of_the_run(open_run: Path, tmp_path: Path) -> None:
    push(open_run, str(tmp_path / "out"), digests=True)
    before, _ = read_checkpoint(checkpoint_path(open_run, None))
    after, _ = read_checkpoint(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

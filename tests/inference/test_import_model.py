import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

import limner
from limner.data.minimal_pairs import MinimalPair, PairSet
from limner.data.records import Dataset
from limner.errors import CheckpointError, DataError, SettingsError
from limner.export.sentence_transformers import write_sentence_transformers
from limner.inference.import_model import import_model
from limner.inference.import_pair import FILE
from limner.inference.load import load_model
from limner.inference.sentence_transformer import SIDE, SentenceTransformerRun
from limner.inference.trained import TrainedModel
from limner.search.open_source import open_source
from limner.server.app import create_app
from tests import towers

sentence_transformers: Any
modules: Any

TEXTS = ["a red hat", "a woman in a blue shirt carries a black bag", "two dogs on a beach"]


@pytest.fixture(autouse=True, scope="module")
def _library() -> None:
    """Imported where these tests run: each worker collects them, and the import takes 6 s."""
    global sentence_transformers, modules
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = ((80, 120), (124, 68), (64, 64), (33, 90))
    return [Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


def unit(rows: Any) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def clip(folder: Path) -> Path:
    folder.mkdir(parents=True)
    towers.save_clip(folder)
    return folder


def wrapped(tmp_path: Path, *after: Any) -> Path:
    """A tiny CLIP as sentence-transformers saves it, with modules after it."""
    transformer = modules.Transformer(str(clip(tmp_path / "clip")))
    made = sentence_transformers.SentenceTransformer(modules=[transformer, *after], device="cpu")
    made.save_pretrained(str(tmp_path / "wrapped"), create_model_card=False)
    return tmp_path / "wrapped"


@pytest.fixture
def general(tmp_path: Path) -> Path:
    """An encoder that is no plain pair: a linear layer stands above both towers."""
    torch.manual_seed(0)
    dim = modules.Transformer(str(clip(tmp_path / "sizes"))).get_embedding_dimension()
    return wrapped(tmp_path, modules.Dense(dim, 6, activation_function=torch.nn.Tanh()))


def opened(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def old_form(tmp_path: Path) -> Path:
    """The layout of clip-ViT-B-32 on the hub."""
    clip(tmp_path / "old" / "0_CLIPModel")
    (tmp_path / "old" / "modules.json").write_text(
        json.dumps(
            [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
        ),
        encoding="utf-8",
    )
    return tmp_path / "old"


@pytest.mark.parametrize("form", ["new", "old", "normalised"])
def test_a_wrapped_pair_becomes_a_network_of_limner(form: str, tmp_path: Path) -> None:
    if form == "old":
        source = old_form(tmp_path)
    else:
        source = wrapped(tmp_path, *([modules.Normalize()] if form == "normalised" else []))
    run = import_model(f"st:{source}", tmp_path / "run")
    assert not isinstance(run, SentenceTransformerRun)
    run = load_model(tmp_path / "run", precision="fp32", device="cpu")
    theirs = opened(source)
    np.testing.assert_allclose(run.encode_texts(TEXTS), unit(theirs.encode(TEXTS)), atol=1e-5)
    np.testing.assert_allclose(run.encode_images(pictures()), unit(theirs.encode(pictures())), atol=1e-5)
    assert run.description["data"]["source"] == f"st:{source.name}"
    # no path of this machine anywhere in it
    assert str(tmp_path) not in json.dumps(run.description)


def test_another_encoder_is_called_as_it_is(general: Path, tmp_path: Path) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")
    assert isinstance(run, SentenceTransformerRun)
    theirs = opened(general)
    assert run.dim == 6
    np.testing.assert_allclose(run.encode_texts(TEXTS), unit(theirs.encode(TEXTS)), atol=1e-5)
    np.testing.assert_allclose(run.encode_images(pictures()), unit(theirs.encode(pictures())), atol=1e-5)
    assert run.encode_texts([]).shape == run.encode_images([]).shape == (0, 6)
    assert str(tmp_path) not in json.dumps(run.description)
    # nothing of the source is needed again
    for path in sorted(general.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    again = limner.load(tmp_path / "run")
    assert again.fingerprint == run.fingerprint
    np.testing.assert_array_equal(again.encode_texts(TEXTS), run.encode_texts(TEXTS))


@pytest.mark.parametrize("mark", ["st:", ""])
def test_a_store_imports_it(mark: str, general: Path, tmp_path: Path) -> None:
    model, _ = open_source(f"{mark}{general}", tmp_path / "store", device="cpu")
    assert model.fingerprint == import_model(f"st:{general}", tmp_path / "run").fingerprint


def test_its_fingerprint_is_of_the_files(general: Path, tmp_path: Path) -> None:
    first = import_model(f"st:{general}", tmp_path / "run").fingerprint
    # a note changes no embedding, a prompt does
    (general / "README.md").write_text("a note", encoding="utf-8")
    assert import_model(f"st:{general}", tmp_path / "same").fingerprint == first
    path = general / "config_sentence_transformers.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"prompts": {"find": "a photo of "}, "default_prompt_name": "find"}
    path.write_text(json.dumps(settings), encoding="utf-8")
    assert import_model(f"st:{general}", tmp_path / "other").fingerprint != first


def test_a_large_picture_is_made_smaller(general: Path, tmp_path: Path) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")
    ramp = np.linspace(0, 255, 1200).astype(np.uint8)
    large = Image.fromarray(np.broadcast_to(ramp[None, :, None], (700, 1200, 3)).copy())
    assert run.prepare_image(large).shape == (SIDE + 1, SIDE, 3)
    cosine = run.encode_images(large)[0] @ unit(opened(general).encode(large))
    assert cosine > 0.999


def test_index_search_and_evaluate(general: Path, toys: Dataset, tmp_path: Path) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")
    report = limner.evaluate(run, toys)
    assert report.provenance["model_fingerprint"] == run.fingerprint
    assert report.provenance["precision"] == "fp32"
    images = [record.image for record in toys.records[:6]]
    limner.index(run, tmp_path / "store", images)
    # the store holds the model, by which it is opened without the run
    (tmp_path / "run").rename(tmp_path / "gone")
    with limner.open_store(tmp_path / "store") as store:
        hits = store.search("a red hat", k=6)
        scores = run.encode_texts("a red hat") @ run.encode_images(images).T
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores[0])[::-1], atol=1e-5)
        assert store.search(image=images[2], k=1)[0].path == images[2]


def test_bench_and_server(general: Path, toys: Dataset, tmp_path: Path) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")
    paths = [record.image for record in toys.records[:2]]
    pairs = PairSet(
        name="mine",
        version="1",
        images=paths,
        image_names=[path.name for path in paths],
        image_groups=[0, 1],
        sentences=["a red square", "a blue square"],
        sentence_groups=[0, 1],
        pairs=[MinimalPair("colour", "", 0, 0, 0, 0, 1)],
        kinds={"colour": "another colour"},
    )
    report = limner.bench(run, pairs)
    assert report.provenance["model_fingerprint"] == run.fingerprint
    limner.index(run, tmp_path / "store", [record.image for record in toys.records[:6]])
    with limner.open_store(tmp_path / "store") as store, TestClient(create_app(store)) as client:
        found = client.post("/v1/search", json={"text": "a red hat", "k": 3}).json()
        assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in store.search("a red hat", k=3)]
        info = client.get("/v1/info").json()
        assert info["model"]["system"] == "sentence-transformers"


def test_a_query_that_is_an_address_is_a_sentence(
    general: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")

    def fetch(*_: Any, **__: Any) -> None:
        raise AssertionError("a query must fetch nothing")

    monkeypatch.setattr("socket.socket.connect", fetch)
    address, path = "https://127.0.0.1/red.png", str(toys.records[0].image)
    rows = run.encode_queries([address, path])
    assert np.abs(rows - run.encode_images(toys.records[0].image)).max() > 1e-3
    np.testing.assert_allclose(rows[0], run.encode_texts([address, "a hat"])[0], atol=1e-5)


def test_what_needs_a_network_of_limner_is_refused(general: Path, toys: Dataset, tmp_path: Path) -> None:
    run = import_model(f"st:{general}", tmp_path / "run")
    refused = "SentenceTransformer, whose network limner only calls"
    for name in ("model", "tokenizer", "images", "encoding"):
        with pytest.raises(SettingsError, match=refused):
            getattr(run, name)
    with pytest.raises(SettingsError, match=refused):
        write_sentence_transformers(run, tmp_path / "out")
    with pytest.raises(SettingsError, match=refused):
        limner.train("fine-tune", toys, tmp_path / "tuned", start=tmp_path / "run", cpu=True)
    with pytest.raises(SettingsError, match="no reranker"):
        limner.evaluate(run, toys, rerank=5)
    with pytest.raises(DataError, match="no word"):
        run.encode_texts(["…"])
    assert len(run.encode_texts(["…"], check=False)) == 1


def test_code_of_a_model_is_not_run(general: Path, tmp_path: Path) -> None:
    path = general / "modules.json"
    listed = json.loads(path.read_text(encoding="utf-8"))
    listed[1]["type"] = "theirs.Dense"
    path.write_text(json.dumps(listed), encoding="utf-8")
    (general / "theirs.py").write_text("raise SystemExit('run')", encoding="utf-8")
    with pytest.raises(CheckpointError, match="code of its own"):
        import_model(f"st:{general}", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_encoder_of_sentences_alone_is_refused(tmp_path: Path) -> None:
    words = modules.BoW(vocab=["red", "hat"])
    made = sentence_transformers.SentenceTransformer(modules=[words], device="cpu")
    made.save_pretrained(str(tmp_path / "words"), create_model_card=False)
    with pytest.raises(CheckpointError, match="needs text and image"):
        import_model(f"st:{tmp_path / 'words'}", tmp_path / "run")


def test_mistakes_are_one_line(
    general: Path, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="no such folder"):
        import_model(f"st:{tmp_path / 'nowhere'}", tmp_path / "run")
    with pytest.raises(CheckpointError, match="not in the local cache"):
        import_model("st:nobody/no-such-model", tmp_path / "run")
    with pytest.raises(CheckpointError, match="without st:"):
        import_model(f"st:{clip(tmp_path / 'plain')}", tmp_path / "run")
    with pytest.raises(SettingsError, match="--size and --words"):
        import_model(f"st:{general}", tmp_path / "run", words=5)
    write_sentence_transformers(load_model(toy_run), tmp_path / "ours")
    with pytest.raises(CheckpointError, match="limner itself exported"):
        import_model(f"st:{tmp_path / 'ours'}", tmp_path / "run")
    import_model(f"st:{general}", tmp_path / "run")
    with pytest.raises(SettingsError, match="runs with torch"):
        load_model(tmp_path / "run", engine="openvino")


def test_a_checkpoint_writes_nothing_elsewhere(general: Path, tmp_path: Path) -> None:
    from limner.inference.checkpoint import read_checkpoint, write_checkpoint

    import_model(f"st:{general}", tmp_path / "run")
    tensors, description = read_checkpoint(tmp_path / "run" / FILE)
    tensors["file:../escaped.txt"] = torch.zeros(1, dtype=torch.uint8)
    write_checkpoint(tmp_path / "bad.safetensors", tensors, description)
    with pytest.raises(CheckpointError, match="damaged checkpoint"):
        load_model(tmp_path / "bad.safetensors")


def test_a_plain_pair_trains_on(tmp_path: Path, toys: Dataset) -> None:
    run = import_model(f"st:{wrapped(tmp_path)}", tmp_path / "run")
    assert isinstance(run, TrainedModel)
    tuned = limner.train(
        "fine-tune",
        toys,
        tmp_path / "tuned",
        start=tmp_path / "run",
        settings=["stages.tune.epochs=1"],
        cpu=True,
    )
    assert tuned.description["data"]["train"] is not None
    assert tuned.description["system"] == run.description["system"] == "pretrained"

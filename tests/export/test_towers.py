"""An export agrees with its run: every system and text path, both engines."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from limner.data.records import Dataset
from limner.data.tokenizers import WordTokenizer
from limner.data.transforms import scaled_views
from limner.errors import SettingsError
from limner.export import onnx_files
from limner.export.exported import ExportedModel, load_export
from limner.export.report import compare, drawn_pixels, drawn_sentences
from limner.export.run import ExportFormat, export_run
from limner.export.sessions import open_tower
from limner.export.small_weights import write_small_weights
from limner.export.towers import _Resize
from limner.inference.checkpoint import write_checkpoint
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.hub_correction import HubCorrectionSettings
from limner.models.mnil import MNiLSettings
from limner.models.registry import build_network
from limner.models.text_bert import BertSettings
from limner.models.text_hgan import HierarchicalTextSettings
from limner.models.text_lstm import TextLSTMSettings
from limner.training.recipe import Recipe
from tests import towers, toy
from tests.export.needs import need_openvino

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

ROWS = 500
"""Pictures and sentences that every pair is compared on."""

WORDS = sorted(
    {
        word
        for colour in toy.COLOURS
        for word in ("a", "on", "in", "ground", colour, *toy.SHAPES, *toy.GROUNDS)
    }
)

BERT = BertSettings(model=None, width=16, layers=4, heads=2)


def _dual_path_at_all_places() -> Recipe:
    recipe = toy.toy_recipe()
    text = recipe.model.text.replace(test_positions=0, text_blocks="released")
    return recipe.replace(model=recipe.model.replace(text=text))


def _mnil_above_bert() -> Recipe:
    recipe = toy.toy_mnil()
    assert isinstance(recipe.model, MNiLSettings)
    text = TextLSTMSettings(
        words=10, word_dim=16, hidden=16, layers=2, feature="mean", bert=BERT.replace(hidden="last")
    )
    stages = tuple(stage.replace(frozen=(*stage.frozen, "bert")) for stage in recipe.stages)
    return recipe.replace(model=recipe.model.replace(text=text), stages=stages)


def _bag_of_words() -> Recipe:
    recipe = toy.toy_mnil()
    return recipe.replace(model=recipe.model.replace(text=recipe.model.text.replace(word_dim=20, layers=0)))


def _hgan_above_bert() -> Recipe:
    recipe = toy.toy_hgan()
    assert isinstance(recipe.model.text, HierarchicalTextSettings)
    text = recipe.model.text.replace(bert=BERT)
    return recipe.replace(model=recipe.model.replace(text=text))


def _with_hub_correction() -> Recipe:
    recipe = toy.toy_mnil()
    # two sizes as well, of which the larger one has every pixel twice
    return recipe.replace(
        model=recipe.model.replace(hub_correction=HubCorrectionSettings(items=20)),
        images=recipe.images.replace(test_scales=(1.0, 2.0)),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "dual-path": toy.toy_recipe,
    "dual-path-all-places": _dual_path_at_all_places,
    "identity-aware": toy.toy_identity_aware,
    "mnil": toy.toy_mnil,
    "mnil-bert": _mnil_above_bert,
    "mnil-words": _bag_of_words,
    "hgan": toy.toy_hgan,
    "hgan-bert": _hgan_above_bert,
    "minilm-kind": toy.toy_late,
    "hub-correction": _with_hub_correction,
}

PAIRS: dict[str, Callable[[Path], object]] = {
    "clip": towers.save_clip,
    "siglip": towers.save_siglip,
    "siglip2": towers.save_siglip2,
    "altclip": towers.save_altclip,
    "chinese-clip": towers.save_chinese_clip,
}


def drawn_run(recipe: Recipe, folder: Path, template: TrainedModel) -> TrainedModel:
    """A run of a recipe at random weights, with statistics of batch norms that are not those of the start."""
    torch.manual_seed(1)
    tokenizer = WordTokenizer(WORDS)
    network = build_network(recipe.model, tokenizer.size)
    if recipe.cross_encoder is not None:
        network.add_cross_encoder(recipe.cross_encoder)
    network.text.read_tokenizer(tokenizer)
    # as for another text tower above the same kind of image tower, which is recorded once then
    torch.manual_seed(2)
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    if network.hub_correction is not None:
        units = torch.nn.functional.normalize(torch.randn(2, 20, recipe.model.dim), dim=2)
        # fewer than there is room for
        network.hub_correction.fill(units[0, :15], units[1])
    description = {
        **template.description,
        "recipe": recipe.model_dump(mode="json"),
        "model": recipe.model.model_dump(mode="json"),
        "images": recipe.images.model_dump(mode="json"),
        "tokenizer": tokenizer.to_description(),
        "cross_encoder": None
        if recipe.cross_encoder is None
        else recipe.cross_encoder.model_dump(mode="json"),
        "files": network.files(),
    }
    folder.mkdir()
    write_checkpoint(folder / "drawn.safetensors", dict(network.state_dict()), description)
    return load_model(folder / "drawn.safetensors", device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def runs(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TrainedModel]:
    folder = tmp_path_factory.mktemp("runs")
    made: dict[str, TrainedModel] = {}

    def run(name: str) -> TrainedModel:
        if name not in made:
            if name in RECIPES:
                made[name] = drawn_run(RECIPES[name](), folder / name, load_model(toy_run, device="cpu"))
            else:
                (folder / f"{name}-source").mkdir()
                PAIRS[name](folder / f"{name}-source")
                import_model(str(folder / f"{name}-source"), folder / name)
                made[name] = load_model(folder / name, device="cpu", precision="fp32")
            # transformers changes a BERT at its first pass: recorded before it, it would be another tower
            made[name].encode_texts("a", check=False)
        return made[name]

    return run


@pytest.fixture(scope="module")
def exports(
    runs: Callable[[str], TrainedModel], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, ExportFormat], ExportedModel]:
    folder = tmp_path_factory.mktemp("exports")

    def export(name: str, format: ExportFormat) -> ExportedModel:
        out = folder / f"{name}-{format}"
        if out.exists():
            return load_export(out)
        with pytest.MonkeyPatch.context() as patch:
            # rerankers have a file of their own, test_rerankers.py
            patch.setattr("limner.export.run.rerank_graphs", lambda model: None)
            return load_export(export_run(runs(name), out, format=format))

    return export


@pytest.mark.parametrize("name", [*RECIPES, *PAIRS])
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_an_export_agrees_with_its_run(
    name: str,
    format: ExportFormat,
    runs: Callable[[str], TrainedModel],
    exports: Callable[[str, ExportFormat], ExportedModel],
) -> None:
    if format == "openvino":
        need_openvino()
    run, export = runs(name), exports(name, format)
    assert export.fingerprint == run.fingerprint
    assert export.dim == run.dim
    pixels, sentences = drawn_pixels(run, ROWS), drawn_sentences(run, ROWS)
    # of one word, of none that is known, and longer than the model reads
    sentences[:3] = [sentences[0].split()[0], "", " ".join(sentences[:20])]
    for found, wanted in (
        (export.encode_pixels(pixels), run.encode_pixels(pixels)),
        (export.encode_texts(sentences, check=False), run.encode_texts(sentences, check=False)),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        assert float((found * wanted).sum(axis=1).min()) >= 0.9999
    images = run.encode_pixels(pixels[:100])
    for found, wanted in zip(
        *(one.encode_texts(sentences[:50], check=False) for one in (export, run)), strict=True
    ):
        own = images @ wanted
        # the same first ten; of two whose scores are equal to rounding either may come first
        np.testing.assert_allclose(
            own[np.argsort(-(images @ found))[:10]], np.sort(own)[::-1][:10], atol=1e-5
        )
    # alone as among others
    alone = np.concatenate([export.encode_texts(one, check=False) for one in sentences[:10]])
    np.testing.assert_allclose(alone, export.encode_texts(sentences[:10], check=False), atol=1e-5)


@pytest.mark.parametrize("name", ["dual-path", "mnil", "clip"])
def test_a_planted_fault_is_seen(name: str, runs: Callable[[str], TrainedModel], tmp_path: Path) -> None:
    run = runs(name)
    flipped = run.images.replace(flip=not run.images.flip)
    other = TrainedModel(run.path, run.description, run.model, run.tokenizer, flipped, run.encoding)
    export_run(other, tmp_path / "export")
    report, _ = compare(
        run, load_export(tmp_path / "export"), drawn_pixels(run, 20), drawn_sentences(run, 20)
    )
    assert report.lowest_cosine < 0.9999


def test_words_are_told_as_by_the_run(
    runs: Callable[[str], TrainedModel], exports: Callable[[str, ExportFormat], ExportedModel]
) -> None:
    for name in ("dual-path", "clip"):
        run, export = runs(name), exports(name, "onnx")
        for sentence in ("a red zebra on grey", " ".join(["red"] * 40)):
            assert export.known_words(sentence) == run.known_words(sentence)
            assert export.unknown_words(sentence) == run.unknown_words(sentence)
            assert export.unread_words(sentence) == run.unread_words(sentence)


@pytest.mark.parametrize(
    ("crop", "scale"), [((224, 224), 1.143), ((224, 224), 1.286), ((40, 36), 2.0), ((64, 64), 0.5)]
)
def test_sizes_are_pillows_to_the_pixel(crop: tuple[int, int], scale: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, *crop, 3), dtype=np.uint8)
    found = _Resize(crop, scale)(torch.from_numpy(pixels).float().permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    np.testing.assert_array_equal(found.numpy(), scaled_views(pixels, scale))


def test_a_folder_is_written_whole_or_not_at_all(
    runs: Callable[[str], TrainedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("limner.export.run.TextTower", broken)
    with pytest.raises(OSError, match="no space"):
        export_run(runs("mnil"), tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["_ONE_FILE", "_BESIDE"])
def test_weights_beside_the_graph(
    limit: str, runs: Callable[[str], TrainedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"limner.export.onnx_files.{limit}", 0)
    run = runs("mnil")
    export_run(run, tmp_path / "export")
    modes = {path.stat().st_mode for path in (tmp_path / "export").glob("text.onnx*")}
    assert (tmp_path / "export" / "text.onnx.data").is_file()
    assert len(modes) == 1
    reports = compare(run, load_export(tmp_path / "export"), drawn_pixels(run, 4), drawn_sentences(run, 4))
    assert min(report.lowest_cosine for report in reports) >= 0.9999


def test_bf16_is_openvinos(runs: Callable[[str], TrainedModel], tmp_path: Path) -> None:
    need_openvino()
    run = runs("mnil")
    with pytest.raises(SettingsError, match="OpenVINO"):
        export_run(run, tmp_path / "export", bf16=True)
    export = load_export(export_run(run, tmp_path / "export", format="openvino", bf16=True))
    assert export.precision == "bf16"
    for report in compare(run, export, drawn_pixels(run, 20), drawn_sentences(run, 20)):
        # tiny networks of random weights; a trained one's report says what it loses
        assert report.lowest_cosine >= 0.99


def test_export_json_says_what_a_reader_needs(
    exports: Callable[[str, ExportFormat], ExportedModel], toys: Dataset
) -> None:
    del toys
    export = exports("clip", "onnx")
    told = json.loads((export.path / "export.json").read_text(encoding="utf-8"))
    assert told["towers"]["text"]["input"] == "token_ids"
    assert told["words"] == towers.LENGTH
    assert (export.path / "tokenizer.json").is_file()


@pytest.mark.parametrize("name", [*RECIPES, *PAIRS])
def test_weights_in_fewer_bits_give_nearly_the_same(
    name: str,
    runs: Callable[[str], TrainedModel],
    exports: Callable[[str, ExportFormat], ExportedModel],
    tmp_path: Path,
) -> None:
    run, whole = runs(name), exports(name, "onnx").path / "text.onnx"
    words = run.model.settings.text.words
    sentences = drawn_sentences(run, 64)
    token_ids = run.tokenizer.encode(sentences, words).token_ids
    right = run.encode_texts(sentences, check=False)
    sizes = [whole.stat().st_size]
    for tables, others, lowest in (("fp16", "fp16", 0.9999), ("int8", "fp16", 0.995), ("int8", "int8", 0.99)):
        smaller = tmp_path / f"{tables}-{others}.onnx"
        write_small_weights(whole, smaller, tables=tables, others=others)  # type: ignore[arg-type]
        found = open_tower(smaller, "onnx")(token_ids)
        assert (found * right).sum(axis=1).min() >= lowest
        sizes.append(smaller.stat().st_size)
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("name", ["dual-path", "clip"])
def test_an_export_names_no_folder_of_this_machine(
    name: str, exports: Callable[[str, ExportFormat], ExportedModel]
) -> None:
    code = str(Path(onnx_files.__file__).parents[2])
    for path in exports(name, "onnx").path.iterdir():
        content = path.read_bytes()
        assert code.encode() not in content, path
        assert b"site-packages" not in content, path

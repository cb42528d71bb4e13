"""An exported reranker gives the scores of its run, and searches re-rank by it as by the run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError
from limner.export.exported import ExportedModel, load_export
from limner.export.int8 import CalibrationRows, to_int8
from limner.export.report import drawn_pixels, drawn_sentences
from limner.export.rerank_graphs import RerankGraphs, rerank_graphs
from limner.export.reranker import ExportedReranker
from limner.export.run import ExportFormat, export_run, write_rerank_part, write_tower
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.losses.levels import Levels
from limner.models.co_attention import CoAttentionSettings
from limner.models.hgan import HGANSettings
from limner.models.local_matching import LocalMatchingSettings
from limner.models.pretrained import PretrainedSettings
from limner.models.text_tower import TextTowerSettings
from limner.search.index import index_pictures
from limner.store.contents import region_features
from limner.store.files import store_for
from limner.training.recipe import Recipe
from tests import toy
from tests.export.needs import need_openvino, search_without_torch
from tests.export.test_towers import drawn_run

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

PICTURES, SENTENCES = 24, 20
"""Drawn pictures and sentences whose pairs are compared."""

QUERY = "a red square on white"


def _without_semantic_attention() -> Recipe:
    recipe = toy.toy_reranking()
    settings = CoAttentionSettings(spatial_dim=6, dim=8, semantic=False)
    # above a text tower whose rows are filled to their end
    late = toy.toy_late()
    assert isinstance(late.model.text, TextTowerSettings)
    text = late.model.text.replace(filled="left")
    model = late.model.replace(late=None, text=text)
    return recipe.replace(model=model, images=late.images, cross_encoder=settings)


def _hgan_of_several_places() -> Recipe:
    # a map of one place would make regions equal, and which of them are selected would be open
    recipe = toy.toy_hgan()
    backbone = recipe.model.backbone.replace(last_stride=1)  # type: ignore[union-attr]
    images = recipe.images.replace(resize=(64, 64), crop=(64, 64))
    return recipe.replace(model=recipe.model.replace(backbone=backbone), images=images)


def _words_select() -> Recipe:
    # a region selects three words by β: the least that a row has places for
    recipe = _hgan_of_several_places()
    return _with_local(recipe, selects="words", k_items=1, k_regions=3)


def _with_local(recipe: Recipe, **settings: str | int) -> Recipe:
    assert isinstance(recipe.model, HGANSettings)
    return recipe.replace(model=recipe.model.replace(local=recipe.model.local.replace(**settings)))


def _soft_phrases() -> Recipe:
    # no words to be matched, and one direction alone
    recipe = toy.toy_levels()
    assert isinstance(recipe.model, PretrainedSettings)
    assert recipe.model.levels is not None
    local = LocalMatchingSettings(hidden=8, attention="soft", direction="image_to_text")
    levels = recipe.model.levels.replace(granularities=("phrase",), local=local)
    stages = tuple(stage.replace(losses=(Levels(word=0.0),)) for stage in recipe.stages)
    return recipe.replace(model=recipe.model.replace(levels=levels), stages=stages)


KINDS: dict[str, Callable[[], Recipe]] = {
    "co-attention": toy.toy_reranking,
    "co-attention-above-a-tower": _without_semantic_attention,
    "hgan": _hgan_of_several_places,
    "hgan-words-select": _words_select,
    "levels-above-towers": _soft_phrases,
    "late": toy.toy_late,
}


SAME_PARTS = {"hgan-words-select": "hgan"}
"""Kinds with the weights of another one, and its graphs of pictures and of sentences; their pairs are recorded anew."""


def written_without_towers(
    run: TrainedModel, out: Path, format: ExportFormat, recorded: Path | None = None, anew: str = ""
) -> ExportedModel:
    """An export of the reranker alone; `recorded` is one in ONNX, whose graphs but the part `anew` are taken over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("limner.export.run.write_tower", lambda model, name, path: path.write_bytes(b""))
        if format == "openvino":
            patch.setattr("limner.export.run.write_openvino", _unless_empty)
        if recorded is not None:
            patch.setattr("limner.export.run.write_rerank_part", _taken_over(recorded, anew))
        return load_export(export_run(run, out, format=format))


def _taken_over(recorded: Path, anew: str = "") -> Callable[[TrainedModel, RerankGraphs, str, Path], None]:
    def copy(model: TrainedModel, graphs: RerankGraphs, part: str, path: Path) -> None:
        if part == anew:
            write_rerank_part(model, graphs, part, path)
            return
        # recording takes the time, and gives the same file
        path.write_bytes((recorded / path.name).read_bytes())

    return copy


def _to_int8_unless_empty(file: Path, name: str, pixels: np.ndarray | None) -> None:
    if file.stat().st_size:
        to_int8(file, name, pixels)


def _unless_empty(source: Path, path: Path) -> None:
    from limner.export.onnx_files import write_openvino

    if source.stat().st_size:
        write_openvino(source, path)
    else:
        path.write_bytes(b"")


@pytest.fixture(scope="module")
def runs(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TrainedModel]:
    folder = tmp_path_factory.mktemp("runs")
    made: dict[str, TrainedModel] = {}

    def run(name: str) -> TrainedModel:
        if name not in made:
            made[name] = drawn_run(KINDS[name](), folder / name, load_model(toy_run, device="cpu"))
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
        if format == "onnx" and name in SAME_PARTS:
            recorded = export(SAME_PARTS[name], "onnx").path
            return written_without_towers(runs(name), out, format, recorded, anew="pairs")
        return written_without_towers(
            runs(name), out, format, None if format == "onnx" else export(name, "onnx").path
        )

    return export


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_an_exported_reranker_agrees_with_its_run(
    name: str,
    format: ExportFormat,
    runs: Callable[[str], TrainedModel],
    exports: Callable[[str, ExportFormat], ExportedModel],
) -> None:
    if format == "openvino":
        need_openvino()
    run = runs(name)
    own, other = run.reranker, exports(name, format).reranker
    assert own is not None
    assert isinstance(other, ExportedReranker)
    assert other.class_mean == own.class_mean
    assert other.region_shape == own.region_shape
    pixels = drawn_pixels(run, PICTURES)
    # each word once: HGAN may select either of two equal ones
    sentences = [" ".join(dict.fromkeys(one.split())) for one in drawn_sentences(run, SENTENCES)]
    # with two phrases, with none, of one word, of none that is known, and longer than the model reads
    sentences[:5] = [f"{QUERY} ground", "on", "red", "", " ".join(sentences[:20])]
    regions = own.region_features(pixels)
    found = other.region_features(pixels)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), regions.astype(np.float32), rtol=2e-3, atol=2e-3)
    for sentence in sentences:
        for some in (regions[:20], regions[20:21]):
            right, told = own.rerank(sentence, some), other.rerank(sentence, some)
            np.testing.assert_allclose(told.logits, right.logits, atol=1e-5, rtol=1e-5)
            assert (told.words, told.reader) == (right.words, right.reader)
            for kind in ("of_regions", "of_words"):
                attention, expected = getattr(told, kind), getattr(right, kind)
                assert (attention is None) == (expected is None)
                if expected is not None:
                    # late interaction's is of cosines times 100
                    np.testing.assert_allclose(attention, expected, atol=1e-4)
    similarities = np.linspace(-1, 1, len(regions), dtype=np.float32)
    logits = own.rerank(sentences[0], regions).logits
    scores = own.scores(similarities, logits)
    np.testing.assert_allclose(other.scores(similarities, logits), scores)
    np.testing.assert_allclose(other.confidences(scores), own.confidences(scores))
    random = np.random.default_rng(0)
    vectors = [random.normal(size=(count, 3)).astype(np.float32) for count in (PICTURES, SENTENCES)]
    for pairs in (300, 10):
        rows = random.integers(0, PICTURES, pairs), random.integers(0, SENTENCES, pairs)
        found, wanted = (
            one.pair_scorer(vectors[0], vectors[1], regions, sentences)(*rows) for one in (other, own)
        )
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("selects", "direction", "attention", "least_words"),
    [
        ("regions", "image_to_text", ["of_words"], 4),
        ("regions", "text_to_image", ["of_regions"], 1),
        ("words", "image_to_text", ["of_regions"], 1),
        ("words", "text_to_image", ["of_words"], 2),
    ],
)
def test_one_direction_gives_the_attention_of_the_side_that_selects(
    selects: str, direction: str, attention: list[str], least_words: int, toy_run: Path, tmp_path: Path
) -> None:
    recipe = _with_local(_hgan_of_several_places(), selects=selects, direction=direction)
    run = drawn_run(recipe, tmp_path / "run", load_model(toy_run, device="cpu"))
    graphs = rerank_graphs(run)
    assert graphs is not None
    assert graphs.pair_outputs == ("logits", *attention)
    assert graphs.told["least_words"] == least_words
    assert run.reranker is not None
    found = run.reranker.rerank(QUERY, run.reranker.region_features(drawn_pixels(run, 2)))
    assert [name for name in ("of_regions", "of_words") if getattr(found, name) is not None] == attention


@pytest.fixture(scope="module")
def searched(
    runs: Callable[[str], TrainedModel],
    exports: Callable[[str, ExportFormat], ExportedModel],
    toys: Dataset,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[TrainedModel, Path, Path]]:
    """A run, a store of it that keeps regions, and its export with its text tower, by kind of reranker."""
    folder = tmp_path_factory.mktemp("searched")

    def searched(name: str) -> tuple[TrainedModel, Path, Path]:
        run, out, store = runs(name), folder / f"{name}-export", folder / name
        if not out.exists():
            index_pictures(
                run, store_for(run, run.path, store), [record.image for record in toys.records[:40]]
            )

            def text_alone(model: TrainedModel, tower: str, path: Path) -> None:
                if tower == "text" or name == "co-attention":
                    write_tower(model, tower, path)
                else:
                    path.write_bytes(b"")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("limner.export.run.write_tower", text_alone)
                patch.setattr("limner.export.run.write_rerank_part", _taken_over(exports(name, "onnx").path))
                export_run(run, out)
        return run, store, out

    return searched


@pytest.mark.parametrize("name", ["co-attention", "hgan", "late"])
def test_a_search_re_ranks_as_the_run_does(
    name: str, searched: Callable[[str], tuple[TrainedModel, Path, Path]], toys: Dataset
) -> None:
    run, store, export = searched(name)
    sentences = [sentence for record in toys.records for sentence in record.sentences][:10]
    with limner.open_store(store, run=run) as own, limner.open_store(store, run=export) as other:
        assert other.info().reranks
        for text in (QUERY, *sentences):
            for options in ({"explain": True}, {"rerank": "all"}, {"rerank": 0}):
                hits, found = (one.search(text, k=10, **options).hits for one in (own, other))
                assert [hit.path for hit in found] == [hit.path for hit in hits]
                for hit, right in zip(found, hits, strict=True):
                    assert hit.rank_before == right.rank_before
                    assert hit.score == pytest.approx(right.score, abs=1e-5)
                    assert (hit.confidence is None) == (right.confidence is None)
                    assert hit.confidence == pytest.approx(right.confidence, abs=1e-4)
                    if hit.attention is not None:
                        assert right.attention is not None
                        np.testing.assert_allclose(
                            np.array(hit.attention.of_regions),
                            np.array(right.attention.of_regions),
                            atol=1e-4,
                        )
        unranked = [hit.path for hit in other.search(QUERY, rerank=0)]
        assert [hit.path for hit in other.search(QUERY, rerank="all")] != unranked


@pytest.mark.parametrize("name", ["co-attention", "hgan"])
def test_a_re_ranked_search_imports_no_torch(
    name: str, searched: Callable[[str], tuple[TrainedModel, Path, Path]]
) -> None:
    run, store, export = searched(name)
    hits = search_without_torch(store, QUERY, export)
    with limner.open_store(store, run=run) as own:
        expected = own.search(QUERY).hits
    assert [hit["path"] for hit in hits] == [str(hit.path) for hit in expected]
    assert hits[0]["confidence"] == pytest.approx(expected[0].confidence, abs=1e-4)


def test_pictures_are_added_with_their_regions(
    searched: Callable[[str], tuple[TrainedModel, Path, Path]], toys: Dataset, tmp_path: Path
) -> None:
    run, store, export = searched("co-attention")
    del store
    images = [record.image for record in toys.records[:6]]
    files = store_for(run, run.path, tmp_path / "store")
    index_pictures(run, files, images[:3])
    assert index_pictures(load_export(export), files, images[3:]).added == 3
    keys = [files.entries()[str(image)].id for image in images]
    np.testing.assert_allclose(
        region_features(files, keys).astype(np.float32),
        run.encode_regions(images).astype(np.float32),
        rtol=2e-3,
        atol=2e-3,
    )


def test_an_export_in_int8_re_ranks_and_adds_no_pictures(
    runs: Callable[[str], TrainedModel], exports: Callable[[str, ExportFormat], ExportedModel], tmp_path: Path
) -> None:
    run = runs("co-attention")
    pixels = drawn_pixels(run, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("limner.export.run.write_tower", lambda model, name, path: path.write_bytes(b""))
        patch.setattr(
            "limner.export.run.write_rerank_part", _taken_over(exports("co-attention", "onnx").path)
        )
        patch.setattr("limner.export.run.to_int8", _to_int8_unless_empty)
        export = load_export(export_run(run, tmp_path / "export", calibration=CalibrationRows(pixels)))
    own, other = run.reranker, export.reranker
    assert own is not None
    assert other is not None
    regions = own.region_features(pixels)
    np.testing.assert_allclose(
        other.rerank(QUERY, regions).logits, own.rerank(QUERY, regions).logits, atol=0.02
    )
    with pytest.raises(SettingsError, match="int8"):
        other.region_features(pixels)


def test_a_changed_byte_of_the_reranker_is_told(
    exports: Callable[[str, ExportFormat], ExportedModel], tmp_path: Path
) -> None:
    written = exports("late", "onnx").path
    for path in written.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "rerank-pairs.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "rerank-pairs.onnx").write_bytes(content)
    reranker = load_export(tmp_path).reranker
    assert reranker is not None
    rows = np.zeros((1, *reranker.region_shape), np.float16)
    with pytest.raises(CheckpointError, match="is not the file"):
        reranker.rerank(QUERY, rows)

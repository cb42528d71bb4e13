"""What figures show, taken from what matplotlib was told to draw."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.evaluation.arrays import Results
from limner.figures.ablation_bars import ablation_figure, read_table
from limner.figures.features import (
    BeforeAndAfter,
    correlation_figure,
    map_figure,
    picture_features,
    sentence_features,
)
from limner.figures.precision_curves import precision_figure, read_curves
from limner.figures.rank_lists import rank_list_figure, rank_lists
from limner.figures.similarities import similarities_of, similarity_figure
from limner.figures.style import GREEN, RED
from limner.figures.training_curves import read_log, training_curves
from limner.figures.word_bars import (
    NamedValue,
    discriminative_figure,
    discriminative_words,
    nearest_figure,
    nearest_words,
)
from limner.runs import load_run
from limner.runs.run import Run

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def run(toy_run: Path) -> Run:
    return load_run(toy_run, device="cpu")


def test_training_curves_are_the_log(toy_run: Path) -> None:
    rows = read_log(toy_run)
    assert rows == read_log(toy_run / "metrics.jsonl")
    losses, scores = training_curves(rows).axes
    drawn = {str(line.get_label()): line.get_ydata() for line in losses.lines}
    np.testing.assert_array_equal(drawn["instance loss, sentences"], [row["textual"] for row in rows])
    ranking = np.asarray(drawn["ranking loss"], dtype=float)
    assert np.isnan(ranking[:3]).all()  # of stage II alone
    assert ranking[3:].tolist() == [row["ranking"] for row in rows[3:]]
    forward = scores.lines[0]
    assert np.asarray(forward.get_xdata()).tolist() == [1, 2, 3, 4, 5]
    assert np.asarray(forward.get_ydata()).tolist() == [row["image_to_text"]["R@1"] for row in rows]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no log of a training run"), ("x", "not a log"), ("", "no epoch"), ('{"a": 1}', "no epoch")],
)
def test_what_is_no_log_is_refused(content: str | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(DataError, match=says):
        read_log(tmp_path)


def test_ablations_stand_beside_the_paper(tmp_path: Path) -> None:
    name = "text_to_image R@1"
    rows = [
        {
            "label": "both",
            "stage": "I",
            "mean": {name: 30.0},
            "deviation": {name: 1.5},
            "paper": {name: 24.1},
        },
        {"label": "one", "stage": "I", "mean": {name: 20.0}, "deviation": {name: None}, "paper": {}},
    ]
    (tmp_path / "table.json").write_text(json.dumps({"rows": rows}))
    (axes,) = ablation_figure(read_table(tmp_path)).axes
    assert [bar.get_width() for bar in axes.patches] == [30.0, 20.0, 24.1, 0.0]  # type: ignore[attr-defined]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["both, I", "one, I"]
    for content, says in (("{}", "not a table"), ('{"rows": []}', "no row"), ("x", "not a table")):
        (tmp_path / "table.json").write_text(content)
        with pytest.raises(DataError, match=says):
            read_table(tmp_path / "table.json")


def _unit(rows: int) -> Any:
    found = RNG.standard_normal((rows, 4)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_similarities_are_every_pair_once() -> None:
    results = Results(np.arange(6), np.arange(12) // 2, _unit(6), _unit(12))
    assert results.images is not None
    assert results.sentences is not None
    counted = similarities_of(results)
    cosines = results.images @ results.sentences.T
    true = results.image_groups[:, None] == results.sentence_groups
    assert counted.true.sum() == 12
    assert counted.every.sum() == 72
    np.testing.assert_array_equal(counted.true, np.histogram(cosines[true], 200, (-1, 1))[0])
    again = similarities_of(Results(results.image_groups, results.sentence_groups, scores=cosines))
    assert again.overlap == pytest.approx(counted.overlap)
    figure = similarity_figure([counted, again], ["one", "two"])
    assert figure.axes[1].get_title("left") == f"two   S = {counted.overlap:.3f}"
    for patch in figure.axes[0].patches:
        values, edges, _ = patch.get_data()  # type: ignore[attr-defined]
        assert (values * np.diff(edges)).sum() == pytest.approx(1)


def test_precision_curves_of_reports(tmp_path: Path) -> None:
    curve = {"recall": [0.0, 0.5, 1.0], "precision": [1.0, 0.7, 0.2]}
    one = {"image_to_text": {"PR-curve": curve}, "text_to_image": {"PR-curve": curve}}
    (tmp_path / "a.json").write_text(json.dumps({"curves": one}))
    figure = precision_figure([read_curves(tmp_path / "a.json")] * 2, ["first", "second"])
    assert len(figure.axes) == 2
    assert [str(line.get_label()) for line in figure.axes[0].lines] == ["first", "second"]
    assert np.asarray(figure.axes[1].lines[0].get_ydata()).tolist() == curve["precision"]
    (tmp_path / "b.json").write_text(json.dumps({"protocol": "plain"}))
    with pytest.raises(DataError, match="no curves are in it"):
        read_curves(tmp_path / "b.json")
    with pytest.raises(DataError, match="no kind of curve in common"):
        precision_figure([one, {"image_to_text": {}, "text_to_image": {}}], ["a", "b"])


def test_correlations_are_pearsons(run: Run, toys: Dataset) -> None:
    found = picture_features(run, toys.records[:7])
    np.testing.assert_allclose(
        found.after, run.encode_images([one.image for one in toys.records[:7]]), atol=1e-6
    )
    assert found.before.shape == (7, run.model.backbone.channels)
    matrix = np.asarray(correlation_figure(found).axes[0].images[0].get_array())
    centred = found.before - found.before.mean(1, keepdims=True)
    expected = centred[0] @ centred[3] / (np.linalg.norm(centred[0]) * np.linalg.norm(centred[3]))
    assert matrix[0, 3] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(DataError, match="between two pictures"):
        correlation_figure(BeforeAndAfter(found.before[:1], found.after[:1]))


def test_maps_place_every_item(run: Run, toys: Dataset) -> None:
    records = toys.records[:8]
    groups = [record.metadata.get("colour", record.group.split()[0]) for record in records]
    said = sentence_features(run, [record.sentences[0] for record in records])
    figure = map_figure(picture_features(run, records), said, groups, groups)
    for axes in figure.axes:
        points = np.concatenate([np.asarray(drawn.get_offsets()) for drawn in axes.collections])
        assert points.shape == (8, 2)
        assert np.isfinite(points).all()
    table = run.model.text.table.weight.detach().numpy()
    numbers = run.vocabulary.numbers(records[0].sentences[0])
    np.testing.assert_allclose(said.before[0], table[numbers].mean(0), rtol=1e-5)
    few = BeforeAndAfter(said.before[:3], said.after[:3])
    with pytest.raises(DataError, match="four items at least, here are 3"):
        map_figure(few, few, groups[:3], groups[:3])


@pytest.mark.parametrize("to_text", [False, True])
def test_rank_lists_are_the_ranking(run: Run, toys: Dataset, to_text: bool) -> None:
    records = toys.split("test").records
    lists = rank_lists(run, records, to_text=to_text, queries=3, first=4)
    assert len(lists) == 3
    images = run.encode_images([record.image for record in records])
    sentences = [sentence for record in records for sentence in record.sentences]
    texts = run.encode_texts(sentences)
    for one in lists:
        if to_text:
            row = [record.image for record in records].index(Path(one.query))
            scores, items = texts @ images[row], sentences
            own = set(records[row].sentences)
        else:
            row = sentences.index(str(one.query))
            scores, items = images @ texts[row], [str(record.image) for record in records]
            own = {str(records[row // 2].image)}
        found = [str(item) for item, _ in one.found]
        assert found == [items[place] for place in np.argsort(-scores, kind="stable")[:4]]
        assert [true for _, true in one.found] == [item in own for item in found]
    figure = rank_list_figure(lists)
    trues = [true for one in lists for _, true in one.found]
    if to_text:
        colours = [text.get_color() for axes in figure.axes for text in axes.texts]
        assert colours == [GREEN if true else RED for true in trues]
    else:
        frames = [axes.spines["top"] for axes in figure.axes if axes.images]
        from matplotlib.colors import to_hex

        assert [to_hex(frame.get_edgecolor()) for frame in frames] == [
            GREEN if true else RED for true in trues
        ]


def test_rank_lists_of_nothing_are_refused(run: Run, toys: Dataset) -> None:
    with pytest.raises(SettingsError, match="at least one query"):
        rank_lists(run, toys.records, to_text=False, queries=0, first=4)


def test_nearest_words_are_by_cosine(run: Run) -> None:
    found = nearest_words(run, "red", 3)
    table = run.model.text.table.weight.detach().numpy()
    unit = table[1:] / np.linalg.norm(table[1:], axis=1, keepdims=True)
    cosines = {word: float(row @ unit[run.vocabulary.numbers("red")[0] - 1]) for word, row in
               zip(run.vocabulary.entries, unit, strict=True) if word != "red"}  # fmt: skip
    best = sorted(cosines, key=lambda word: -cosines[word])[:3]
    assert [one.word for one in found] == best
    assert [one.value for one in found] == pytest.approx([cosines[word] for word in best], abs=1e-6)
    assert len(nearest_words(run, "red", 500)) == len(run.vocabulary) - 1
    figure = nearest_figure([("red", found), ("blue", nearest_words(run, "blue", 3))])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == best
    with pytest.raises(DataError, match="no word that the model knows"):
        nearest_words(run, "zebra")


def test_discriminative_words_are_what_the_match_loses(run: Run, toys: Dataset) -> None:
    record = toys.records[0]
    found = discriminative_words(run, record.image, "a red zebra square")
    assert [one.word for one in found] == ["a", "red", "square"]
    image = run.encode_images([record.image])[0]
    whole, without = (float(run.encode_texts([text])[0] @ image) for text in ("a red square", "a square"))
    assert found[1].value == pytest.approx(whole - without, abs=1e-5)
    with pytest.raises(DataError, match="two words that the model knows"):
        discriminative_words(run, record.image, "red zebra")
    figure = discriminative_figure([NamedValue("a", 0.1), NamedValue("b", -0.2)], "a b")
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.1, -0.2]  # type: ignore[attr-defined]

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

import limner
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.figures.style import GREEN, RED
from limner.figures.word_bars import _WITHIN, nearest_figure, nearest_words, weights_figure, word_weights
from limner.inference.trained import TrainedModel
from limner.wire import Phrase


def test_nearest_words_are_by_cosine(run: TrainedModel) -> None:
    found = nearest_words(run, "red", 3)
    table = run.model.text.table.weight.detach().numpy()
    unit = table[1:] / np.linalg.norm(table[1:], axis=1, keepdims=True)
    cosines = {word: float(row @ unit[run.tokenizer.entries.index("red")]) for word, row in
               zip(run.tokenizer.entries, unit, strict=True) if word != "red"}  # fmt: skip
    best = sorted(cosines, key=lambda word: -cosines[word])[:3]
    assert [one.word for one in found] == best
    assert [one.value for one in found] == pytest.approx([cosines[word] for word in best], abs=1e-6)
    assert len(nearest_words(run, "red", 500)) == run.tokenizer.size - 1
    figure = nearest_figure([("red", found), ("blue", nearest_words(run, "blue", 3))])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == best
    with pytest.raises(SettingsError, match="at least one neighbour"):
        nearest_words(run, "red", 0)
    with pytest.raises(DataError, match="no word that the model knows"):
        nearest_words(run, "zebra")


def test_nearest_words_of_an_lstm_are_by_its_outputs(mnil: TrainedModel) -> None:
    found = nearest_words(mnil, "red", 2)
    words = mnil.tokenizer.entries
    with torch.inference_mode():
        outputs = mnil.model.text(torch.from_numpy(mnil.tokenizer.encode(words, 10).token_ids)).numpy()
    unit = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    cosines = dict(zip(words, unit @ unit[words.index("red")], strict=True))
    best = sorted((word for word in words if word != "red"), key=lambda word: -cosines[word])[:2]
    assert [one.word for one in found] == best
    assert found[0].value == pytest.approx(cosines[best[0]], abs=1e-5)


def test_discriminative_words_are_what_the_match_loses(run: TrainedModel, toys: Dataset) -> None:
    record = toys.records[0]
    found = word_weights(run, record.image, "a red zebra square", "leave-one-out", each_word=True)
    assert [one.text for one in found] == ["a", "red", "square"]
    image = run.encode_images([record.image])[0]
    whole, without = (float(run.encode_queries([text])[0] @ image) for text in ("a red square", "a square"))
    assert found[1].weight == pytest.approx(whole - without, abs=1e-5)
    with pytest.raises(DataError, match="two words that the model knows"):
        word_weights(run, record.image, "red zebra")
    with pytest.raises(SettingsError, match="masked-regression"):
        word_weights(run, record.image, "a red square", "guess")


def test_the_bars_are_what_search_explains(run: TrainedModel, toys: Dataset, tmp_path: Path) -> None:
    images = [toys.records[0].image]
    limner.index(run, tmp_path / "store", images)
    store = limner.open_store(tmp_path / "store", device="cpu")
    told = store.explain("a red square on white", next(iter(store)).id)
    found = word_weights(run, images[0], "a red square on white")
    assert [one.text for one in found] == [one.text for one in told.phrases]
    assert "red square" in [one.text for one in found]
    assert [one.weight for one in found] == pytest.approx([one.weight for one in told.phrases], abs=1e-4)
    assert [one.noise for one in found] == pytest.approx([one.noise for one in told.phrases], abs=1e-4)


def test_weights_within_noise_are_grey() -> None:
    values = [
        Phrase(text="a", weight=0.1, noise=0.2),
        Phrase(text="red coat", weight=0.4, noise=0.2),
        Phrase(text="b", weight=-0.3, noise=None),
    ]
    axes = weights_figure(values, "a red coat b").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0.1, 0.4, -0.3]  # type: ignore[attr-defined]
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches] == [_WITHIN, GREEN, RED]
    assert "grey: within noise" in axes.get_xlabel()
    assert "grey" not in weights_figure(values[1:], "red coat b", "leave-one-out").axes[0].get_xlabel()

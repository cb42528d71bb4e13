import numpy as np
import pytest
import torch

from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.figures.word_bars import (
    NamedValue,
    discriminative_figure,
    discriminative_words,
    nearest_figure,
    nearest_words,
)
from limner.inference.trained import TrainedModel


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
    found = discriminative_words(run, record.image, "a red zebra square")
    assert [one.word for one in found] == ["a", "red", "square"]
    image = run.encode_images([record.image])[0]
    whole, without = (float(run.encode_texts([text])[0] @ image) for text in ("a red square", "a square"))
    assert found[1].value == pytest.approx(whole - without, abs=1e-5)
    with pytest.raises(DataError, match="two words that the model knows"):
        discriminative_words(run, record.image, "red zebra")
    figure = discriminative_figure([NamedValue("a", 0.1), NamedValue("b", -0.2)], "a b")
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.1, -0.2]  # type: ignore[attr-defined]

import numpy as np
import pytest
import torch

from limner.data.records import Dataset
from limner.errors import DataError
from limner.figures.features import (
    TwoFeatures,
    correlation_figure,
    map_figure,
    mean_correlation,
    picture_features,
    sentence_features,
)
from limner.inference.trained import TrainedModel


def test_correlations_are_pearsons(run: TrainedModel, toys: Dataset) -> None:
    found = picture_features(run, toys.records[:7])
    np.testing.assert_allclose(
        found.embedded, run.encode_images([one.image for one in toys.records[:7]]), atol=1e-6
    )
    assert found.entering.shape == (7, run.model.backbone.channels)
    matrix = np.asarray(correlation_figure(found).axes[0].images[0].get_array())
    centred = found.entering - found.entering.mean(1, keepdims=True)
    expected = centred[0] @ centred[3] / (np.linalg.norm(centred[0]) * np.linalg.norm(centred[3]))
    assert matrix[0, 3] == pytest.approx(expected, abs=1e-5)
    pairs = [matrix[row, other] for row in range(7) for other in range(7) if row != other]
    assert mean_correlation(found.entering) == pytest.approx(sum(pairs) / 42, abs=1e-5)
    with pytest.raises(DataError, match="between two pictures"):
        correlation_figure(TwoFeatures(found.entering[:1], found.embedded[:1]))


def test_maps_place_every_item(run: TrainedModel, toys: Dataset) -> None:
    records = toys.records[:8]
    groups = [record.metadata.get("colour", record.group.split()[0]) for record in records]
    said = sentence_features(run, [record.sentences[0] for record in records])
    figure = map_figure(picture_features(run, records), said, groups, groups)
    for axes in figure.axes:
        points = np.concatenate([np.asarray(drawn.get_offsets()) for drawn in axes.collections])
        assert points.shape == (8, 2)
        assert np.isfinite(points).all()
    table = run.model.text.table.weight.detach().numpy()
    numbers = list(run.tokenizer.tokenize(records[0].sentences[:1], 99)[0].token_ids)
    np.testing.assert_allclose(said.entering[0], table[numbers].mean(0), rtol=1e-5)
    few = TwoFeatures(said.entering[:3], said.embedded[:3])
    with pytest.raises(DataError, match="four items at least, here are 3"):
        map_figure(few, few, groups[:3], groups[:3])
    same = TwoFeatures(np.ones((8, 4), np.float32), np.ones((8, 4), np.float32))
    with pytest.raises(DataError, match="all the same"):
        map_figure(same, same, groups, groups)


def test_of_an_lstm_its_features_enter(mnil: TrainedModel, toys: Dataset) -> None:
    said = [record.sentences[0] for record in toys.records[:6]]
    found = sentence_features(mnil, said)
    with torch.inference_mode():
        expected = mnil.model.text(torch.from_numpy(mnil.tokenizer.encode(said, 10).token_ids))
    np.testing.assert_allclose(found.entering, expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.embedded, mnil.encode_texts(said), atol=1e-6)

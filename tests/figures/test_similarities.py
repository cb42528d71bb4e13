from typing import Any

import numpy as np
import pytest

from limner.evaluation.arrays import Results
from limner.figures.similarities import similarities_of, similarity_figure

RNG = np.random.default_rng(0)


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

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation import relevance as module
from limner.evaluation.relevance import Relevance

codes = st.lists(st.integers(-3, 6), min_size=1, max_size=20)


@given(codes, codes)
def test_matches_are_the_items_of_equal_code(queries: list[int], gallery: list[int]) -> None:
    relevance = Relevance.from_groups(queries, np.array(gallery))
    for query, code in enumerate(queries):
        expected = [item for item, other in enumerate(gallery) if other == code]
        assert relevance.matches(query).tolist() == expected
        assert relevance.matched[query] == bool(expected)
    assert (relevance.queries, relevance.gallery_size) == (len(queries), len(gallery))


def test_tensors_of_any_integer_kind_are_taken() -> None:
    relevance = Relevance.from_groups(
        torch.tensor([1, 2], dtype=torch.int16), np.array([2, 2], dtype=np.uint8)
    )
    assert relevance.counts.tolist() == [0, 2]


@pytest.mark.parametrize("bad", [[], [[1, 2]], [0.5, 1.0], ["a"], 3])
def test_other_codes_are_refused(bad: object) -> None:
    with pytest.raises(DataError, match="query groups: expected"):
        Relevance.from_groups(bad, [1])
    with pytest.raises(DataError, match="gallery groups: expected"):
        Relevance.from_groups([1], bad)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_shared_labels(queries: int, gallery: int, labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    of_queries, of_gallery = rng.integers(0, 2, (queries, labels)), rng.integers(0, 2, (gallery, labels)) > 0
    relevance = Relevance.from_labels(of_queries, torch.from_numpy(of_gallery))
    for query in range(queries):
        expected = [item for item in range(gallery) if (of_queries[query] * of_gallery[item]).any()]
        assert relevance.matches(query).tolist() == expected
        assert relevance.counts[query] == len(expected)
    assert (relevance.queries, relevance.gallery_size) == (queries, gallery)


def test_labels_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    of_queries, of_gallery = rng.integers(0, 2, (11, 3)), rng.integers(0, 2, (7, 3))
    whole = Relevance.from_labels(of_queries, of_gallery)
    monkeypatch.setattr(module, "_MASKED", 20)
    assert Relevance.from_labels(of_queries, of_gallery).counts.tolist() == whole.counts.tolist()


@pytest.mark.parametrize("bad", [[], [1, 0], [[0.5, 1.0]], [[2, 0]], [["a", "b"]], 3])
def test_other_labels_are_refused(bad: object) -> None:
    with pytest.raises(DataError, match="query labels: expected"):
        Relevance.from_labels(bad, [[1, 0]])
    with pytest.raises(DataError, match="gallery labels: expected"):
        Relevance.from_labels([[1, 0]], bad)
    with pytest.raises(DataError, match="queries have 1 labels, gallery items 2"):
        Relevance.from_labels([[1]], [[1, 0]])

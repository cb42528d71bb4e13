import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from limner.errors import DataError
from limner.evaluation.scores import BINS, Similarities
from tests.reference import ranking as twin

# Middles of bins, so that rounding puts none into another one.
cosines = st.integers(0, BINS - 1).map(lambda place: (2 * place + 1) / BINS - 1)
some = st.lists(cosines, min_size=1, max_size=30)


@given(some, some, st.integers(1, 3))
def test_overlap_equals_its_definition(true: list[float], wrong: list[float], blocks: int) -> None:
    similarities = Similarities()
    every = torch.tensor(true + wrong, dtype=torch.float64)
    for part in torch.split(every, -(-len(every) // blocks)):
        similarities.add(part[None], torch.empty(0, dtype=torch.float64))
    similarities.add(torch.empty(0, 3, dtype=torch.float64), torch.tensor(true, dtype=torch.float64))
    assert similarities.overlap == pytest.approx(twin.overlap(true, wrong, BINS))
    plain = similarities.histograms()
    assert len(plain["edges"]) == BINS + 1
    assert (sum(plain["true"]), sum(plain["wrong"])) == (len(true), len(wrong))


def test_the_ends_of_the_range_count() -> None:
    similarities = Similarities()
    similarities.add(torch.tensor([[1.0, -1.0, 1.0004]]), torch.tensor([1.0, 1.0004]))
    assert similarities.true[-1] == 2
    assert similarities.every[0] == 1
    assert similarities.overlap == 0


def test_one_kind_alone_has_no_overlap() -> None:
    similarities = Similarities()
    similarities.add(torch.tensor([[0.5]]), torch.tensor([0.5]))
    with pytest.raises(DataError, match="none of one kind"):
        _ = similarities.overlap


def test_what_is_no_cosine_is_refused() -> None:
    with pytest.raises(DataError, match=r"a score is -3; L2-normalise"):
        Similarities().add(torch.tensor([[0.5, -3.0]]), torch.tensor([0.5]))

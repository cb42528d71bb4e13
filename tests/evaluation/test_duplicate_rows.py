import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from limner.evaluation.duplicates import duplicate_rows


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.sampled_from([0, -0.0, 1, 2]),
    )
)
def test_each_repeated_row_is_paired_with_its_first(rows: np.ndarray) -> None:
    seen: dict[tuple[float, ...], int] = {}
    expected = []
    for index, row in enumerate(map(tuple, rows.tolist())):
        if seen.setdefault(row, index) != index:
            expected.append((index, seen[row]))
    for dtype in (np.float32, np.float64):
        later, first = duplicate_rows(rows.astype(dtype))
        assert list(zip(later.tolist(), first.tolist(), strict=True)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_numbers_are_told_apart(dtype: torch.dtype) -> None:
    # Few set bits, all at the top of the word: the hardest for a product hash.
    values = torch.tensor([0, 1, 2, -2, 4, 0.5, -0.5, 2.0**60], dtype=dtype)
    rows = torch.cartesian_prod(values, values, values)
    later, first = duplicate_rows(torch.cat([rows, rows]).numpy())
    assert later.tolist() == list(range(len(rows), 2 * len(rows)))
    assert first.tolist() == list(range(len(rows)))


def test_rows_one_bit_apart_are_not_twins() -> None:
    rows = torch.ones(3, 40)
    rows[1, 39] = torch.nextafter(rows[1, 39], torch.tensor(2.0))
    assert [part.tolist() for part in duplicate_rows(rows.numpy())] == [[2], [0]]

import doctest

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.search import snapshot as module
from limner.search.snapshot import top


@settings(deadline=None)
@given(st.lists(st.integers(-2, 2), max_size=30), st.integers(1, 40))
def test_top_is_the_head_of_a_stable_sort(values: list[int], k: int) -> None:
    expected = sorted(range(len(values)), key=lambda index: -values[index])[:k]
    assert top(np.array(values, np.float32), k).tolist() == expected


def test_example_in_docstring() -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed

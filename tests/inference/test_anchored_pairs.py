import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.inference.anchored_pairs import anchored_pairs


@given(pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=40), held=st.integers(1, 12))
def test_each_pair_comes_once_with_its_image_and_its_sentence(
    pairs: list[tuple[int, int]], held: int
) -> None:
    images, sentences = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    seen: list[int] = []
    for block, groups in anchored_pairs(images, sentences, held):
        assert 1 <= len(block) <= held
        for places, of_images, rows in groups:
            assert min(len(of_images), len(rows)) == 1
            np.testing.assert_array_equal(np.broadcast_to(of_images, places.shape), images[places])
            np.testing.assert_array_equal(np.broadcast_to(block[rows], places.shape), sentences[places])
            seen += places.tolist()
    assert sorted(seen) == list(range(len(pairs)))


@pytest.mark.parametrize(("images", "sentences"), [(2, 50), (50, 2)])
def test_there_is_a_group_for_each_of_the_fewer(images: int, sentences: int) -> None:
    grid = np.array([(image, sentence) for image in range(images) for sentence in range(sentences)])
    groups = [one for _, found in anchored_pairs(grid[:, 0], grid[:, 1], 100) for one in found]
    assert len(groups) == 2

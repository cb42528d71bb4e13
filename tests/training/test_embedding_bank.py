import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from limner.training.hard_negatives import EmbeddingBank


class _Drawing(np.random.Generator):
    """Notes what is drawn."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.drawn: list[int] = []

    def choice(self, *arguments: object, **named: object) -> np.ndarray:  # type: ignore[override]
        found = super().choice(*arguments, **named)  # type: ignore[call-overload]
        self.drawn = [int(number) for number in found]
        return np.asarray(found)


def _bank(images: int, sentences: int, groups: int, seed: int) -> EmbeddingBank:
    rng = np.random.default_rng(seed)

    def unit(rows: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(rows, 4))).float(), dim=1)

    return EmbeddingBank(
        unit(images), rng.integers(0, groups, images), unit(sentences), rng.integers(0, groups, sentences)
    )


def _slow(bank: EmbeddingBank, image: int, drawn: list[int]) -> int:
    """The sentence among the drawn that is most similar and of another group; the first drawn where there is none."""
    best, best_similarity = drawn[0], -2.0
    for sentence in drawn:
        similarity = sum(float(a * b) for a, b in zip(bank.images[image], bank.texts[sentence], strict=True))
        if bank.text_groups[sentence] != bank.image_groups[image] and similarity > best_similarity:
            best, best_similarity = sentence, similarity
    return best


@given(st.integers(2, 15), st.integers(2, 15), st.integers(1, 4), st.integers(1, 20), st.integers(0, 99))
def test_hardest_of_the_drawn_is_that_of_a_slow_search(
    images: int, sentences: int, groups: int, candidates: int, seed: int
) -> None:
    bank, rng = _bank(images, sentences, groups, seed), _Drawing(seed)
    found = bank.hard_texts(np.arange(images), candidates, rng)
    assert len(set(rng.drawn)) == len(rng.drawn) == min(candidates, sentences)
    assert found.tolist() == [_slow(bank, image, rng.drawn) for image in range(images)]


@given(st.integers(2, 15), st.integers(2, 15), st.integers(1, 20), st.integers(0, 99))
def test_own_group_is_taken_only_where_nothing_else_was_drawn(
    images: int, sentences: int, candidates: int, seed: int
) -> None:
    bank, rng = _bank(images, sentences, 2, seed), _Drawing(seed)
    anchors = np.arange(sentences)
    for anchor, image in zip(anchors, bank.hard_images(anchors, candidates, rng), strict=True):
        others = [number for number in rng.drawn if bank.image_groups[number] != bank.text_groups[anchor]]
        assert (int(image) in others) == bool(others)


def test_mining_sentences_for_pictures_mirrors_the_other_direction() -> None:
    bank = _bank(12, 9, 3, 0)
    mirrored = EmbeddingBank(bank.texts, bank.text_groups, bank.images, bank.image_groups)
    anchors = np.array([4, 0, 8])
    ours = bank.hard_images(anchors, 6, np.random.default_rng(1))
    theirs = mirrored.hard_texts(anchors, 6, np.random.default_rng(1))
    np.testing.assert_array_equal(ours, theirs)

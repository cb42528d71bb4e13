"""Close rows are all found, and one picture is told from another by a small copy."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from limner.data import alike
from limner.data.alike import close_pairs, same_pictures, small_copy


@given(st.integers(0, 60), st.integers(1, 200), st.floats(0, 3), st.integers(0, 10_000), st.booleans())
def test_all_close_pairs_and_no_others(count: int, dim: int, most: float, seed: int, in_parts: bool) -> None:
    rng = np.random.default_rng(seed)
    # around a few places, with copies among them
    rows = rng.normal(size=(5, dim))[rng.integers(5, size=count)] + rng.normal(scale=0.2, size=(count, dim))
    rows[::7] = rows[:1] if count else rows[::7]
    rows = np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), np.float32)
    squares = np.square(rows.astype(np.float64)[:, None] - rows[None]).sum(-1)
    expected = {(a, b) for a in range(count) for b in range(a + 1, count) if squares[a, b] <= most}
    close = {(a, b) for a in range(count) for b in range(a + 1, count) if squares[a, b] <= most + 2e-9}
    with pytest.MonkeyPatch.context() as patch:
        if in_parts:
            patch.setattr(alike, "_BLOCK", 8)
            patch.setattr(alike, "_COLUMNS", 16)
        found = list(close_pairs(rows.__getitem__, count, most))
    assert len(found) == len(set(found))
    assert expected <= set(found) <= close


def scene(seed: int) -> Image.Image:
    """A smooth picture of many colours."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((320, 240), Image.Resampling.BICUBIC)


def saved(image: Image.Image, form: str, **options: Any) -> Image.Image:
    file = io.BytesIO()
    image.save(file, form, **options)
    file.seek(0)
    return Image.open(file)


VARIANTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half": lambda image: saved(image.resize((160, 120)), "JPEG"),
    "a quarter": lambda image: saved(image.resize((80, 60)), "WEBP", quality=60),
    "poor": lambda image: saved(image, "JPEG", quality=25),
    "PNG": lambda image: saved(image, "PNG"),
    "GIF": lambda image: saved(image.convert("P"), "GIF"),
    "brighter": lambda image: image.point(lambda value: min(255, int(value * 1.1))),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_picture_in_other_forms(variant: str) -> None:
    small = np.stack(
        [small_copy(image) for seed in range(20) for image in (scene(seed), VARIANTS[variant](scene(seed)))]
    )
    assert list(same_pictures(small)) == [(2 * seed, 2 * seed + 1) for seed in range(20)]


@given(st.integers(100, 400), st.integers(100, 400), st.integers(0, 5))
def test_a_copy_of_any_size_is_the_same(side: int, other: int, seed: int) -> None:
    """As thumbnails are: JPEGs that may be decoded at a fraction, of fine texture."""
    rng = np.random.default_rng(seed)
    layers = (
        Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)).resize((400, 400))
        for size in (5, 17, 53, 160)
    )
    texture = Image.fromarray(np.mean([np.asarray(one, np.float32) for one in layers], 0).astype(np.uint8))
    copies = [small_copy(saved(texture.resize((size, size)), "JPEG", quality=80)) for size in (side, other)]
    assert list(same_pictures(np.stack(copies))) == [(0, 1)]


def test_noise_in_the_dark_is_no_difference_and_no_likeness() -> None:
    """Two black frames are one picture; a dark scene is none of them."""
    dark = [np.full(768, 3, np.uint8), np.full(768, 3, np.uint8)]
    dark[1][::5] = 4
    faint = small_copy(scene(1).point(lambda value: value // 6))
    assert list(same_pictures(np.stack([*dark, faint]))) == [(0, 1)]
    assert list(same_pictures(np.empty((0, 768), np.uint8))) == []

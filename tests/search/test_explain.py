"""The part that a model sees, against what loading and cropping a picture makes of it."""

import io

import numpy as np
import pytest
from PIL import Image

from limner.data.transforms import ImageSettings, centre_crop, crop_of, load


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (64, 64), (900, 50), (50, 1000)])
@pytest.mark.parametrize(
    "settings",
    [
        ImageSettings(resize=100, crop=(90, 80)),
        ImageSettings(resize=(128, 64), crop=(128, 64)),
        ImageSettings(resize=(128, 64), crop=(96, 32)),
    ],
)
def test_it_is_what_loading_keeps(size: tuple[int, int], settings: ImageSettings) -> None:
    width, height = size
    across, down = (np.arange(length) + 0.5 for length in size)
    ramps = np.zeros((height, width, 3))
    ramps[:, :, 0] = 255 * across / width
    ramps[:, :, 1] = (255 * down / height)[:, None]
    file = io.BytesIO()
    Image.fromarray(ramps.astype(np.uint8)).save(file, "PNG")
    seen = centre_crop(load(file.getvalue(), settings), settings).astype(float) / 255
    left, top, right, bottom = crop_of(width, height, settings)
    for found, first, last in ((seen[0, :, 0], left, right), (seen[:, 0, 1], top, bottom)):
        half = (last - first) / len(found) / 2  # from a pixel's middle to its edge
        assert found[0] == pytest.approx(first + half, abs=0.012)
        assert found[-1] == pytest.approx(last - half, abs=0.012)


def test_a_squeezed_picture_is_seen_whole() -> None:
    assert crop_of(200, 333, ImageSettings(resize=(128, 64), crop=(128, 64))) == (0, 0, 1, 1)

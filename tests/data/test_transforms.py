import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from limner.data.transforms import LONGEST, ImageSettings, centre_crop, flip, load, random_view, scaled_views
from limner.documented import field_docstrings
from limner.errors import DataError, ImageError, SettingsError
from limner.types import Pixels

VIEWS = ("random", "scaled", "pad")


def png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (width, height), 90).save(file, "PNG")
    return file.getvalue()


def coordinates(height: int, width: int) -> Pixels:
    """Red holds the row, green the column: a view tells where it was cut."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.arange(height)[:, None]
    pixels[..., 1] = np.arange(width)[None, :]
    return pixels


def parse(**values: Any) -> ImageSettings:
    return ImageSettings.parse(values)


def test_the_defaults_are_the_papers() -> None:
    chosen = ImageSettings()
    assert (chosen.resize, chosen.crop, chosen.train_crop, chosen.flip) == (256, (224, 224), "random", True)


def test_every_field_says_what_it_is() -> None:
    assert field_docstrings(ImageSettings).keys() == ImageSettings.model_fields.keys()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"resize": 200}, "crop 224×224 does not fit in a picture resized to 200×200"),
        ({"resize": (384, 192)}, "crop 224×224 does not fit in a picture resized to 384×192"),
        (
            {"resize": (192, 384), "crop": (224, 100)},
            "crop 224×100 does not fit in a picture resized to 192×384",
        ),
        ({"resize": 0}, "resize"),
        ({"crop": (0, 5)}, "crop"),
        ({"crop": (5,)}, "crop"),
        ({"resize": 10**6}, "resize"),
        ({"pad": -1}, "pad"),
        ({"train_crop": "centre"}, "train_crop"),
        ({"train_corp": "pad"}, "did you mean 'train_crop'"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(**values)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1


SIDES = st.one_of(
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
    st.tuples(st.integers(1, 8), st.integers(1, 6000)),
    st.tuples(st.integers(1, 6000), st.integers(1, 8)),
)


@st.composite
def sound_settings(draw: st.DrawFn) -> ImageSettings:
    exact = draw(st.booleans())
    height, width = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    resize = (height, width) if exact else height
    crop = (draw(st.integers(1, height)), draw(st.integers(1, width if exact else height)))
    return parse(
        resize=resize, crop=crop, train_crop=draw(st.sampled_from(VIEWS)), pad=draw(st.integers(0, 9))
    )


@settings(max_examples=150)
@given(SIDES, sound_settings(), st.integers(0, 2**32))
def test_every_picture_gives_views_of_the_crops_size(
    size: tuple[int, int], chosen: ImageSettings, seed: int
) -> None:
    loaded = load(png(*size), chosen)
    rng = np.random.default_rng(seed)
    if isinstance(chosen.resize, int):
        assert min(loaded.shape[:2]) == chosen.resize
        assert max(loaded.shape[:2]) <= LONGEST * chosen.resize
    else:
        assert loaded.shape[:2] == chosen.resize
    for view in (centre_crop(loaded, chosen), random_view(loaded, chosen, rng)):
        assert view.shape == (*chosen.crop, 3)
        assert view.dtype == np.uint8
        assert view.flags.c_contiguous
        assert (view == 90).all()


@pytest.mark.parametrize(("size", "shape"), [((1, 5000), (4096, 256, 3)), ((5000, 1), (256, 4096, 3))])
def test_a_strip_keeps_only_its_middle(size: tuple[int, int], shape: tuple[int, ...]) -> None:
    image = Image.new("RGB", size, (0, 0, 255))
    middle = 2500
    image.paste(
        (255, 0, 0), (0, middle - 8, 1, middle + 8) if size[0] == 1 else (middle - 8, 0, middle + 8, 1)
    )
    file = io.BytesIO()
    image.save(file, "PNG")
    loaded = load(file.getvalue(), ImageSettings())
    assert loaded.shape == shape
    # One pixel of the strip fills 256; those at both ends are blended with what was cut away.
    inside = loaded[256:-256] if size[0] == 1 else loaded[:, 256:-256]
    assert (inside == (255, 0, 0)).all()


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((640, 480), (256, 341, 3)),
        ((375, 500), (341, 256, 3)),
        ((100, 100), (256, 256, 3)),
        ((20, 30), (384, 256, 3)),
    ],
)
def test_the_shorter_side_becomes_256_and_the_ratio_stays(
    size: tuple[int, int], shape: tuple[int, ...]
) -> None:
    assert load(png(*size), ImageSettings()).shape == shape


def test_shrinking_averages_instead_of_skipping_pixels() -> None:
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    file = io.BytesIO()
    Image.fromarray(stripes).save(file, "PNG")
    grey = load(file.getvalue(), ImageSettings())[:, 2:-2].astype(int)
    assert np.abs(grey - 128).max() <= 4


def test_scaled_jpeg_decoding_shows_the_same_picture() -> None:
    rows, columns = np.mgrid[0:900, 0:1200]
    scene = np.stack([rows / 900, columns / 1200, (rows + columns) / 2100], axis=-1) * 255
    image = Image.fromarray(scene.astype(np.uint8))
    jpeg, lossless = io.BytesIO(), io.BytesIO()
    image.save(jpeg, "JPEG", quality=95)
    image.save(lossless, "PNG")
    chosen = parse(resize=64, crop=(64, 64))
    fast, slow = load(jpeg.getvalue(), chosen), load(lossless.getvalue(), chosen)
    assert fast.shape == slow.shape
    assert np.abs(fast.astype(int) - slow).max() <= 6


def test_an_unreadable_picture_is_refused_by_name() -> None:
    with pytest.raises(ImageError, match=r"^photo\.jpg: "):
        load(b"none", ImageSettings(), name="photo.jpg")


@pytest.mark.parametrize(("height", "width"), [(7, 9), (4, 4), (8, 5), (5, 200)])
def test_the_centre_crop_leaves_the_same_on_both_sides(height: int, width: int) -> None:
    view = centre_crop(coordinates(height, width), parse(resize=4, crop=(4, 3)))
    for channel, whole, part in ((0, height, 4), (1, width, 3)):
        before, after = int(view[..., channel].min()), whole - 1 - int(view[..., channel].max())
        assert before + after + part == whole
        assert after - before in (0, 1)


def test_random_crops_are_windows_at_every_place_alike() -> None:
    chosen = parse(resize=4, crop=(3, 4), flip=False)
    rng = np.random.default_rng(0)
    pixels, draws = coordinates(5, 7), 2400
    places: dict[tuple[int, int], int] = {}
    for _ in range(draws):
        view = random_view(pixels, chosen, rng)
        top, left = int(view[0, 0, 0]), int(view[0, 0, 1])
        np.testing.assert_array_equal(view, pixels[top : top + 3, left : left + 4])
        places[top, left] = places.get((top, left), 0) + 1
    assert set(places) == {(top, left) for top in range(3) for left in range(4)}
    expected = draws / 12
    # Five standard deviations of a binomial count.
    assert max(abs(count - expected) for count in places.values()) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("train_crop", VIEWS)
def test_half_of_the_views_are_mirrored(train_crop: str) -> None:
    rng = np.random.default_rng(1)
    pixels = coordinates(40, 50)
    chosen = parse(resize=40, crop=(30, 30), train_crop=train_crop)
    mirrored = sum(
        int(view[15, 0, 1]) > int(view[15, -1, 1])
        for view in (random_view(pixels, chosen, rng) for _ in range(400))
    )
    assert abs(mirrored - 200) < 5 * 10
    never = chosen.replace(flip=False)
    for _ in range(50):
        view = random_view(pixels, never, rng)
        assert view[15, 0, 1] < view[15, -1, 1]


def test_mirroring_keeps_rows_and_turns_columns() -> None:
    pixels = coordinates(3, 5)
    mirrored = flip(pixels)
    assert mirrored.flags.c_contiguous
    assert mirrored[0, :, 1].tolist() == [4, 3, 2, 1, 0]
    assert mirrored[:, 0, 0].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(flip(mirrored), pixels)


def test_padding_repeats_the_edge_and_then_crops_at_random() -> None:
    pad, height, width = 6, 20, 10
    chosen = parse(resize=(height, width), crop=(height, width), train_crop="pad", pad=pad, flip=False)
    pixels, rng, tops = coordinates(height, width), np.random.default_rng(2), set()
    for _ in range(300):
        view = random_view(pixels, chosen, rng)
        found = [
            (top, left)
            for top in range(-pad, pad + 1)
            for left in range(-pad, pad + 1)
            if (view[:, 0, 0] == np.clip(np.arange(top, top + height), 0, height - 1)).all()
            and (view[0, :, 1] == np.clip(np.arange(left, left + width), 0, width - 1)).all()
        ]
        assert len(found) == 1
        assert (view[..., 0] == view[:, :1, 0]).all()
        tops.add(found[0][0])
    assert tops == set(range(-pad, pad + 1))


@pytest.mark.parametrize("shares", [(0.8, 1.0), (0.4, 0.6)])
@pytest.mark.parametrize(("height", "width"), [(200, 200), (180, 240), (240, 180), (120, 250), (250, 40)])
def test_scaled_crops_have_the_area_and_the_released_codes_aspect(
    height: int, width: int, shares: tuple[float, float]
) -> None:
    chosen = parse(resize=40, crop=(40, 40), train_crop="scaled", train_area=shares, flip=False)
    assert parse().train_area == (0.8, 1.0)
    rng, areas = np.random.default_rng(3), []
    for _ in range(200):
        view = random_view(coordinates(height, width), chosen, rng).astype(float)
        # Forty samples of a ramp: their slope is the size of the cut part over forty.
        rows = np.polyfit(np.arange(2, 38), view[2:38, 20, 0], 1)[0] * 40
        columns = np.polyfit(np.arange(2, 38), view[20, 2:38, 1], 1)[0] * 40
        area, aspect = rows * columns / (height * width), columns / rows
        areas.append(area)
        assert shares[0] - 0.01 <= area <= shares[1] + 0.01
        if not 0.74 <= aspect <= 1.35:
            # Beyond the range, the nearest that this area allows: the whole of the shorter side.
            assert (columns / width if width < height else rows / height) == pytest.approx(1, abs=0.02)
    assert max(areas) - min(areas) > 0.15


@pytest.mark.parametrize("train_crop", VIEWS)
def test_the_stream_of_random_numbers_does_not_depend_on_the_picture(train_crop: str) -> None:
    chosen = parse(resize=40, crop=(30, 30), train_crop=train_crop)
    states = []
    for shape in ((40, 40), (40, 90), (200, 40)):
        rng = np.random.default_rng(4)
        random_view(coordinates(*shape), chosen, rng)
        states.append(rng.bit_generator.state)
    assert states[0] == states[1] == states[2]


def test_a_picture_smaller_than_the_crop_is_refused() -> None:
    with pytest.raises(DataError, match=r"at least 224×224 pixels was expected, got 224×223"):
        centre_crop(coordinates(224, 223), ImageSettings())
    with pytest.raises(DataError, match="at least 224×224"):
        random_view(coordinates(100, 250), ImageSettings(), np.random.default_rng(0))


@given(
    scale=st.floats(0.25, 4.0), height=st.integers(1, 12), width=st.integers(1, 12), level=st.integers(0, 255)
)
@settings(deadline=None)
def test_scaled_views_have_the_rounded_sides_and_keep_a_plain_colour(
    scale: float, height: int, width: int, level: int
) -> None:
    found = scaled_views(np.full((2, height, width, 3), level, np.uint8), scale)
    assert found.shape == (2, max(1, round(height * scale)), max(1, round(width * scale)), 3)
    assert (found == level).all()


def test_scaled_views_of_scale_one_are_the_crops_themselves() -> None:
    crops = np.stack([coordinates(20, 30)])
    assert scaled_views(crops, 1.0) is crops


@pytest.mark.parametrize("shares", [(0.9, 0.5), (0.0, 1.0), (0.5, 1.1), (0.5,)])
def test_train_area_is_checked(shares: tuple[float, ...]) -> None:
    with pytest.raises(SettingsError, match="train_area"):
        parse(train_area=shares)


@pytest.mark.parametrize("scales", [(), (0.0,), (1.0, 5.0), ("large",)])
def test_test_scales_are_checked(scales: tuple[Any, ...]) -> None:
    with pytest.raises(SettingsError, match="test_scales"):
        parse(test_scales=scales)


def test_identity_names_test_scales_only_where_they_differ() -> None:
    """Stores and runs that were made before the setting existed keep their fingerprint."""
    assert ImageSettings().identity() == [256, (224, 224), True]
    assert ImageSettings(test_scales=(1.0, 1.25)).identity() == [256, (224, 224), True, (1.0, 1.25)]

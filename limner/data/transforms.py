"""The paper's crops and flips: decoded picture → resized picture → view of fixed size.

Dual-path TOMM 2020, section 6.2: the shorter side becomes 256, training takes a random 224×224 crop and
flips it half of the time, testing takes the centre crop, plain and flipped. The released code crops
differently; person re-identification pads first. All three are choices of `train_crop`.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image
from pydantic import Field, model_validator

from limner.data.images import PictureBytes, open_rgb
from limner.errors import DataError
from limner.settings import Settings
from limner.types import ImageSource, Pixels

LONGEST = 16
"""Highest ratio of the sides that a resized picture keeps; of a longer one, the middle is used. Without it a
strip of 1×5000 pixels would become 256×1,280,000, a gigabyte. Panoramas stay below 10."""

View = UInt8[np.ndarray, "crop_height crop_width 3"]
"""A crop of an image, as the network sees it."""

Crop = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of the upright image's width and height."""

WHOLE: Crop = (0.0, 0.0, 1.0, 1.0)

# 4,096 squared is 50 MB of RGB for a single view.
Pixel = Annotated[int, Field(ge=1, le=4096)]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

# Beyond these a network sees nothing of what it was trained on, and four times the side is 16 times the work.
Scale = Annotated[float, Field(ge=0.25, le=4.0)]

# A share of a picture's area.
Share = Annotated[float, Field(gt=0, le=1)]

# The released code's range.
_ASPECT = (3 / 4, 4 / 3)


class ImageSettings(Settings):
    """How a picture becomes what the image encoder reads."""

    resize: Pixel | tuple[Pixel, Pixel] = 256
    """Pixels of the shorter side, the ratio kept; or exact (height, width) in pixels, the ratio given up."""

    crop: tuple[Pixel, Pixel] = (224, 224)
    """(height, width) of the network's input in pixels."""

    train_crop: Literal["random", "scaled", "pad"] = "random"
    """Training crop: "random" place; "scaled", `train_area` of the picture at aspect 3/4–4/3; "pad" then "random"."""

    # The released code's; torchvision's `RandomResizedCrop` would go down to 8% of the area.
    train_area: tuple[Share, Share] = (0.8, 1.0)
    """Smallest and largest share of a picture that a "scaled" training crop shows."""

    pad: Annotated[int, Field(ge=0, le=512)] = 10
    """Pixels added to each side with the edge's colours where train_crop is "pad"."""

    flip: bool = True
    """Mirror half of the training views, average plain and mirrored at test; off where left and right are described."""

    test_scales: Annotated[tuple[Scale, ...], Field(min_length=1)] = (1.0,)
    """Sizes of the crop that testing averages, as multiples of its sides; each costs its square. What training encodes
    itself, and validation from cached features, have the crop as it is."""

    interpolation: Literal["bilinear", "bicubic", "lanczos", "nearest"] = "bilinear"
    """Filter of the resizing; all but "nearest" widen when they shrink a picture (antialiasing)."""

    long_side: Literal["rounded", "cut"] = "rounded"
    """Pixels of the longer side where the ratio is kept: rounded, or with the fraction cut off (transformers)."""

    scaled_decoding: bool = True
    """JPEG files may be decoded at 1/2, 1/4 or 1/8 before they are resized: faster; of photographs of 2016×1344, pixels
    were other by 0.4/255 on average and up to 8/255, and embeddings had a cosine of 0.997 or more."""

    @model_validator(mode="after")
    def _area_is_a_range(self) -> "ImageSettings":
        if self.train_area[0] > self.train_area[1]:
            raise ValueError(f"train_area={list(self.train_area)}: the smallest share comes first")
        return self

    @model_validator(mode="after")
    def _crop_fits(self) -> "ImageSettings":
        # Refused when the settings are made, not when the first picture is loaded.
        height, width = (self.resize, self.resize) if isinstance(self.resize, int) else self.resize
        if self.crop[0] > height or self.crop[1] > width:
            raise ValueError(
                f"crop {self.crop[0]}×{self.crop[1]} does not fit in a picture resized to {height}×{width}; "
                "raise resize or lower crop"
            )
        return self

    @property
    def test_views(self) -> int:
        """Views of a picture that testing averages: the centre crop and, with `flip`, its mirror image."""
        return 2 if self.flip else 1

    def identity(self) -> list[Any]:
        """The values that change an embedding; training's crops do not."""
        # the last three only where they differ, so that stores made before they existed keep their fingerprint
        later = [self.interpolation, self.long_side, self.scaled_decoding]
        scales = [self.test_scales] if self.test_scales != (1.0,) else []
        return [
            *(self.resize, self.crop, self.flip),
            *(later if later != ["bilinear", "rounded", True] else []),
            *scales,
        ]

    def resized(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The middle part of a picture that is used, and what it is resized to, each (width, height) in pixels.

        >>> ImageSettings(resize=100, crop=(100, 100)).resized(400, 200)
        ((400, 200), (200, 100))
        """
        if not isinstance(self.resize, int):
            return (width, height), (self.resize[1], self.resize[0])
        short = min(width, height)
        kept = (min(width, LONGEST * short), min(height, LONGEST * short))
        to_pixels = round if self.long_side == "rounded" else int
        return kept, (to_pixels(kept[0] * self.resize / short), to_pixels(kept[1] * self.resize / short))


def load(source: ImageSource, settings: ImageSettings, *, name: str | None = None) -> Pixels:
    """Decode and resize a picture; no crop yet, so that one load serves many views.

    Both sides are at least as long as the crop's: the shorter one is exactly `resize`, the longer one at most
    `LONGEST` times that. With antialiasing. Raises `ImageError` as `limner.data.images.decode`.
    """
    wanted = settings.resize
    # For an exact size either side may be the shorter one: the longer wish keeps decoding above both.
    short_side = wanted if isinstance(wanted, int) else max(wanted)
    image = open_rgb(source, short_side=short_side if settings.scaled_decoding else None, name=name)
    if isinstance(source, PictureBytes):
        source.decoded = image
    width, height = image.size
    (kept_width, kept_height), size = settings.resized(width, height)
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    # The middle is cut while resizing: no copy of a picture of up to 2^27 pixels.
    box = (float(left), float(top), float(left + kept_width), float(top + kept_height))
    # Pillow's filter widens when it shrinks (antialiasing); torch's skips pixels unless it is told to, and then is
    # 1/255 off in up to 3 % of the values: three times as fast, and embeddings at a cosine of 0.9996 to these.
    # `np.array`, since the memory of `np.asarray` is Pillow's and read-only.
    return np.array(image.resize(size, _FILTERS[settings.interpolation], box=box), dtype=np.uint8)


def centre_crop(pixels: Pixels, settings: ImageSettings) -> View:
    """The test view: the middle `crop` of a loaded picture. Raises `DataError` when it is smaller."""
    spare_rows, spare_columns = _spare(pixels, settings.crop)
    return _cut(pixels, spare_rows // 2, spare_columns // 2, settings.crop)


def scaled_views(
    crops: UInt8[np.ndarray, "images height width 3"], scale: float
) -> UInt8[np.ndarray, "images _height _width 3"]:
    """Crops at another size: bilinear with antialiasing, sides rounded to whole pixels, at least one."""
    height, width = (max(1, round(side * scale)) for side in crops.shape[1:3])
    if (height, width) == crops.shape[1:3]:
        return crops
    size = (width, height)
    return np.stack([np.asarray(Image.fromarray(crop).resize(size, _FILTERS["bilinear"])) for crop in crops])


def random_view(pixels: Pixels, settings: ImageSettings, rng: np.random.Generator) -> View:
    """A training view of a loaded picture: crop as `train_crop` says, then mirrored with probability 1/2.

    All randomness comes from `rng`, by the same number of draws whatever the picture.
    Raises `DataError` when the picture is smaller than the crop.
    """
    # Not `rng.integers`, which draws again after a rejection: the picture's size would move the stream.
    first, second, side = rng.random(3)
    if settings.train_crop == "scaled":
        area = rng.uniform(*settings.train_area)
        view = _scaled(pixels, settings.crop, (float(first), float(second)), area, float(rng.random()))
    else:
        padded = _padded(pixels, settings.pad) if settings.train_crop == "pad" else pixels
        spare_rows, spare_columns = _spare(padded, settings.crop)
        # `first` is below 1: every place is as likely as any other, and none lies outside.
        top, left = int(first * (spare_rows + 1)), int(second * (spare_columns + 1))
        view = _cut(padded, top, left, settings.crop)
    return flip(view) if settings.flip and side < 0.5 else view


def crop_of(width: int, height: int, settings: ImageSettings) -> Crop:
    """Compute the part of an upright image that `centre_crop(load(…))` keeps.

    >>> crop_of(400, 200, ImageSettings(resize=100, crop=(100, 100)))
    (0.25, 0.0, 0.75, 1.0)
    """
    kept, sizes = settings.resized(width, height)
    left, right = _along(width, kept[0], sizes[0], settings.crop[1])
    top, bottom = _along(height, kept[1], sizes[1], settings.crop[0])
    return left, top, right, bottom


def flip(pixels: Pixels) -> Pixels:
    """The picture mirrored left to right."""
    # torch takes no array with a negative stride.
    return np.ascontiguousarray(pixels[:, ::-1])


def _scaled(
    pixels: Pixels, crop: tuple[int, int], place: tuple[float, float], area: float, stretch: float
) -> View:
    """The released code's crop: `area` of the picture at an aspect (width / height) of 3/4 … 4/3, resized.

    The area comes first: where the picture is so long that no such rectangle fits (16:9 is), the one that
    fits with the aspect nearest to the range is taken. `stretch` in [0, 1) chooses the aspect, evenly in its
    logarithm.
    """
    height, width = pixels.shape[:2]
    ratio = width / height
    # A rectangle of `area` fits for aspects from area · ratio to ratio / area only.
    low, high = max(_ASPECT[0], area * ratio), min(_ASPECT[1], ratio / area)
    if low > high:
        low = high = area * ratio if ratio > 1 else ratio / area
    aspect = math.exp(math.log(low) + stretch * (math.log(high) - math.log(low)))
    # `min`, because the root may round to a hair more than the picture has.
    cut_width = min(width, math.sqrt(area * width * height * aspect))
    cut_height = min(height, math.sqrt(area * width * height / aspect))
    top, left = place[0] * (height - cut_height), place[1] * (width - cut_width)
    # Rounding may put the far edge a hair outside, which Pillow refuses.
    box = (left, top, min(float(width), left + cut_width), min(float(height), top + cut_height))
    image = Image.fromarray(pixels).resize((crop[1], crop[0]), Image.Resampling.BILINEAR, box=box)
    return np.array(image, dtype=np.uint8)


def _padded(pixels: Pixels, pad: int) -> UInt8[np.ndarray, "padded_height padded_width 3"]:
    return np.pad(pixels, ((pad, pad), (pad, pad), (0, 0)), mode="edge")


def _spare(pixels: Pixels, crop: tuple[int, int]) -> tuple[int, int]:
    rows, columns = pixels.shape[0] - crop[0], pixels.shape[1] - crop[1]
    if rows < 0 or columns < 0:
        raise DataError(
            f"a picture of at least {crop[0]}×{crop[1]} pixels was expected, got {pixels.shape[0]}×"
            f"{pixels.shape[1]}; load it with the same settings"
        )
    return rows, columns


def _cut(pixels: Pixels, top: int, left: int, crop: tuple[int, int]) -> View:
    # A copy, so that the view does not keep the whole picture in memory.
    return pixels[top : top + crop[0], left : left + crop[1]].copy()


def _along(length: int, kept: int, resized: int, crop: int) -> tuple[float, float]:
    """Compute the first and last share of one side: `kept` of its `length` pixels in the middle become `resized`."""
    # rounded down, as the crop itself is: the attention would lie a pixel aside
    first = (length - kept) // 2
    start = (resized - crop) // 2
    return (first + start * kept / resized) / length, (first + (start + crop) * kept / resized) / length

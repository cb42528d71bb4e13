"""How a pretrained model's pictures are prepared, by its own files, as transformers reads them."""

import math
from typing import Any

from limner.errors import CheckpointError
from limner.models import open_clip
from limner.models.image.encoder import IMAGENET, Normalisation
from limner.models.pretrained_source import find_file, quiet, read_json, transformers_library, unusable

FILE = "preprocessor_config.json"

_OF_A_RUN = {"do_rescale", "do_normalize", "image_mean", "image_std"}
"""All names of a run's own file: nothing is left to the defaults of a class (`ImageEncoder.files`)."""

_STEPS = {"preprocess", "_preprocess", "process_image", "convert_to_rgb"} | {
    *("resize", "center_crop", "pad", "rescale", "normalize", "rescale_and_normalize")
}
"""Methods that make pixels of a picture. A class with one of its own does something that limner does not."""


def read_preprocessing(model: str) -> dict[str, Any] | None:
    """How a model's images are prepared, with the defaults of its class; None where no file says anything.

    It is read from preprocessor_config.json or processor_config.json, of which transformers chooses, or made of
    open_clip's file. Raises `CheckpointError`.
    """
    described = open_clip.read_description(find_file(model, open_clip.CONFIG_FILE), model)
    if described is not None:
        return open_clip.to_preprocessing(described, model)
    found = read_json(model, FILE)
    if found is None:
        # transformers 5 writes all parts of a processor into one file
        found = (read_json(model, "processor_config.json") or {}).get("image_processor")
    if found is None or set(found) == _OF_A_RUN:
        return found
    transformers = transformers_library()
    try:
        # it says which of its two ways to read pictures is installed
        with quiet(transformers):
            processor: Any = transformers.AutoImageProcessor.from_pretrained(model, trust_remote_code=False)
    except Exception as error:
        raise unusable(model, f"its {FILE} cannot be used", error) from None
    values: dict[str, Any] = processor.to_dict()
    classes = type(processor).__mro__
    # of transformers' two bases for processors: all that comes before is the class's own
    own = next((place for place, one in enumerate(classes) if one.__name__.endswith("Backend")), 1)
    values["own_steps"] = sorted(_STEPS & {name for one in classes[:own] for name in vars(one)})
    return values


def read_normalisation(model: str) -> Normalisation:
    """`(x · rescale_factor - image_mean) / image_std`, said in pixels of 0..255; ImageNet's where nothing says so."""
    values = read_preprocessing(model)
    if values is None:
        return IMAGENET
    try:
        factor = float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 1.0
        standardised = values.get("do_normalize", True) and "image_mean" in values
        mean = _colours(values["image_mean"]) if standardised else [0.0] * 3
        std = _colours(values["image_std"]) if standardised else [1.0] * 3
        # (f·x − m) / s = (x − m/f) / (s/f)
        red, green, blue = (value / factor for value in mean)
        red_std, green_std, blue_std = (value / factor for value in std)
        found = (red, green, blue), (red_std, green_std, blue_std)
        # the inverse: of a deviation of 0 pixels would be infinite
        usable = all(math.isfinite(one) for part in found for one in part) and all(
            1 / one for one in found[1]
        )
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError):
        usable = False
    if not usable:
        raise CheckpointError(
            f"model '{model}': rescale_factor, image_mean and image_std of its {FILE} cannot be used; expected finite "
            "numbers, a deviation and a factor other than 0; fetch the model again"
        )
    return Normalisation(*found)


def _colours(value: Any) -> list[float]:
    """Three numbers; one stands for all."""
    numbers = [float(one) for one in (value if isinstance(value, list | tuple) else [value] * 3)]
    if len(numbers) != 3:
        raise ValueError("not three colours")
    return numbers

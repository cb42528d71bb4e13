"""Import a pretrained pair of towers as a run: weights, tokenizer and preprocessing in limner's own checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from limner.data.tokenizers import PretrainedTokenizer, load_fast
from limner.data.transforms import ImageSettings
from limner.durable import sealed, write_text
from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import discard_part, read_digest, tokenizer_tensors, write_checkpoint
from limner.inference.load import load_model
from limner.inference.provenance import versions
from limner.inference.source import HUB, RUN_FILE, SENTENCE_TRANSFORMER
from limner.inference.trained import TrainedModel
from limner.models.image import BackboneSettings
from limner.models.image.preprocessing import read_preprocessing
from limner.models.image.tower import square_side
from limner.models.known import weight_terms
from limner.models.pretrained import PretrainedSettings
from limner.models.pretrained_source import is_pair, read_config, read_json
from limner.models.registry import build_network
from limner.models.text_tower import TextTowerSettings

FILE = "imported.safetensors"
"""The checkpoint of an imported run."""

_INTERPOLATION = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of its filters, as preprocessor_config.json has them."""

_SIGLIP = ("siglip", "siglip2")
"""Pairs whose text is lower-cased and filled to its full length: without either they lose most of what they know."""


def import_pair(
    name: str,
    folder: Path,
    *,
    described: str,
    size: tuple[int, int] | None = None,
    words: int | None = None,
) -> TrainedModel:
    """Make a run of the pair in a folder, or of a name on the hub; `described` is what the run calls it."""
    config = _config(described, name)
    if not is_pair(config):
        raise CheckpointError(
            f"model '{name}': a '{config.model_type}' is no pair of an image and a text encoder; import one such as "
            "clip, siglip, siglip2, altclip or chinese_clip, or train with it as one tower (docs/models.md)"
        )
    tokenizer, text = _text(name, config, words)
    images = _images(name, config, size)
    settings = PretrainedSettings(
        backbone=BackboneSettings(name="auto", auto_model=name), text=text, dim=_width(config)
    )
    network = build_network(settings, tokenizer.size)
    # opening the run replaces both by what it carries; a folder's path would tell of a machine
    model = settings.model_dump(mode="json")
    model["backbone"]["auto_model"] = model["text"]["model"] = described.removeprefix(HUB).removeprefix(
        SENTENCE_TRANSFORMER
    )
    description = {
        "system": settings.system,
        "model": model,
        "images": images.model_dump(mode="json"),
        "cross_encoder": None,
        "files": network.files(),
        "tokenizer": tokenizer.to_description(),
        # its patches show where a word points, they order nothing unless asked to
        "recipe": {"name": f"import of {described}", "rerank": 0},
        # nothing was chosen: the weights are as they were published
        "selected": None,
        "data": {"source": described, "train": None, "val": None},
        "terms": [weight_terms(described.removeprefix(SENTENCE_TRANSFORMER)).model_dump(mode="json")],
        "seed": None,
        "versions": versions(),
    }
    with nothing_left(folder):
        write_checkpoint(folder / FILE, {**network.state_dict(), **tokenizer_tensors(tokenizer)}, description)
        # before the run is opened, which holds all weights once more
        del network, tokenizer
        return opened(folder, description)


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """Make a folder, and leave nothing of a run in it if what is done within fails or is interrupted."""
    there = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        discard_part(folder / FILE)
        for file in (FILE, RUN_FILE):
            (folder / file).unlink(missing_ok=True)
        # an empty folder of the caller's own stays
        if not there and folder.is_dir():
            folder.rmdir()
        raise


def opened(folder: Path, description: Mapping[str, Any]) -> TrainedModel:
    """Open the checkpoint of an imported run, try it, and write the file that names it.

    Raises `CheckpointError` for embeddings that are not finite.
    """
    model = load_model(folder / FILE)
    picture = Image.linear_gradient("L").convert("RGB")
    tried = {"picture": model.encode_images([picture]), "sentence": model.encode_texts("a dog", check=False)}
    for what, row in tried.items():
        if not np.isfinite(row).all():
            raise CheckpointError(
                f"model '{description['data']['source']}': its embedding of a {what} is not finite, though its weights "
                "are; its files do not say what it was trained with; fetch the model again"
            )
    listing = {
        "recipe": description["recipe"]["name"],
        "best": FILE,
        "selected_on": None,
        "stages": [{"name": "imported", "file": FILE}],
        "digests": {FILE: read_digest(folder / FILE)},
        "data": description["data"],
        "terms": description["terms"],
        "versions": description["versions"],
    }
    # last: a run is there when its file is
    write_text(folder / RUN_FILE, sealed(listing))
    return model


def _config(source: str, name: str) -> Any:
    try:
        return read_config(name)
    except CheckpointError:
        # as `limner push` writes it; a folder would have run.json and be a run
        if source.startswith(HUB) and (read_json(name, "config.json") or {}).get("model_type") == "limner":
            raise CheckpointError(
                f"{source}: a run of limner, which needs no import; give it in the place of RUN"
            ) from None
        raise


def source_name(source: str) -> str:
    """How a run names the source it was imported from: a folder by its name alone, since paths tell of a machine."""
    return source if source.startswith(HUB) or not Path(source).exists() else Path(source).resolve().name


def _text(name: str, config: Any, words: int | None) -> tuple[PretrainedTokenizer, TextTowerSettings]:
    """The tokenizer, and how sentences are laid out for the tower."""
    fast = load_fast(name)
    siglip = config.model_type in _SIGLIP
    masked = "attention_mask" in fast.model_input_names
    longest = _longest(config.text_config, fast)
    if words is not None and not 2 <= words <= longest:
        raise SettingsError(f"words={words}: the text tower of '{name}' reads 2 to {longest} tokens")
    if siglip and words is not None:
        raise SettingsError(
            f"words={words}: '{name}' was trained with sentences filled to {longest} tokens; leave words out"
        )
    tokenizer = PretrainedTokenizer.of(fast, name, special_tokens=True, lower_case=siglip)
    padding = fast.pad_token_id
    settings = TextTowerSettings(
        model=name,
        words=words or longest,
        # SigLIP takes the state of the last position, whatever stands there, so padding is part of the model
        filled=fast.padding_side if siglip or not masked else "no",
        masked=masked,
        padding_id=0 if padding is None else padding,
    )
    return tokenizer, settings


def _longest(text: Any, fast: Any) -> int:
    """Tokens that the text tower reads at once."""
    positions = int(getattr(text, "max_position_embeddings", 512))
    # RoBERTa's positions begin behind the number of its padding token
    if getattr(text, "model_type", "") in ("altclip_text_model", "xlm-roberta", "roberta"):
        positions -= int(text.pad_token_id) + 1
    # without a limit transformers has an astronomic number
    return max(2, min(positions, int(min(fast.model_max_length, 2048))))


def _width(config: Any) -> int:
    """Width of the embedding."""
    if (found := getattr(config, "projection_dim", None)) is not None:
        return int(found)
    # SigLIP has no projection of images; that of sentences lies within the tower
    return int(config.vision_config.hidden_size)


def _images(name: str, config: Any, size: tuple[int, int] | None) -> ImageSettings:
    """The preprocessing of images, as the pair's own processor does it."""
    values = read_preprocessing(name)
    if values is None:
        raise CheckpointError(
            f"model '{name}': preprocessor_config.json is missing, and with other preprocessing its embeddings would "
            "be wrong; fetch the whole model again"
        )
    try:
        found = _transform(values, config)
    except _UnreadError as error:
        raise CheckpointError(
            f"model '{name}': its pictures are prepared with {error}, which limner does not read; take another model, "
            "or a copy of it for sentence-transformers (limner import st:FOLDER)"
        ) from None
    # pixels, crops and sizes that are none
    except (KeyError, TypeError, ValueError, OverflowError, SettingsError):
        said = {key: values.get(key) for key in ("size", "crop_size", "do_center_crop")}
        raise CheckpointError(
            f"model '{name}': its preprocessor_config.json says {said!s:.160}; a picture is resized to 1 to "
            "4,096 pixels a side, and cropped to no more than that; fetch the model again, or take another"
        ) from None
    # a size of one's own is tried like the file's
    return found if size is None else found.replace(resize=size, crop=size)


class _UnreadError(Exception):
    """A way to prepare pictures that `ImageSettings` has not."""


def _transform(values: Mapping[str, Any], config: Any) -> ImageSettings:
    """The steps of transformers' `_preprocess`: resize, crop, pad; to rescale and normalise is the network's part."""
    naflex = str(values.get("image_processor_type", "")).startswith("Siglip2")
    if (own := values.get("own_steps")) and not naflex:
        raise _UnreadError(f"steps of {values['image_processor_type']} alone ({', '.join(own)})")
    if not values.get("do_resize", True):
        raise _UnreadError("do_resize false: pictures of any size")
    if values.get("do_pad") and values.get("pad_size"):
        raise _UnreadError(f"padding to pad_size {values['pad_size']}")
    filter_number = values.get("resample", 3)
    if not isinstance(filter_number, int) or int(filter_number) not in _INTERPOLATION:
        raise _UnreadError(f"the filter resample {filter_number!r:.40}")
    interpolation = _INTERPOLATION[int(filter_number)]
    # mirrored views are training's, and an average over them is not what the pair's own library gives
    common: dict[str, Any] = {"interpolation": interpolation, "flip": False, "scaled_decoding": False}
    if naflex:  # it says how many patches
        side = square_side(config)
        return ImageSettings(**common, resize=(side, side), crop=(side, side))
    crops, wanted = bool(values.get("do_center_crop", False)), dict(values["size"])
    if {key for key, value in wanted.items() if value} == {"shortest_edge"}:
        if not crops:
            raise _UnreadError("a shortest_edge and no crop: pictures of different sizes")
        # transformers cuts the fraction of the longer side off
        common |= {"resize": wanted["shortest_edge"], "long_side": "cut"}
    elif wanted.get("height") and wanted.get("width"):
        common |= {"resize": (wanted["height"], wanted["width"])}
    else:
        raise _UnreadError(f"the size {wanted}")
    if not crops:
        return ImageSettings.parse({**common, "crop": common["resize"]})
    crop = dict(values["crop_size"])
    smallest = common["resize"] if isinstance(common["resize"], tuple) else (common["resize"],) * 2
    if crop["height"] > smallest[0] or crop["width"] > smallest[1]:
        raise _UnreadError(
            f"a crop {crop['height']}×{crop['width']} of a picture resized to {common['resize']}, so a black frame"
        )
    return ImageSettings.parse({**common, "crop": (crop["height"], crop["width"])})

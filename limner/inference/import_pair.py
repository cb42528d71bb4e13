"""Import a pretrained pair of towers as a run: weights, tokenizer and preprocessing in limner's own checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from limner.data.tokenizers import PretrainedTokenizer, load_fast
from limner.data.transforms import ImageSettings
from limner.durable import sealed, write_text
from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import read_digest, tokenizer_tensors, write_checkpoint
from limner.inference.load import load_model
from limner.inference.provenance import versions
from limner.inference.source import HUB, RUN_FILE, SENTENCE_TRANSFORMER
from limner.inference.trained import TrainedModel
from limner.models.image import BackboneSettings
from limner.models.image.auto import read_preprocessing
from limner.models.image.tower import square_side
from limner.models.known import weight_terms
from limner.models.pretrained import PretrainedSettings
from limner.models.pretrained_source import is_pair, read_config, read_json, unusable
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
    write_imported(folder, {**network.state_dict(), **tokenizer_tensors(tokenizer)}, description)
    # before the run is opened, which holds all weights once more
    del network, tokenizer
    return load_model(folder)


def write_imported(folder: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write the checkpoint of an imported run and the file that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / FILE, tensors, description)
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
    except (KeyError, TypeError, ValueError) as error:
        raise unusable(name, "its preprocessor_config.json cannot be used", error) from None
    return found if size is None else found.replace(resize=size, crop=size)


def _transform(values: Mapping[str, Any], config: Any) -> ImageSettings:
    if not values.get("do_resize", True):
        raise ValueError("images of any size, which limner has no batches of")
    interpolation = _INTERPOLATION[int(values.get("resample", 3))]
    # mirrored views are training's, and an average over them is not what the pair's own library gives
    common: dict[str, Any] = {"interpolation": interpolation, "flip": False, "scaled_decoding": False}
    crops = bool(values.get("do_center_crop", False))
    wanted = values.get("size")
    if wanted is None:  # naflex says how many patches
        wanted = square_side(config)
    # older files have one number: the shorter side where a crop follows, a square otherwise
    if isinstance(wanted, int):
        wanted = {"shortest_edge": wanted} if crops else {"height": wanted, "width": wanted}
    if "shortest_edge" in wanted:
        if not crops:
            raise ValueError("images of different sizes, which limner has no batches of")
        # transformers cuts the fraction of the longer side off
        common |= {"resize": int(wanted["shortest_edge"]), "long_side": "cut"}
    else:
        common |= {"resize": (int(wanted["height"]), int(wanted["width"]))}
    if crops:
        crop: Any = values.get("crop_size") or wanted["shortest_edge"]
        sides = (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
        return ImageSettings(**common, crop=(int(sides[0]), int(sides[1])))
    return ImageSettings(**common, crop=common["resize"])

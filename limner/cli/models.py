"""`limner models` and `limner import`: pretrained pairs to choose from, and one of them as a run."""

from pathlib import Path
from typing import Annotated

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.documented import Result
from limner.errors import SettingsError
from limner.models.known import KNOWN, KnownModel

app = group("Models.")


class ModelListed(KnownModel):
    """A pretrained model as `limner models` has it."""

    name: str
    """The name that `limner import` and `limner index` take."""
    here: bool
    """True if it is in the local cache."""


class Imported(Result):
    """The result of `limner import`."""

    run: str
    """The run folder."""
    source: str
    """The source that it was made from."""
    dim: int
    """Width of the embedding."""
    height: int | None = None
    """Pixels of an image as the model reads it; None where sentence-transformers prepares it, as for the next four."""
    width: int | None = None
    """Pixels of an image as the model reads it."""
    words: int | None = None
    """Tokens of a sentence that are read."""
    tokens: int | None = None
    """Size of the tokenizer."""
    parameters: int | None = None
    """Weights of both towers."""
    fingerprint: str
    """Digest of the model."""


@command(app, "models")
def models_command() -> list[ModelListed]:
    """List pretrained models that `limner import` and `limner index` take.

    "here" says whether a model is in the local cache and can be used offline.
    """
    found = [
        ModelListed(**{**dict(model), "name": f"hf:{model.name}", "here": _is_here(model.name)})
        for model in KNOWN
    ]
    for model in found:
        reached = (
            "" if model.flickr30k is None else f", Flickr30k {model.flickr30k[0]} | {model.flickr30k[1]}"
        )
        out.print(model.name)
        out.print(
            f"    {model.parameters} million weights, {model.side}×{model.side} pixels, {model.languages}, "
            f"{model.licence}{reached}; {'here' if model.here else 'not in the local cache'}"
        )
    out.print()
    out.print(
        "Any other pair of the same kinds works too, by hf:ORG/NAME or as a folder. The figures are published "
        "zero-shot R@1, image→text | text→image (docs/models.md)."
    )
    return found


def _is_here(name: str) -> bool:
    from limner.inference.hub_runs import is_in_cache

    return is_in_cache(name, "config.json")


@command(app, "import")
def import_command(
    source: Annotated[
        str,
        "hf:ORG/NAME of the Hugging Face hub, a folder with the model's files, or st:ORG/NAME or st:FOLDER of "
        "sentence-transformers.",
    ],
    run: Annotated[Path, "New run folder."],
    size: Annotated[
        str | None, "Another size of images in pixels; positions are interpolated.", "HEIGHTxWIDTH"
    ] = None,
    words: Annotated[int | None, "A shorter length of sentences in tokens."] = None,
) -> Imported:
    """Make a run of a pretrained pair of encoders, such as CLIP or SigLIP 2.

    The run is used like a trained one, and needs the source no more.
    """
    from limner.inference.checkpoint import CALLED
    from limner.inference.import_model import import_model
    from limner.inference.source import kind_of

    if kind_of(source) is None and not Path(source).is_dir():
        raise SettingsError(f"{source}: no such folder; a model of the hub is written hf:ORG/NAME")
    sides = None if size is None else _sides(size)
    err.print(f"reading {source}")
    model = import_model(source, run, size=sides, words=words)
    described = model.description["data"]["source"]
    how, facts = ", computed by sentence-transformers", {}
    if model.description["system"] != CALLED:
        (height, width), read = model.images.crop, model.model.settings.text.words
        how = f", images of {height}×{width} pixels, sentences of {read} tokens"
        facts = {
            "height": height,
            "width": width,
            "words": read,
            "tokens": model.tokenizer.size,
            "parameters": sum(weight.numel() for weight in model.model.parameters()),
        }
    out.print(f"{run}: {described}, embeddings of {model.dim} numbers{how}")
    out.print(f"next: limner index {run} STORE PICTURES")
    return Imported(run=str(run), source=described, dim=model.dim, fingerprint=model.fingerprint, **facts)


def _sides(text: str) -> tuple[int, int]:
    height, cross, width = text.partition("x")
    if not cross or not height.isdecimal() or not width.isdecimal():
        raise SettingsError(f"--size: expected HEIGHTxWIDTH in pixels, such as 384x128, got {text!r}")
    return int(height), int(width)

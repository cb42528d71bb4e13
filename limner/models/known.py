"""Pretrained pairs to choose from: what each is, and what it is expected to reach.

Figures are zero-shot R@1 in per cent, image→text / text→image, as the named source prints them. The list is for
choosing; `limner import` takes any pair of the kinds that transformers has.
"""

import hashlib
from pathlib import Path

from limner.data.terms import UNKNOWN, WEIGHTS, TermsOfUse
from limner.documented import Result


class KnownModel(Result):
    """A pretrained pair of the Hugging Face hub."""

    name: str
    """Its name there."""
    parameters: int
    """Millions, of both towers."""
    dim: int
    """Width of the embedding."""
    side: int
    """Pixels of the square that its image tower reads."""
    languages: str
    """As its authors state them."""
    licence: str
    """As its authors state it; read the model's own card before use."""
    flickr30k: tuple[float, float] | None
    """Zero-shot R@1 on Flickr30k's test set in per cent, image→text and text→image."""
    mscoco: tuple[float, float] | None
    """Zero-shot R@1 on MSCOCO's 5K test set in per cent, image→text and text→image."""
    source: str
    """Where the figures stand."""
    trained_on: str
    """Its training data, as its card names them. None of the cards says which pictures that are."""


_CLIP_DATA = "captions of pictures from a crawl of the web and from sets such as YFCC100M"
_OPEN_CLIP = "open_clip docs/openclip_retrieval_results.csv"

DEFAULT_MODEL = "google/siglip2-base-patch16-224"
"""The pair of settings and commands that name none."""

KNOWN = (
    KnownModel(
        name=DEFAULT_MODEL,
        parameters=375,
        dim=768,
        side=224,
        languages="109 languages",
        licence="Apache-2.0",
        flickr30k=(93.0, 80.7),
        mscoco=(68.9, 52.1),
        source="SigLIP 2 (arXiv 2502.14786); big_vision issue 166",
        trained_on="pairs of the web: WebLI",
    ),
    KnownModel(
        name="google/siglip2-so400m-patch14-384",
        parameters=1136,
        dim=1152,
        side=384,
        languages="109 languages",
        licence="Apache-2.0",
        flickr30k=None,
        mscoco=None,
        source="its model card",
        trained_on="pairs of the web: WebLI",
    ),
    KnownModel(
        name="google/siglip-base-patch16-224",
        parameters=203,
        dim=768,
        side=224,
        languages="English",
        licence="Apache-2.0",
        flickr30k=(89.1, 74.7),
        mscoco=(65.7, 47.8),
        source=_OPEN_CLIP,
        trained_on="English pairs of the web: WebLI",
    ),
    KnownModel(
        name="google/siglip-so400m-patch14-384",
        parameters=878,
        dim=1152,
        side=384,
        languages="English",
        licence="Apache-2.0",
        flickr30k=(94.3, 83.0),
        mscoco=(72.4, 54.2),
        source=_OPEN_CLIP,
        trained_on="English pairs of the web: WebLI",
    ),
    KnownModel(
        name="openai/clip-vit-base-patch32",
        parameters=151,
        dim=512,
        side=224,
        languages="English",
        licence="MIT",
        flickr30k=(78.9, 58.8),
        mscoco=(50.1, 30.4),
        source=_OPEN_CLIP,
        trained_on=_CLIP_DATA,
    ),
    KnownModel(
        name="openai/clip-vit-base-patch16",
        parameters=150,
        dim=512,
        side=224,
        languages="English",
        licence="MIT",
        flickr30k=(82.2, 62.2),
        mscoco=(52.4, 33.1),
        source=_OPEN_CLIP,
        trained_on=_CLIP_DATA,
    ),
    KnownModel(
        name="openai/clip-vit-large-patch14-336",
        parameters=428,
        dim=768,
        side=336,
        languages="English",
        licence="MIT",
        flickr30k=(87.7, 66.9),
        mscoco=(57.9, 37.1),
        source=_OPEN_CLIP,
        trained_on=_CLIP_DATA,
    ),
    KnownModel(
        name="BAAI/AltCLIP",
        parameters=864,
        dim=768,
        side=224,
        languages="English, Chinese",
        licence="see its card",
        flickr30k=None,
        mscoco=None,
        source="its model card",
        trained_on="WuDao and LAION",
    ),
    KnownModel(
        name="OFA-Sys/chinese-clip-vit-base-patch16",
        parameters=188,
        dim=512,
        side=224,
        languages="Chinese",
        licence="see its card",
        flickr30k=None,
        mscoco=None,
        source="its model card",
        trained_on="about 200 million Chinese pairs",
    ),
)
"""In the order in which one would try them."""


_FILES = {
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": (
        90_868_376,
        "sentence-transformers/all-MiniLM-L6-v2",
    )
}
"""Files of weights by their SHA-256: bytes, and the name in `WEIGHTS`. A folder may be called anything."""


FROM_FILE = "weights from "
"""Begins the name of weights that limner knows only by their file."""


def weight_terms(name: str) -> TermsOfUse:
    """The terms of weights by what a recipe or an import calls them: "imagenet", a name of the hub, a file or folder.

    A file, or model.safetensors in a folder, is known by its content; any other is "weights from NAME".

    >>> weight_terms("hf:openai/clip-vit-base-patch32").licence
    'MIT'
    >>> weight_terms("weights/mobilenet.safetensors").name
    'weights from mobilenet.safetensors'
    """
    name = name.removeprefix("hf:")
    name = _named_by_content(Path(name)) or name
    if name in WEIGHTS:
        return WEIGHTS[name]
    for model in KNOWN:
        if model.name == name:
            return TermsOfUse(
                name=name,
                source=f"huggingface.co/{name}",
                licence=UNKNOWN if model.licence == "see its card" else model.licence,
                trained_on=model.trained_on,
                checked="2026-11-24: as `limner models` lists it; its own card was not opened. 2026-11-28: its "
                "training data from copies of the card",
            )
    # the last part alone: a path tells of a machine
    return TermsOfUse(
        name=f"{FROM_FILE}{Path(name).name}", trained_on=UNKNOWN, checked="limner has no entry for them"
    )


def _named_by_content(path: Path) -> str | None:
    """The name in `WEIGHTS` of a file of weights, or of a folder with one; None for any other."""
    file = path / "model.safetensors" if path.is_dir() else path
    # by its size first: a file of gigabytes is not read to be told unknown
    if not file.is_file() or file.stat().st_size not in {size for size, _ in _FILES.values()}:
        return None
    with file.open("rb") as opened:
        found = _FILES.get(hashlib.file_digest(opened, "sha256").hexdigest())
    return None if found is None else found[1]

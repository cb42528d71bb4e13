"""Pretrained pairs to choose from: what each is, and what it is expected to reach.

Figures are zero-shot R@1 in per cent, image→text / text→image, as the named source prints them. The list is for
choosing; `limner import` takes any pair of the kinds that transformers has.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from limner.data.terms import UNKNOWN, WEIGHTS, TermsOfUse


@dataclass(frozen=True)
class KnownModel:
    """A pretrained pair of the Hugging Face hub.

    - `name`: its name there; `parameters`: millions, both towers; `dim`: width of the embedding.
    - `side`: pixels of the square that its image tower reads.
    - `languages`, `licence`: as its authors state them; a licence may change, so read the model's own card.
    - `flickr30k`, `mscoco`: R@1 on the 1K and 5K test sets; None where no source is at hand.
    - `source`: where the figures stand.
    - `trained_on`: its training data, as its card names them. None of the cards says which pictures that are.
    """

    name: str
    parameters: int
    dim: int
    side: int
    languages: str
    licence: str
    flickr30k: tuple[float, float] | None
    mscoco: tuple[float, float] | None
    source: str
    trained_on: str


_CLIP_DATA = "captions of pictures from a crawl of the web and from sets such as YFCC100M"
_OPEN_CLIP = "open_clip docs/openclip_retrieval_results.csv"

KNOWN = (
    KnownModel(
        "google/siglip2-base-patch16-224",
        375,
        768,
        224,
        "109 languages",
        "Apache-2.0",
        (93.0, 80.7),
        (68.9, 52.1),
        "SigLIP 2 (arXiv 2502.14786); big_vision issue 166",
        "pairs of the web: WebLI",
    ),
    KnownModel(
        "google/siglip2-so400m-patch14-384",
        1136,
        1152,
        384,
        "109 languages",
        "Apache-2.0",
        None,
        None,
        "its model card",
        "pairs of the web: WebLI",
    ),
    KnownModel(
        "google/siglip-base-patch16-224",
        203,
        768,
        224,
        "English",
        "Apache-2.0",
        (89.1, 74.7),
        (65.7, 47.8),
        _OPEN_CLIP,
        "English pairs of the web: WebLI",
    ),
    KnownModel(
        "google/siglip-so400m-patch14-384",
        878,
        1152,
        384,
        "English",
        "Apache-2.0",
        (94.3, 83.0),
        (72.4, 54.2),
        _OPEN_CLIP,
        "English pairs of the web: WebLI",
    ),
    KnownModel(
        "openai/clip-vit-base-patch32",
        151,
        512,
        224,
        "English",
        "MIT",
        (78.9, 58.8),
        (50.1, 30.4),
        _OPEN_CLIP,
        _CLIP_DATA,
    ),
    KnownModel(
        "openai/clip-vit-base-patch16",
        150,
        512,
        224,
        "English",
        "MIT",
        (82.2, 62.2),
        (52.4, 33.1),
        _OPEN_CLIP,
        _CLIP_DATA,
    ),
    KnownModel(
        "openai/clip-vit-large-patch14-336",
        428,
        768,
        336,
        "English",
        "MIT",
        (87.7, 66.9),
        (57.9, 37.1),
        _OPEN_CLIP,
        _CLIP_DATA,
    ),
    KnownModel(
        "BAAI/AltCLIP",
        864,
        768,
        224,
        "English, Chinese",
        "see its card",
        None,
        None,
        "its model card",
        "WuDao and LAION",
    ),
    KnownModel(
        "OFA-Sys/chinese-clip-vit-base-patch16",
        188,
        512,
        224,
        "Chinese",
        "see its card",
        None,
        None,
        "its model card",
        "about 200 million Chinese pairs",
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

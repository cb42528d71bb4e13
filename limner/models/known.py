"""Pretrained pairs to choose from: what each is, and what it is expected to reach.

Figures are zero-shot R@1 in per cent, image→text / text→image, as the named source prints them. The list is for
choosing; `limner import` takes any pair of the kinds that transformers has.
"""

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
    ),
    KnownModel(
        "BAAI/AltCLIP", 864, 768, 224, "English, Chinese", "see its card", None, None, "its model card"
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
    ),
)
"""In the order in which one would try them."""


def weight_terms(name: str) -> TermsOfUse:
    """The terms of weights by what a recipe or an import calls them: "imagenet", a name of the hub, a file or folder.

    >>> weight_terms("hf:openai/clip-vit-base-patch32").licence
    'MIT'
    >>> weight_terms("weights/mobilenet.safetensors").name
    'weights from mobilenet.safetensors'
    """
    name = name.removeprefix("hf:")
    if name in WEIGHTS:
        return WEIGHTS[name]
    for model in KNOWN:
        if model.name == name:
            return TermsOfUse(
                name=name,
                source=f"huggingface.co/{name}",
                licence=UNKNOWN if model.licence == "see its card" else model.licence,
                checked="2026-11-24: as `limner models` lists it; its own card was not opened",
            )
    # the last part alone: a path tells of a machine
    return TermsOfUse(name=f"weights from {Path(name).name}", checked="limner has no entry for them")

"""The works that a result rests on, by its system, losses, data and networks.

`limner cite`, docs/references.md and CITATION.cff are of these tables and of the works in `limner.recipes.works`.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from limner.recipes.works import REFERENCES, Reference

if TYPE_CHECKING:
    from limner.training.recipe import Recipe

Role = Literal["software", "system", "loss", "dataset", "network", "part"]

OF_SYSTEM: Mapping[str, tuple[str, ...]] = {
    "dual-path": ("zheng2020dual",),
    "identity-aware": ("li2017identity",),
    "mnil": ("zhang2017multi",),
    "hgan": ("zheng2020hierarchical",),
    # no paper of its own: its towers are networks
    "pretrained": (),
}
"""Keys by the system of a recipe."""
OF_LOSS: Mapping[str, tuple[str, ...]] = {
    "instance": ("zheng2020dual",),
    "ranking": ("zheng2020dual",),
    "cmce": ("li2017identity",),
    "sextuple": ("zhang2017multi",),
    "pair": ("zheng2020hierarchical", "zhang2018deep"),
    "levels": ("zheng2020hierarchical",),
    "sdm": ("jiang2023cross",),
    "contrastive": ("radford2021learning",),
    "siglip": ("zhai2023sigmoid",),
    "tal": ("qin2024noisy",),
    "circle": ("sun2020circle",),
    "maxsim": ("yao2022filip", "khattab2020colbert"),
}
"""Keys by the kind of a loss."""
OF_DATA: Mapping[str, tuple[str, ...]] = {
    "flickr8k": ("hodosh2013framing",),
    "flickr30k": ("young2014image",),
    "mscoco": ("lin2014microsoft",),
    "mscoco-labels": ("lin2014microsoft",),
    "cuhk-pedes": ("li2017person",),
    "icfg-pedes": ("ding2021semantically",),
    "rstpreid": ("zhu2021dssl",),
    "ufine6926": ("zuo2024ufinebench",),
    "vn3k": ("pham2022towards",),
    "prw-tps-cn": ("wu2023prototype",),
    "synth-pedes": ("zuo2024plip",),
    "mals": ("yang2023towards",),
    "luperson-mllm": ("tan2024harnessing",),
    "webperson": ("zheng2025gradient",),
    "cub": ("wah2011caltech", "reed2016learning"),
    "flowers": ("nilsback2008automated", "reed2016learning"),
    "cirr": ("liu2021image",),
    "fashioniq": ("wu2021fashion",),
    "itcpr": ("liu2023word",),
    # limner draws them, and your own have what you give them
    "people": (),
    "folder": (),
    "parquet": (),
    "webdataset": (),
}
"""Keys by the format of a dataset."""
_OF_NETWORK = {
    "resnet": ("he2016deep",),
    "mobilenet-v2": ("sandler2018mobilenetv2",),
    "vgg": ("simonyan2015very",),
    "googlenet": ("szegedy2015going",),
    "bert": ("devlin2019bert",),
    "minilm": ("wang2020minilm", "reimers2019sentence"),
    "siglip2": ("tschannen2025siglip",),
    "siglip": ("zhai2023sigmoid",),
    "altclip": ("chen2022altclip",),
    "chinese-clip": ("yang2022chinese",),
    "clip": ("radford2021learning",),
}
"""Keys by what the name of a network, or of its weights, holds; the first that fits counts."""
_IMAGENET = ("russakovsky2015imagenet",)


def software() -> Reference:
    """limner itself, in the version that is installed."""
    return Reference(
        "limner",
        "software",
        ("{The limner authors}",),
        "limner: image-text retrieval and text-based person search",
        2026,
        more={"version": version("limner"), "license": "Apache-2.0"},
    )


def cited_by(recipe: "Recipe", formats: tuple[str, ...]) -> list[tuple[Role, Reference]]:
    """The works that a training of a recipe rests on, each once: system, losses, networks with their weights, datasets.

    `formats` are those of the data, e.g. ("flickr8k",); one of another package has no entry here.
    """
    found: dict[str, Role] = {}

    def cite(role: Role, keys: tuple[str, ...]) -> None:
        for key in keys:
            found.setdefault(key, role)

    cite("system", OF_SYSTEM.get(recipe.model.system, ()))
    for stage in recipe.stages:
        for loss in stage.losses:
            cite("loss", OF_LOSS.get(loss.kind, ()))
        if stage.division is not None:
            cite("part", ("qin2024noisy",))
    if getattr(recipe.model, "levels", None):
        cite("part", ("zheng2020hierarchical",))
    if recipe.cross_encoder is not None:
        cite("part", ("li2017identity",))
    for name, pretrained in _networks(recipe):
        cite("network", _of_network(name))
        if pretrained == "imagenet":
            cite("network", _IMAGENET)
    for one in formats:
        cite("dataset", OF_DATA.get(one, ()))
    return [(role, REFERENCES[key]) for key, role in found.items()]


def _networks(recipe: "Recipe") -> list[tuple[str, str | None]]:
    """The names of a recipe's networks and of the models that they come from, and the weights of the backbone."""
    model = recipe.model
    backbone = getattr(model, "backbone", None)
    text = getattr(model, "text", None)
    names: list[tuple[str, str | None]] = []
    if backbone is not None:
        names.append((backbone.auto_model or backbone.name, backbone.weights))
    bert = getattr(text, "bert", None)
    for part in (text, bert):
        if (source := getattr(part, "model", None)) is not None:
            names.append((source, None))
    return names


def _of_network(name: str) -> tuple[str, ...]:
    # of a path or of ORG/NAME the last part: a folder above it may be called anything
    last = PurePath(name).name.lower()
    return next((keys for part, keys in _OF_NETWORK.items() if part in last), ())

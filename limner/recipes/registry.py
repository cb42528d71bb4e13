"""Recipes by name, as data: what `limner recipes list` prints without importing torch.

Each names the function that builds it; the module is imported when the recipe is asked for. A test holds the lines
here against the functions' docstrings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from limner.arguments import expect
from limner.errors import DataError, SettingsError
from limner.plugins import find_plugin, nearest, plugins

if TYPE_CHECKING:
    from limner.training.recipe import Recipe

PICTURES, PERSONS, PAPER = "Your own pictures", "Persons", "A paper's table"
TUNED = "A pretrained pair on a published set"
PACKAGES = "Of other packages"


@dataclass(frozen=True)
class RecipeEntry:
    """A recipe that can be asked for.

    - `source`: "module:function" of the function that returns it.
    - `group`: what it is for: `PICTURES`, `PERSONS`, `TUNED` or `PAPER`; or `PACKAGES`.
    - `about`: the first line of the function's docstring; of another package's, which is not imported, its package.
    - `data`: formats of the sets that it is for, as `limner.data.terms` has them; of another package's none.
    """

    source: str
    group: str
    about: str
    data: tuple[str, ...] = ()

    def load(self) -> "Callable[[], Recipe]":
        """Import the function."""
        module, _, name = self.source.partition(":")
        # At call time only: a module of recipes imports torch, which `limner recipes list` does without.
        found: Callable[[], Recipe] = getattr(import_module(module), name)
        return found


RECIPES: dict[str, RecipeEntry] = {
    "dual-path-flickr8k-strong": RecipeEntry(
        "limner.recipes.dual_path:dual_path_flickr8k_strong",
        PICTURES,
        "The network and losses on Flickr8k, with the training changed to suit 6,000 pictures and two cores.",
        ("flickr8k",),
    ),
    "fine-tune": RecipeEntry(
        "limner.recipes.pretrained:fine_tune",
        PICTURES,
        "An imported pair tuned on your own pictures and captions, by SDM and the instance loss.",
        ("folder",),
    ),
    "minilm-flickr8k": RecipeEntry(
        "limner.recipes.pretrained:minilm_flickr8k",
        PICTURES,
        "MiniLM and MobileNetV2 on Flickr8k: it reads words beyond those of Flickr8k's training captions.",
        ("flickr8k",),
    ),
    "words-flickr8k": RecipeEntry(
        "limner.recipes.mnil:words_flickr8k",
        PICTURES,
        "A bag of words beside MobileNetV2 on Flickr8k: its text has seen the training captions and no other sentence.",
        ("flickr8k",),
    ),
    "identity-aware-flickr8k": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_flickr8k",
        PICTURES,
        "Scenes on two cores: MobileNetV2 held fixed, each picture an identity, and what it finds re-ranked.",
        ("flickr8k",),
    ),
    "identity-aware-flickr8k-strong": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_flickr8k_strong",
        PICTURES,
        "CMCE and an LSTM above two pretrained towers: MiniLM beside MobileNetV2, stage 1 alone.",
        ("flickr8k",),
    ),
    "identity-aware-birds": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_birds",
        PICTURES,
        "Few species on two cores: MobileNetV2 held fixed, so that every picture passes through it once.",
        ("cub",),
    ),
    "mnil-flickr8k": RecipeEntry(
        "limner.recipes.mnil:mnil_flickr8k",
        PICTURES,
        "The network and the loss on Flickr8k, with the training changed to suit 6,000 pictures and two cores.",
        ("flickr8k",),
    ),
    "mnil-flickr8k-strong": RecipeEntry(
        "limner.recipes.mnil:mnil_flickr8k_strong",
        PICTURES,
        "MNiL's loss and LSTM above two pretrained towers: MiniLM beside MobileNetV2, contrastive loss first.",
        ("flickr8k",),
    ),
    "mnil-birds": RecipeEntry(
        "limner.recipes.mnil:mnil_birds",
        PICTURES,
        "Few species on two cores: MobileNetV2 held fixed, a species a class.",
        ("cub",),
    ),
    "hgan-flickr8k": RecipeEntry(
        "limner.recipes.hgan:hgan_flickr8k",
        PICTURES,
        "Scenes on two cores: fixed MiniLM and MobileNetV2; wholes first, then words and phrases beside them.",
        ("flickr8k",),
    ),
    "hgan-birds": RecipeEntry(
        "limner.recipes.hgan:hgan_birds",
        PICTURES,
        "Few species on two cores: MobileNetV2 held fixed, its last maps cached.",
        ("cub",),
    ),
    "dual-path-people": RecipeEntry(
        "limner.recipes.dual_path:dual_path_people",
        PERSONS,
        "Generated people from nothing but themselves: small enough for two cores, what `limner demo` trains.",
        ("people",),
    ),
    "pieces-people": RecipeEntry(
        "limner.recipes.pretrained:pieces_people",
        PERSONS,
        "Generated people described in any language: pieces of words and a small text tower, learnt from nothing.",
        ("people",),
    ),
    "identity-aware-people": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_people",
        PERSONS,
        "Generated people from nothing but themselves: small enough for two cores, about 15 minutes.",
        ("people",),
    ),
    "mnil-people": RecipeEntry(
        "limner.recipes.mnil:mnil_people",
        PERSONS,
        "Generated people by the labels of what they wear and carry.",
        ("people",),
    ),
    "hgan-people": RecipeEntry(
        "limner.recipes.hgan:hgan_people",
        PERSONS,
        "Generated people from nothing but themselves, on two cores.",
        ("people",),
    ),
    "clip-people": RecipeEntry(
        "limner.recipes.clip:clip_people",
        PERSONS,
        "A small pair of towers on generated people, from nothing: a CNN, and a transformer above pieces of words.",
        ("people",),
    ),
    "clip-people-late": RecipeEntry(
        "limner.recipes.clip:clip_people_late",
        PERSONS,
        "`clip-people` re-ranked by late interaction: a person's regions against the words of a description.",
        ("people",),
    ),
    "clip-cuhk-pedes": RecipeEntry(
        "limner.recipes.clip:clip_cuhk_pedes",
        TUNED,
        "CLIP on CUHK-PEDES by SDM and the instance loss, with the rates and the schedule of IRRA.",
        ("cuhk-pedes",),
    ),
    "clip-icfg-pedes": RecipeEntry(
        "limner.recipes.clip:clip_icfg_pedes",
        TUNED,
        "CLIP on ICFG-PEDES, as `clip-cuhk-pedes`.",
        ("icfg-pedes",),
    ),
    "clip-rstpreid": RecipeEntry(
        "limner.recipes.clip:clip_rstpreid", TUNED, "CLIP on RSTPReid, as `clip-cuhk-pedes`.", ("rstpreid",)
    ),
    "clip-flickr30k": RecipeEntry(
        "limner.recipes.clip:clip_flickr30k",
        TUNED,
        "CLIP on Flickr30k by its own contrastive loss, in large batches.",
        ("flickr30k",),
    ),
    "clip-mscoco": RecipeEntry(
        "limner.recipes.clip:clip_mscoco", TUNED, "CLIP on MSCOCO, as `clip-flickr30k`.", ("mscoco",)
    ),
    "dual-path": RecipeEntry(
        "limner.recipes.dual_path:dual_path",
        PAPER,
        'The paper\'s text: ResNet-50, two stages. Reproduces Table 1, row "Ours (ResNet-50)".',
        ("flickr30k", "mscoco"),
    ),
    "dual-path-released": RecipeEntry(
        "limner.recipes.dual_path:dual_path_released",
        PAPER,
        "The authors' MATLAB for Flickr30k where it differs from the text: "
        "head, text blocks, rates, weights, crops, test.",
        ("flickr30k",),
    ),
    "dual-path-released-mscoco": RecipeEntry(
        "limner.recipes.dual_path:dual_path_released_mscoco",
        PAPER,
        "The authors' MATLAB for MSCOCO: dropout 0.5, a classifier without a bias, fewer epochs.",
        ("mscoco",),
    ),
    "dual-path-released-cuhk-pedes": RecipeEntry(
        "limner.recipes.dual_path:dual_path_released_cuhk_pedes",
        PAPER,
        "The authors' MATLAB for CUHK-PEDES: whole persons squeezed to 256 × 256, dropout 0.8, random negatives.",
        ("cuhk-pedes",),
    ),
    "dual-path-released-flickr8k": RecipeEntry(
        "limner.recipes.dual_path:dual_path_released_flickr8k",
        PAPER,
        "The released head, text blocks, losses and schedule on Flickr8k, with MobileNetV2 and words from nothing.",
        ("flickr8k",),
    ),
    "dual-path-cuhk-pedes": RecipeEntry(
        "limner.recipes.dual_path:dual_path_cuhk_pedes",
        PAPER,
        'The paper\'s text on persons: 56 words, an identity is a class. Reproduces Table 2, "Ours (ResNet-50)".',
        ("cuhk-pedes",),
    ),
    "dual-path-flickr8k": RecipeEntry(
        "limner.recipes.dual_path:dual_path_flickr8k",
        PAPER,
        "The faithful recipe for two cores: the paper's network on MobileNetV2 in place of ResNet-50.",
        ("flickr8k",),
    ),
    "identity-aware-cuhk-pedes": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_cuhk_pedes",
        PAPER,
        "The paper on persons: VGG-16, an LSTM, CMCE with σ = 0.04, then co-attention. Reproduces Table 1.",
        ("cuhk-pedes",),
    ),
    "identity-aware-cub": RecipeEntry(
        "limner.recipes.identity_aware:identity_aware_cub",
        PAPER,
        "The paper on birds and flowers: GoogLeNet up to its pool and its inception (5b). Reproduces Tables 3 and 4.",
        ("cub", "flowers"),
    ),
    "mnil-mscoco": RecipeEntry(
        "limner.recipes.mnil:mnil_mscoco",
        PAPER,
        "The paper on MSCOCO with its category labels. Reproduces Table 1.",
        ("mscoco-labels",),
    ),
    "mnil-flickr30k": RecipeEntry(
        "limner.recipes.mnil:mnil_flickr30k",
        PAPER,
        "The paper on Flickr30k, where each picture with its sentences is a class of its own. Reproduces Table 2.",
        ("flickr30k",),
    ),
    "hgan-cub": RecipeEntry(
        "limner.recipes.hgan:hgan_cub",
        PAPER,
        "The paper on birds and flowers, a species a class. Reproduces Table 6.",
        ("cub", "flowers"),
    ),
    "hgan-cuhk-pedes": RecipeEntry(
        "limner.recipes.hgan:hgan_cuhk_pedes",
        PAPER,
        "The paper on CUHK-PEDES. Reproduces Table 1.",
        ("cuhk-pedes",),
    ),
}
"""Every recipe by the name that `limner train` takes, those for similar tasks together."""


def all_recipes() -> dict[str, RecipeEntry]:
    """Every recipe by name; those of other packages, of which nothing is imported, behind limner's own."""
    added = {
        name: RecipeEntry(plugin.entry.value, PACKAGES, f"of the package {plugin.package}")
        for name, plugin in plugins("limner.recipes").items()
        # limner's own name wins: an installed package must not change what a documented command trains.
        if name not in RECIPES
    }
    return RECIPES | added


def get_recipe(name: str) -> "Recipe":
    """The recipe of a name; for a name that ends in ".json", the recipe in that file, as `limner recipes show` prints
    it.

    Raises `SettingsError` with the nearest name, or with the file and the wrong value in it.
    """
    expect(name, (str,), "get_recipe: the name of a recipe, or a .json file,")
    if name.endswith(".json"):
        return _read(Path(name))
    if name.endswith((".yaml", ".yml", ".toml")):
        raise SettingsError(
            f"{name}: a recipe is a .json file; `limner recipes show RECIPE > mine.json` writes one to begin with"
        )
    if name in RECIPES:
        return RECIPES[name].load()()
    # Only a name that is not limner's own is looked up among the installed packages.
    plugin = find_plugin("limner.recipes", name)
    if plugin is None:
        raise SettingsError(f"unknown recipe '{name}'; {nearest('limner.recipes', name, RECIPES)}")
    # Imported only here: it brings torch.
    from limner.training.recipe import Recipe

    made = plugin.load()()
    # Another package's function may return anything; without this the loop would fail deep inside.
    if not isinstance(made, Recipe):
        raise SettingsError(
            f"limner.recipes: '{name}' of {plugin.package} gave a {type(made).__name__}, not a limner Recipe; mend it"
        )
    return made


def _read(file: Path) -> "Recipe":
    # the readers' JSON, whose messages name the file and the place in it; they bring numpy, which a list of names
    # does without
    from limner.data.readers.parsing import parse_json, shown
    from limner.text_files import read_text
    from limner.training.recipe import Recipe

    try:
        if not file.is_file():
            raise SettingsError(
                f"{file}: no such recipe; write one with `limner recipes show RECIPE > {file}`"
            )
        values = parse_json(read_text(file), file)
    except DataError as error:
        raise SettingsError(str(error)) from None
    if not isinstance(values, dict):
        raise SettingsError(f"{file}: an object of settings was expected, got {shown(values)}")
    try:
        return Recipe.parse(values)
    except SettingsError as error:
        # With the file: a user may have several, and the message alone names a setting.
        raise SettingsError(f"{file}: {error}") from None

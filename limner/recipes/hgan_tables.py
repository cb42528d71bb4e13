"""Tables 2 to 6 and Figure 5 of Zheng et al., "Hierarchical Gumbel Attention Network", MM 2020.

Rows without BERT have a table of word vectors in its place, and nothing of BERT to hold fixed. Rows with it have the
recipe's BERT, or, where the recipe has none, one that starts at random. Figure 5 has its best point in numbers only;
the others are our own choice of points on both of its axes. Table 5 has its rows of Gumbel noise twice: with the noise
of Algorithm 1 and with that of section 3.3 (`model.local.noise_on`). Which side selects, in α and in Eq. 8, is a table
of our own (`model.local.selects`).
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from limner.losses import Instance, Levels, Pair
from limner.models.hgan import HGANSettings
from limner.models.levels import Level
from limner.models.text_bert import BertSettings
from limner.recipes.table import Change, Row, Table, in_stage, recalls
from limner.training.recipe import Recipe, StageSettings

# Unlike dual-path's tables, these are measured on the test split.
_SET = "CUHK-PEDES test, ResNet-50 and BERT"
_BEST = (59.0, 79.5, 86.6)


def _network(recipe: Recipe) -> HGANSettings:
    assert isinstance(recipe.model, HGANSettings)  # the table's `system`
    return recipe.model


def _then(*changes: Change) -> Change:
    """Several changes, one after the other."""
    return lambda recipe: reduce(lambda changed, change: change(changed), changes, recipe)


def _levels(*levels: Level) -> Change:
    """Some of the levels below the sentence, in the network and in the losses of its stage."""

    def learnt(stage: StageSettings) -> StageSettings:
        loss = stage.loss(Levels)
        if loss is None or not levels:
            return stage.without_losses(Levels)
        # `levels` is not empty, so at least one of the two weights stays above 0.
        return stage.with_losses(
            loss.replace(**{level: 0.0 for level in ("word", "phrase") if level not in levels})
        )

    def change(recipe: Recipe) -> Recipe:
        stages = (learnt(recipe.stages[0]), *recipe.stages[1:])
        return recipe.replace(model=_network(recipe).replace(levels=levels), stages=stages)

    return change


def _without_bert(recipe: Recipe) -> Recipe:
    """A table of word vectors in BERT's place, and nothing of BERT to hold fixed or to scale."""
    model, vectors = _network(recipe), recipe.vocabulary.vectors
    return recipe.replace(
        model=model.replace(text=model.text.replace(bert=None)),
        # A random table would be one more difference from the paper, whose word vectors are pretrained.
        vocabulary=recipe.vocabulary.replace(vectors="captions" if vectors == "random" else vectors),
        stages=tuple(_without_part(stage, "bert") for stage in recipe.stages),
    )


def _without_part(stage: StageSettings, part: str) -> StageSettings:
    def others(named: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in named.items() if name != part}

    optimiser = stage.optimiser.replace(multipliers=others(stage.optimiser.multipliers))
    return stage.replace(
        # A part that the network does not have is refused by the recipe.
        frozen=tuple(name for name in stage.frozen if name != part),
        optimiser=optimiser,
        part_optimisers=others(stage.part_optimisers),
    )


def _with_bert(**settings: str) -> Change:
    """The recipe's BERT, or one that starts at random where it has none; some of its settings changed."""

    def change(recipe: Recipe) -> Recipe:
        model = _network(recipe)
        # A row with BERT needs one even where the recipe has none; at random it takes no download.
        bert = (model.text.bert or BertSettings(model=None)).replace(**settings)
        stages = recipe.stages if model.text.bert else tuple(_without_part(s, "words") for s in recipe.stages)
        return recipe.replace(
            model=model.replace(text=model.text.replace(bert=bert)),
            # BERT takes the place of the table, and a recipe that names vectors beside BERT is refused.
            vocabulary=recipe.vocabulary.replace(vectors="random"),
            stages=stages,
        )

    return change


def _regions(**settings: tuple[int, int]) -> Change:
    """Other windows."""

    def change(recipe: Recipe) -> Recipe:
        model = _network(recipe)
        return recipe.replace(model=model.replace(regions=model.regions.replace(**settings)))

    return change


def _local(attention: str = "gumbel", **settings: str | int) -> Change:
    """Another attention; Gumbel top-k also for a recipe that has soft attention."""

    def change(recipe: Recipe) -> Recipe:
        model = _network(recipe)
        return recipe.replace(model=model.replace(local=model.local.replace(attention=attention, **settings)))

    return change


def _texts(*figures: float) -> dict[str, float]:
    """R@1, R@5 and R@10 of text→image."""
    return {f"text_to_image R@{k}": value for k, value in zip((1, 5, 10), figures, strict=True)}


def _windows(kernel: tuple[int, int], stride: tuple[int, int], regions: int, *figures: float) -> Row:
    rows, columns = kernel
    down, across = stride
    return Row(
        f"{rows}x{columns}-{down}x{across}",
        f"{rows} × {columns}, steps of {down} × {across}: {regions} regions",
        "I",
        _texts(*figures),
        # Table 4's numbers of regions come out on a map of 16 × 8 alone: (4, 4) in steps of (3, 2) gives 5 × 3.
        _regions(map_size=(16, 8), kernel=kernel, stride=stride),
    )


def _selected(of_items: int, of_regions: int) -> Row:
    return Row(
        f"{of_items}-{of_regions}",
        f"k1 = {of_items}, k2 = {of_regions}",
        "I",
        # Figure 5 is a plot: the text has its best point in numbers, which is Table 1's.
        _texts(*_BEST) if (of_items, of_regions) == (4, 2) else {},
        _local(k_items=of_items, k_regions=of_regions),
    )


def _by_class(what: str, named: str, protocol: str, to_text: float, to_image: float) -> Table:
    """HGAN's own row of Table 6 for one set; its others are of other papers."""
    return Table(
        f"HGAN, Table 6: {what}, a text query for each class",
        f"{named} test, ResNet-50 and BERT",
        (Row("hgan", "HGAN", "I", {"image_to_text R@1": to_text, "text_to_image AP@50": to_image}),),
        recipe="hgan-cub",
        # A text query is a class: scores are averaged over its sentences.
        protocol=protocol,
        system="hgan",
    )


_sentence = _then(_levels(), _without_bert)

HGAN_TABLES: dict[str, Table] = {
    "hgan-table-2": Table(
        "HGAN, Table 2: hidden layers of BERT, sentence level alone",
        _SET,
        tuple(
            # Without words and phrases: Table 2 is of the sentence level.
            Row(key, label, "I", _texts(*figures), _then(_levels(), _with_bert(hidden=key)))
            for key, label, figures in (
                ("last", "last hidden layer", (53.8, 76.1, 83.2)),
                ("second-to-last", "second to last", (54.3, 77.1, 84.3)),
                ("last-four", "last four, concatenated", (55.2, 77.3, 84.9)),
            )
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-table-3": Table(
        "HGAN, Table 3: losses of the sentence level, BERT, words and phrases",
        _SET,
        (
            Row(
                "ide",
                "L_ide",
                "I",
                recalls(None, None, 43.5, 74.1),
                _then(_sentence, in_stage(0, lambda stage: stage.without_losses(Pair))),
            ),
            Row(
                "pair",
                "L_pair",
                "I",
                recalls(None, None, 47.1, 79.8),
                _then(_sentence, in_stage(0, lambda stage: stage.without_losses(Instance))),
            ),
            Row("both", "L_ide + L_pair", "I", recalls(None, None, 51.8, 82.5), _sentence),
            # From here on with BERT, as the paper adds it before words and phrases.
            Row("bert", "… with BERT", "I", recalls(None, None, 55.2, 84.9), _then(_levels(), _with_bert())),
            Row(
                "word",
                "… and words",
                "I",
                recalls(None, None, 58.3, 85.7),
                _then(_levels("word"), _with_bert()),
            ),
            Row("phrase", "… and phrases (HGAN)", "I", recalls(None, None, 59.0, 86.6), _with_bert()),
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-table-4": Table(
        "HGAN, Table 4: windows",
        _SET,
        (
            _windows((2, 2), (2, 2), 32, 54.29, 76.15, 83.67),
            _windows((4, 4), (2, 2), 21, 57.41, 78.07, 85.09),
            _windows((4, 4), (3, 2), 15, 58.34, 79.08, 85.82),
            _windows((4, 4), (4, 4), 8, 57.24, 78.74, 85.56),
            # Windows as wide as the map: one region across.
            _windows((4, 8), (2, 2), 7, 58.03, 78.74, 85.88),
            _windows((4, 8), (3, 2), 5, 58.14, 79.84, 85.88),
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-table-5": Table(
        "HGAN, Table 5: kinds of attention",
        _SET,
        (
            Row("soft", "w/o Gumbel (soft)", "I", _texts(56.1, 78.1, 85.5), _local(attention="soft")),
            # The paper has each row once, and does not say whether its noise was that of Algorithm 1 or of section
            # 3.3.
            *(
                row
                for suffix, noise_on, source in (
                    ("", "normalised", "Algorithm 1"),
                    ("-scores", "scores", "section 3.3"),
                )
                for row in (
                    Row(
                        f"max{suffix}",
                        f"w Max Gumbel, noise of {source}",
                        "I",
                        _texts(57.6, 78.5, 86.0),
                        # Max Gumbel is top-k with k = 1 both ways.
                        _local(k_items=1, k_regions=1, noise_on=noise_on),
                    ),
                    Row(
                        f"top-k{suffix}",
                        f"HGAN, noise of {source}",
                        "I",
                        _texts(*_BEST),
                        # Named even where it is the default, for a recipe that has the other one.
                        _local(noise_on=noise_on),
                    ),
                )
            ),
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-selects": Table(
        "HGAN, Algorithm 1 and Eq. 8: which side selects",
        _SET,
        tuple(
            Row(
                f"{selects}{suffix}",
                f"each {selects.removesuffix('s')} selects k1 {others}: {how}",
                "I",
                # The paper has one figure for both readings.
                _texts(*_BEST),
                _local(selects=selects, direction=direction),
            )
            # Eq. 8 as printed has α alone.
            for suffix, how, direction in (
                ("", "α and β", "both"),
                ("-alone", "α alone", "image_to_text"),
            )
            for selects, others in (("regions", "words"), ("words", "regions"))
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-table-6-cub": _by_class("birds", "CUB", "cub", 68.9, 71.7),
    "hgan-table-6-flowers": _by_class("flowers", "Oxford Flowers-102", "flowers", 72.4, 75.1),
    "hgan-figure-5": Table(
        "HGAN, Figure 5: how many words and regions are selected",
        _SET,
        tuple(_selected(*point) for point in ((1, 2), (2, 2), (4, 1), (4, 2), (4, 4), (6, 2), (8, 2))),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
}
"""Its tables by the name that `limner ablate` takes."""

"""Tables 4 to 8 of Zheng et al., "Dual-path convolutional image-text embeddings with instance loss", ACM TOMM 2020, and
Table III of its earlier version, arXiv 1711.05535.

**Decided**: rows of stage II all start from stage I with the instance loss alone, as the paper's training does. On a
set of other size Table 5's 3,000 and 10,000 classes become the same shares of the training pictures (the paper: of
113,287). Table III's rows differ in the text CNN alone; the paper's image CNN is ResNet-152 in both
(`--set model.backbone.name=resnet-152`), here that of the recipe.
"""

from limner.losses import Instance, Ranking
from limner.models.dual_path import DualPathSettings
from limner.models.text_cnn import Layout
from limner.recipes.table import Change, Row, Table, in_stage, recalls
from limner.training.recipe import Recipe, StageSettings


def _instance(recipe: Recipe, stage: StageSettings) -> Instance:
    """The instance loss as the stage has it, or else as another stage of the recipe does: with its scale, say."""
    # A row may give the loss back to a stage that has none: it then comes with the recipe's own scale and dropout.
    known = (other.loss(Instance) for other in (stage, *recipe.stages))
    return next((loss for loss in known if loss is not None), Instance())


def _ranking(recipe: Recipe) -> Ranking:
    """The ranking loss of the recipe's second stage."""
    # A recipe of a single stage has its ranking loss, if any, in that one.
    return recipe.stages[min(1, len(recipe.stages) - 1)].loss(Ranking) or Ranking()


def _with_instance(stage: StageSettings, loss: Instance) -> StageSettings:
    """The stage with this instance loss, which comes first: the order of a sum is the order of its rounding."""
    return stage.replace(losses=(loss, *(other for other in stage.losses if not isinstance(other, Instance))))


def _ranking_alone(recipe: Recipe) -> Recipe:
    ranking = _ranking(recipe)
    # The ranking loss comes first: each step is validated, and a stage without any loss is refused.
    return in_stage(0, lambda stage: stage.with_losses(ranking).without_losses(Instance))(recipe)


def _instance_alone(recipe: Recipe) -> Recipe:
    # Without joint: Table 4's instance loss is one loss on each modality, the sum of both is Table 8's.
    first = _instance(recipe, recipe.stages[0]).replace(joint=0.0)
    return in_stage(0, lambda stage: _with_instance(stage, first).without_losses(Ranking))(recipe)


def _both(recipe: Recipe) -> Recipe:
    ranking = _ranking(recipe)
    return in_stage(0, lambda stage: stage.with_losses(ranking))(recipe)


def _second_with_instance(recipe: Recipe) -> Recipe:
    # λ2 = λ3 = 1 as in the table, whatever a recipe such as dual-path-released weighs them with
    second = _instance(recipe, recipe.stages[1]).replace(visual=1.0, textual=1.0)
    return in_stage(1, lambda stage: _with_instance(stage, second))(recipe)


def _second_by_instance_alone(recipe: Recipe) -> Recipe:
    return in_stage(1, lambda stage: stage.without_losses(Ranking))(_second_with_instance(recipe))


_second_by_ranking_alone = in_stage(1, lambda stage: stage.without_losses(Instance))


def _of_the_sum(recipe: Recipe) -> Recipe:
    # Eq. 11 and 12: one loss on f_img + f_text, in place of the two.
    joint = _instance(recipe, recipe.stages[0]).replace(joint=1.0, visual=0.0, textual=0.0)
    return in_stage(0, lambda stage: _with_instance(stage, joint).without_losses(Ranking))(recipe)


def _vectors(start: str | None) -> Change:
    """Word vectors that start so; None = as the recipe has them, learnt from the captions where it has none."""

    def change(recipe: Recipe) -> Recipe:
        # limner comes without word2vec, so vectors learnt from the captions stand for the paper's; a start at random
        # would repeat the other row.
        vectors = recipe.vocabulary.vectors
        chosen = start or ("captions" if vectors == "random" else vectors)
        return recipe.replace(vocabulary=recipe.vocabulary.replace(vectors=chosen))

    return change


def _by_classes(few: int, many: int) -> tuple[Row, ...]:
    """Table 5 for two numbers of classes."""
    return (
        Row(
            "few",
            f"{few} categories",
            "I",
            # The paper's Table 5 prints R@1 alone.
            recalls(38.0, None, 26.1, None),
            lambda recipe: recipe.replace(classes=few),
        ),
        Row(
            "many",
            f"{many} categories",
            "I",
            recalls(44.7, None, 31.3, None),
            lambda recipe: recipe.replace(classes=many),
        ),
        Row(
            "instance",
            "each group a class",
            "I",
            recalls(52.2, None, 37.2, None),
            # None = each group a class, whatever the recipe that the table is run with has.
            lambda recipe: recipe.replace(classes=None),
        ),
    )


def _layout(layout: Layout) -> Change:
    """A text CNN with these blocks."""

    def change(recipe: Recipe) -> Recipe:
        assert isinstance(recipe.model, DualPathSettings)  # the table's `system`
        return recipe.replace(model=recipe.model.replace(text=recipe.model.text.replace(layout=layout)))

    return change


def _deeper(named: str, shallow: tuple[float, float], deep: tuple[float, float]) -> Table:
    """arXiv Table III for one set: R@1 of image→text and of text→image."""
    # Each layout is set even where it is the default, for a recipe that has the other one.
    rows: tuple[tuple[Layout, str, tuple[float, float]], ...] = (
        ("resnet-50", "text CNN of ResNet-50's layout", shallow),
        ("resnet-152", "text CNN of ResNet-152's layout", deep),
    )
    return Table(
        "Dual-path, arXiv Table III: a deeper text CNN",
        f"{named}, ResNet-152",
        tuple(
            Row(key, label, "I", recalls(figures[0], None, figures[1], None), _layout(key))
            for key, label, figures in rows
        ),
        system="dual-path",
    )


# One run of the paper stands in Tables 4, 6, 7 and 8, so its figures stand here once.
_INSTANCE_1 = recalls(39.9, 79.1, 28.2, 67.9)

DUAL_PATH_TABLES: dict[str, Table] = {
    "dual-path-arxiv-table-3": _deeper("Flickr30k", (44.4, 29.6), (44.2, 30.7)),
    "dual-path-arxiv-table-3-mscoco": _deeper("MSCOCO 1K", (52.0, 38.0), (52.8, 37.7)),
    "dual-path-table-4": Table(
        "Dual-path, Table 4: ranking loss and instance loss",
        "Flickr30k validation, ResNet-50",
        (
            Row("ranking-1", "only ranking loss", "I", recalls(6.1, 27.3, 4.9, 27.8), _ranking_alone),
            Row("instance-1", "only instance loss", "I", _INSTANCE_1, _instance_alone),
            Row("both-1", "instance loss + ranking loss", "I", recalls(37.6, 75.1, 24.1, 65.6), _both),
            Row(
                "instance-2",
                "only instance loss",
                "II",
                recalls(50.5, 86.0, 34.9, 75.7),
                _second_by_instance_alone,
                "instance-1",
            ),
            Row(
                "ranking-2",
                "only ranking loss",
                "II",
                recalls(47.5, 85.4, 29.0, 68.7),
                _second_by_ranking_alone,
                "instance-1",
            ),
            Row(
                "both-2",
                "full model",
                "II",
                recalls(55.4, 89.3, 39.7, 80.8),
                _second_with_instance,
                "instance-1",
            ),
        ),
    ),
    "dual-path-table-5": Table(
        "Dual-path, Table 5: k-means classes against instances",
        "MSCOCO, 3,000 and 10,000 of 113,287 groups, ResNet-50",
        # The paper's numbers, for listing the table; a run takes `by_classes` with those of its own data.
        _by_classes(3_000, 10_000),
        by_classes=_by_classes,
    ),
    "dual-path-table-6": Table(
        "Dual-path, Table 6: the word table's start",
        "Flickr30k validation, ResNet-50, word2vec",
        (
            Row("random", "random", "I", recalls(38.0, 78.7, 26.6, 66.6), _vectors("random")),
            Row("vectors", "word vectors", "I", _INSTANCE_1, _vectors(None)),
        ),
    ),
    "dual-path-table-7": Table(
        "Dual-path, Table 7: where a sentence stands",
        "Flickr30k validation, ResNet-50",
        (
            Row(
                "left",
                "left alignment",
                "I",
                recalls(34.1, 73.1, 23.6, 61.4),
                in_stage(0, lambda stage: stage.replace(position_shift=False)),
            ),
            Row(
                "shift",
                "position shift",
                "I",
                _INSTANCE_1,
                # Set even where it is the default: `dual-path-flickr8k-strong` switches the shift off.
                in_stage(0, lambda stage: stage.replace(position_shift=True)),
            ),
        ),
    ),
    "dual-path-table-8": Table(
        "Dual-path, Table 8: one instance loss on the sum",
        "Flickr30k, ResNet-50; the row of two losses is Table 4's",
        (
            Row("sum", "one loss on f_img + f_text", "I", recalls(0.3, 1.7, 0.1, 1.4), _of_the_sum),
            # Not unchanged: a recipe may have a ranking loss in stage I, which Table 8's rows do not have.
            Row("two", "a loss on each", "I", _INSTANCE_1, _instance_alone),
        ),
    ),
}
"""Its tables by the name that `limner ablate` takes."""

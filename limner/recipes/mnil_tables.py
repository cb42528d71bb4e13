"""Tables 1 and 2 of Zhang et al., "Multi-Networks Joint Learning for Large-Scale Cross-Modal Retrieval", MM 2017.

Their rows of MNiL itself: with either direction's terms alone, and with both. The paper's "sentence query" is
text→image. They are measured by the dataset's own protocol; for MSCOCO with its labels that is the paper's, for
Flickr30k the paper's one sentence of each picture is `--protocol mnil-flickr30k`. The paper's figures are means over
ten random draws of the three splits (section 4.1): `--draws 10 --split test`.
"""

from collections.abc import Mapping

from limner.losses import Sextuple
from limner.losses.sextuple import Direction
from limner.recipes.table import Change, Row, Table, in_stage
from limner.training.recipe import StageSettings

_DIRECTIONS: dict[str, Direction] = {"to-text": "image_to_text", "to-image": "text_to_image", "both": "both"}
_LABELS = {"to-text": "MNiL (I→T)", "to-image": "MNiL (T→I)", "both": "MNiL"}


def _sextuples_alone(direction: Direction) -> Change:
    """The sextuple loss of one direction or both, and no other."""

    def change(stage: StageSettings) -> StageSettings:
        sextuple = stage.loss(Sextuple) or Sextuple()
        # Alone in its stage, so it has weight 1 whatever the recipe gives it beside another loss.
        return stage.replace(losses=(sextuple.replace(weight=1.0, direction=direction),))

    return in_stage(0, change)


def _rows(published: Mapping[str, Mapping[str, float]]) -> tuple[Row, ...]:
    return tuple(
        Row(key, _LABELS[key], "I", published[key], _sextuples_alone(direction))
        for key, direction in _DIRECTIONS.items()
    )


def _both_ways(names: str, to_text: tuple[float, ...], to_image: tuple[float, ...]) -> dict[str, float]:
    """Percentages of image→text and of text→image, by the names of the measures."""
    return {
        f"{direction} {name}": value
        for direction, values in (("image_to_text", to_text), ("text_to_image", to_image))
        for name, value in zip(names.split(), values, strict=True)
    }


MNIL_TABLES: dict[str, Table] = {
    "mnil-table-1": Table(
        "MNiL, Table 1: both directions against one, by category labels",
        "MSCOCO, 5,000 pairs, ResNet-50",
        _rows(
            {
                # The paper prints shares of 1; these are percentages, as everywhere here.
                "to-text": _both_ways("MAP@50 MAP@all", (38.26, 36.17), (36.54, 35.01)),
                "to-image": _both_ways("MAP@50 MAP@all", (36.43, 34.79), (41.72, 35.21)),
                "both": _both_ways("MAP@50 MAP@all", (46.42, 38.75), (53.41, 35.63)),
            }
        ),
        recipe="mnil-mscoco",
        draws=(5_000, 5_000),
    ),
    "mnil-table-2": Table(
        "MNiL, Table 2: both directions against one, each picture its own class",
        # Without category labels each image with its sentences is a class (section 4.1), the recipe's default.
        "Flickr30k, 1,000 pairs, ResNet-50",
        _rows(
            {
                "to-text": _both_ways("R@1 R@5 R@10", (29.3, 51.2, 59.8), (21.1, 48.3, 49.1)),
                "to-image": _both_ways("R@1 R@5 R@10", (22.9, 44.9, 51.6), (23.7, 47.4, 52.5)),
                "both": _both_ways("R@1 R@5 R@10", (36.9, 64.1, 76.9), (27.3, 55.7, 67.0)),
            }
        ),
        recipe="mnil-flickr30k",
        draws=(1_000, 1_000),
    ),
}
"""Its tables by the name that `limner ablate` takes."""

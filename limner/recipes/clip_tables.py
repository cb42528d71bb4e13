"""A table of no paper: which loss a pair of towers learns most by, at an equal budget."""

from limner.losses.contrastive import Contrastive
from limner.losses.instance import Instance
from limner.losses.loss import LossSettings
from limner.losses.sdm import SDM
from limner.losses.tal import TAL
from limner.recipes.table import Change, Row, Table, in_stage


def _by(*losses: LossSettings) -> Change:
    """The first stage with these losses alone; the recipe's own settings of a loss, where it has one of that kind."""
    return in_stage(
        0, lambda stage: stage.replace(losses=tuple(stage.loss(type(loss)) or loss for loss in losses))
    )


CLIP_TABLES: dict[str, Table] = {
    "clip-losses": Table(
        "A pair of towers: SDM and the instance loss, and each alone",
        None,
        (
            Row("sdm-instance", "SDM and instance loss", "I", {}, _by(SDM(), Instance())),
            Row("sdm", "SDM", "I", {}, _by(SDM())),
            Row("instance", "instance loss", "I", {}, _by(Instance())),
            Row("contrastive", "contrastive", "I", {}, _by(Contrastive())),
            Row("tal", "TAL", "I", {}, _by(TAL())),
        ),
        recipe="clip-people",
        system="pretrained",
    ),
}
"""Its tables by the name that `limner ablate` takes."""

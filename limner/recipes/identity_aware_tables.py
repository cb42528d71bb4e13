"""Tables 2 and 3 of Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017.

**Decided**: the triplet loss is the ranking loss, with the recipe's margin and negatives. Rows of stage 2 start from
stage 1 with CMCE. "w/o ID" trains both stages on each picture with its own sentences. "w/o stage 1" learns from random
pairs, half of them right, starts from the CNN's own weights, and matches every pair at testing.
"""

from limner.recipes.ablation_table import Row, Table, recalls

_NOT_CLASSIFIED = tuple(f"stages.0.losses.{name}=0" for name in ("visual", "textual", "joint"))
_TRIPLET = ("stages.0.losses.cmce=0", "stages.0.losses.ranking=1", *_NOT_CLASSIFIED)
_CMCE = ("stages.0.losses.cmce=1", "stages.0.losses.ranking=0", *_NOT_CLASSIFIED)
_PLAIN = ("matcher.semantic=false", "matcher.spatial=false")


def _texts(top_1: float, top_10: float) -> dict[str, float]:
    return recalls(None, None, top_1, top_10)


def _classes(to_text: float | None, to_image: float) -> dict[str, float]:
    return {**({} if to_text is None else {"image_to_text R@1": to_text}), "text_to_image AP@50": to_image}


IDENTITY_AWARE_TABLES: dict[str, Table] = {
    "identity-aware-table-2": Table(
        "Identity-aware, Table 2: parts of both stages",
        "CUHK-PEDES test, VGG-16",
        (
            Row("triplet", "triplet", "I", _texts(14.76, 51.29), _TRIPLET),
            Row("cmce", "stage 1 (CMCE)", "I", _texts(21.55, 54.78), _CMCE),
            Row(
                "alone",
                "stage 2 w/o SMA+SPA+stage 1",
                "II",
                _texts(17.19, 57.82),
                (*_PLAIN, "rerank=all", "stages.*.matching.drawn=random", "stages.*.matching.own=0"),
                alone=True,
            ),
            Row("plain", "stage 2 w/o SMA+SPA", "II", _texts(22.11, 58.05), _PLAIN, "cmce"),
            Row("spatial", "stage 2 w/o SMA", "II", _texts(23.58, 58.68), _PLAIN[:1], "cmce"),
            Row(
                "no-identities",
                "stage 2 w/o ID",
                "II",
                _texts(23.47, 54.77),
                (*_CMCE, "classes=images", "stages.0.pairing=image"),
            ),
            Row("full", "stage 2", "II", _texts(25.94, 60.48), (), "cmce"),
        ),
        recipe="identity-aware-people",
        matching=True,
    ),
    "identity-aware-table-3": Table(
        "Identity-aware, Table 3: birds, a text query for each class",
        "CUB test, GoogLeNet",
        (
            Row("triplet", "triplet", "I", _classes(52.5, 52.4), _TRIPLET),
            Row("cmce", "stage 1 (CMCE)", "I", _classes(61.5, 55.5), _CMCE),
            Row("full", "stage 2", "II", _classes(None, 57.6), (), "cmce"),
        ),
        recipe="identity-aware-cub",
        protocol="cub",
        matching=True,
    ),
}
"""Its tables by the name that `limner ablate` takes."""

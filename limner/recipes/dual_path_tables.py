"""Tables 4 to 8 of Zheng et al., "Dual-path convolutional image-text embeddings with instance loss", ACM TOMM 2020.

**Decided**: rows of stage II all start from stage I with the instance loss alone, as the paper's training does. On a
set of other size Table 5's 3,000 and 10,000 classes become the same shares of the training pictures (the paper: of
113,287).
"""

from limner.recipes.ablation_table import Row, Table, recalls

NOT_CLASSIFIED = tuple(f"stages.0.losses.{name}=0" for name in ("visual", "textual", "joint"))
_INSTANCE = ("stages.0.losses.ranking=0", "stages.0.losses.joint=0")
_CLASSIFIED = ("stages.1.losses.visual=1", "stages.1.losses.textual=1")
_RANKING = tuple(
    f"stages.0.losses.{name}={{{name}}}" for name in ("ranking", "margin", "negatives", "candidates")
)

DUAL_PATH_TABLES: dict[str, Table] = {
    "dual-path-table-4": Table(
        "Dual-path, Table 4: ranking loss and instance loss",
        "Flickr30k validation, ResNet-50",
        (
            Row(
                "ranking-1",
                "only ranking loss",
                "I",
                recalls(6.1, 27.3, 4.9, 27.8),
                (*_RANKING, *NOT_CLASSIFIED),
            ),
            Row("instance-1", "only instance loss", "I", recalls(39.9, 79.1, 28.2, 67.9), _INSTANCE),
            Row("both-1", "instance loss + ranking loss", "I", recalls(37.6, 75.1, 24.1, 65.6), _RANKING),
            Row(
                "instance-2",
                "only instance loss",
                "II",
                recalls(50.5, 86.0, 34.9, 75.7),
                ("stages.1.losses.ranking=0", *_CLASSIFIED),
                "instance-1",
            ),
            Row(
                "ranking-2",
                "only ranking loss",
                "II",
                recalls(47.5, 85.4, 29.0, 68.7),
                ("stages.1.losses.visual=0", "stages.1.losses.textual=0", "stages.1.losses.joint=0"),
                "instance-1",
            ),
            Row("both-2", "full model", "II", recalls(55.4, 89.3, 39.7, 80.8), _CLASSIFIED, "instance-1"),
        ),
    ),
    "dual-path-table-5": Table(
        "Dual-path, Table 5: k-means classes against instances",
        "MSCOCO, 3,000 and 10,000 of 113,287 groups, ResNet-50",
        (
            Row("few", "{few} categories", "I", recalls(38.0, None, 26.1, None), ("classes={few}",)),
            Row("many", "{many} categories", "I", recalls(44.7, None, 31.3, None), ("classes={many}",)),
            Row("instance", "each group a class", "I", recalls(52.2, None, 37.2, None), ("classes=null",)),
        ),
    ),
    "dual-path-table-6": Table(
        "Dual-path, Table 6: the word table's start",
        "Flickr30k validation, ResNet-50, word2vec",
        (
            Row("random", "random", "I", recalls(38.0, 78.7, 26.6, 66.6), ("vocabulary.vectors=random",)),
            Row(
                "vectors",
                "word vectors",
                "I",
                recalls(39.9, 79.1, 28.2, 67.9),
                ("vocabulary.vectors={vectors}",),
            ),
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
                ("stages.0.position_shift=false",),
            ),
            Row(
                "shift",
                "position shift",
                "I",
                recalls(39.9, 79.1, 28.2, 67.9),
                ("stages.0.position_shift=true",),
            ),
        ),
    ),
    "dual-path-table-8": Table(
        "Dual-path, Table 8: one instance loss on the sum",
        "Flickr30k, ResNet-50; the row of two losses is Table 4's",
        (
            Row(
                "sum",
                "one loss on f_img + f_text",
                "I",
                recalls(0.3, 1.7, 0.1, 1.4),
                (
                    "stages.0.losses.joint=1",
                    "stages.0.losses.visual=0",
                    "stages.0.losses.textual=0",
                    "stages.0.losses.ranking=0",
                ),
            ),
            Row("two", "a loss on each", "I", recalls(39.9, 79.1, 28.2, 67.9), _INSTANCE),
        ),
    ),
}

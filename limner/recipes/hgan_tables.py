"""Tables 2 to 5 and Figure 5 of Zheng et al., "Hierarchical Gumbel Attention Network", MM 2020.

Rows without BERT have a table of word vectors in its place, and nothing of BERT to hold fixed. Rows with it have the
recipe's BERT, or, where the recipe has none, one that starts at random. Figure 5 has its best point in numbers only;
the others are our own choice of points on both of its axes.
"""

from limner.recipes.ablation_table import Row, Table, recalls

_WITHOUT_BERT = ("model.text.bert=null", "vocabulary.vectors={vectors}", "stages.0.frozen={frozen}")
_BERT = ("model.text.bert={bert}", "vocabulary.vectors=random")
_SENTENCE = ("model.levels=[]", "stages.0.losses.word=0", "stages.0.losses.phrase=0")
_WORD = ('model.levels=["word"]', "stages.0.losses.phrase=0")
_SET = "CUHK-PEDES test, ResNet-50 and BERT"
_BEST = (59.0, 79.5, 86.6)


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
        (
            "model.regions.map_size=[16, 8]",
            f"model.regions.kernel=[{rows}, {columns}]",
            f"model.regions.stride=[{down}, {across}]",
        ),
    )


def _selected(of_items: int, of_regions: int) -> Row:
    return Row(
        f"{of_items}-{of_regions}",
        f"k1 = {of_items}, k2 = {of_regions}",
        "I",
        _texts(*_BEST) if (of_items, of_regions) == (4, 2) else {},
        (f"model.local.k_items={of_items}", f"model.local.k_regions={of_regions}"),
    )


HGAN_TABLES: dict[str, Table] = {
    "hgan-table-2": Table(
        "HGAN, Table 2: hidden layers of BERT, sentence level alone",
        _SET,
        tuple(
            Row(key, label, "I", _texts(*figures), (*_SENTENCE, *_BERT, f"model.text.bert.hidden={key}"))
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
                (*_SENTENCE, *_WITHOUT_BERT, "stages.0.losses.pair=0"),
            ),
            Row(
                "pair",
                "L_pair",
                "I",
                recalls(None, None, 47.1, 79.8),
                (*_SENTENCE, *_WITHOUT_BERT, "stages.0.losses.visual=0", "stages.0.losses.textual=0"),
            ),
            Row("both", "L_ide + L_pair", "I", recalls(None, None, 51.8, 82.5), (*_SENTENCE, *_WITHOUT_BERT)),
            Row("bert", "… with BERT", "I", recalls(None, None, 55.2, 84.9), (*_SENTENCE, *_BERT)),
            Row("word", "… and words", "I", recalls(None, None, 58.3, 85.7), (*_WORD, *_BERT)),
            Row("phrase", "… and phrases (HGAN)", "I", recalls(None, None, 59.0, 86.6), _BERT),
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
            Row("soft", "w/o Gumbel (soft)", "I", _texts(56.1, 78.1, 85.5), ("model.local.attention=soft",)),
            Row(
                "max",
                "w Max Gumbel",
                "I",
                _texts(57.6, 78.5, 86.0),
                ("model.local.k_items=1", "model.local.k_regions=1"),
            ),
            Row("top-k", "HGAN", "I", _texts(*_BEST)),
        ),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
    "hgan-figure-5": Table(
        "HGAN, Figure 5: how many words and regions are selected",
        _SET,
        tuple(_selected(*point) for point in ((1, 2), (2, 2), (4, 1), (4, 2), (4, 4), (6, 2), (8, 2))),
        recipe="hgan-cuhk-pedes",
        system="hgan",
    ),
}
"""Its tables by the name that `limner ablate` takes."""

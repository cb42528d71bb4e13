"""Rank lists: for each query the first items found, true matches framed green and wrong ones red.

Source: dual-path TOMM 2020, Figures 9 and 10. (HGAN, MM 2020, Figure 3, frames the true ones red.)
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from limner.data.images import open_rgb
from limner.data.records import Record
from limner.errors import DataError, SettingsError
from limner.figures.style import FAINT, GREEN, INK, RED, panels, styled
from limner.inference.evaluate_run import reranking_of
from limner.inference.trained import TrainedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE = 200
"""Pixels of the shorter side that pictures are decoded at."""
_TALL = 1.3
"""Inches of a row of pictures."""
_LETTERS = 96
"""Letters of a sentence that is shown."""


@dataclass(frozen=True)
class RankList:
    """A query, text or picture, and what was found for it, best first: pictures or texts, with their truth."""

    query: str | Path
    found: tuple[tuple[str | Path, bool], ...]


def rank_lists(
    run: TrainedModel, records: Sequence[Record], *, to_text: bool, queries: int, first: int, seed: int = 0
) -> list[RankList]:
    """Queries drawn at random from a split, and their first items in the whole split.

    `to_text` asks sentences for pictures, else pictures for sentences. A run with a reranker re-ranks. Raises
    `SettingsError` for no queries or items, `DataError` for a split without sentences, `ImageError`.
    """
    if queries < 1 or first < 1:
        raise SettingsError(f"expected at least one query and one item of each, got {queries} and {first}")
    sentences = [(sentence, record.group) for record in records for sentence in record.sentences]
    if not sentences:
        raise DataError("the pictures of this split have no sentence")
    pictures = [(record.image, record.group) for record in records]
    images = run.encode_images([path for path, _ in pictures])
    # Unchecked: a split's sentence without a known word is a gallery item like any other.
    texts = run.encode_texts([sentence for sentence, _ in sentences], check=False)
    query_items, gallery = (pictures, sentences) if to_text else (sentences, pictures)
    rows, columns = (images, texts) if to_text else (texts, images)
    drawn = np.random.default_rng(seed).choice(
        len(query_items), size=min(queries, len(query_items)), replace=False
    )
    # In the split's order, so that a row is found again in the data.
    drawn.sort()
    # Only the rows that are drawn: all queries would be a matrix of queries × gallery.
    scores = torch.from_numpy(rows[drawn] @ columns.T)
    # The shown lists are what a search would give, so a reranker takes part as it does there.
    if run.rerank != 0:
        names = [path for path, _ in pictures], [text for text, _ in sentences]
        reranking = reranking_of(run, *names, (images, texts), run.rerank)
        reranking.rescore(to_text, drawn, np.arange(len(gallery)), scores)
    lists = []
    for query, of_query in zip(drawn.tolist(), scores.numpy(), strict=True):
        # Ties in the order of the split: this is a picture, and no measure for which they go against the model.
        order = np.argsort(-of_query, kind="stable")[:first]
        found = tuple((gallery[item][0], gallery[item][1] == query_items[query][1]) for item in order)
        lists.append(RankList(query_items[query][0], found))
    return lists


@styled
def rank_list_figure(lists: Sequence[RankList]) -> "Figure":
    """A row a query: the query at the left, what was found beside it. Raises `ImageError`."""
    of_text = not isinstance(lists[0].found[0][0], Path)
    # All sentences stand in one cell: panels of text would each need a width of their own.
    columns = 2 if of_text else 1 + max(len(row.found) for row in lists)
    if of_text:
        tall = max(_TALL, 0.25 * max(len(row.found) for row in lists))
        figure, drawn = panels(2, len(lists), width=3.6, height=tall, grid=False, shares=[1.2, 6.0])
    else:
        across = _TALL * _widest(lists)
        shares = [max(across, 1.2), *([across] * (columns - 1))]
        figure, drawn = panels(
            columns, len(lists), width=sum(shares) / columns + 0.05, height=_TALL, grid=False, shares=shares
        )
    for number, row in enumerate(lists):
        cells = drawn[number * columns : (number + 1) * columns]
        for axes in cells:
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_visible(False)
        _query(cells[0], row.query)
        if of_text:
            _sentences(cells[1], row.found)
            continue
        for axes, (item, true) in zip(cells[1:], row.found, strict=False):
            assert isinstance(item, Path)
            _picture(axes, item, GREEN if true else RED)
    return figure


def _widest(lists: Sequence[RankList]) -> float:
    """Width by height of the widest picture, at most 1.5."""
    # Decoded, since the header's size is that before the EXIF turn; an eighth of a JPEG is quick.
    sizes = [
        open_rgb(item, short_side=1).size for row in lists for item, _ in row.found if isinstance(item, Path)
    ]
    # One panorama would push the other columns off the page.
    return min(1.5, max(width / height for width, height in sizes))


def _query(axes: "Axes", query: str | Path) -> None:
    if isinstance(query, Path):
        _picture(axes, query, FAINT)
    else:
        text = textwrap.fill(" ".join(query.split()), 22, max_lines=7)
        axes.text(0, 0.5, text, va="center", ha="left", fontsize=6.5, color=INK, transform=axes.transAxes)


def _picture(axes: "Axes", path: Path, colour: str) -> None:
    axes.imshow(np.asarray(open_rgb(path, short_side=_SIDE, shown=True)), interpolation="bilinear")
    for spine in axes.spines.values():
        # `rank_list_figure` has switched them off for cells that stay empty.
        spine.set_visible(True)
        spine.set_color(colour)
        spine.set_linewidth(2.4)


def _sentences(axes: "Axes", found: Sequence[tuple[str | Path, bool]]) -> None:
    for place, (item, true) in enumerate(found):
        text = textwrap.shorten(str(item), _LETTERS, placeholder=" …")
        where = 1 - (place + 0.5) / len(found)
        axes.text(
            0, where, f"{place + 1}  {text}", va="center", fontsize=7.5, color=GREEN if true else RED,
            transform=axes.transAxes,
        )  # fmt: skip

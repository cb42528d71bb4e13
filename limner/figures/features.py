"""What training made of the features: correlations between pictures, and maps of two groups, before and after.

"Before" are the backbone's pooled features for pictures (of the ImageNet network where the stage kept it frozen), and
the mean of the word vectors for sentences; "after" are the embeddings.

Sources: dual-path TOMM 2020, Figure 5 (Pearson correlation of 100 pictures before and after stage I); MNiL (MM 2017),
Figure 5 (t-SNE of two categories).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from limner.data.records import Record
from limner.errors import DataError, SettingsError
from limner.figures.style import LINES, panels, styled
from limner.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "os^Dv*"


@dataclass(frozen=True, eq=False)
class BeforeAndAfter:
    """Features of the same items before and after training."""

    before: Float[np.ndarray, "items width"]
    after: Float[np.ndarray, "items dim"]


def picture_features(run: Run, records: Sequence[Record]) -> BeforeAndAfter:
    """Pooled backbone features and embeddings of some pictures. Raises `ImageError`."""
    before, after = [], []
    batch = run.encoding.batch
    for start in range(0, len(records), batch):
        pixels = np.stack([run.prepare_image(record.image) for record in records[start : start + batch]])
        before.append(run.encoding.pool(pixels).float().cpu().numpy())
        after.append(run.encode_pixels(pixels))
    return BeforeAndAfter(np.concatenate(before), np.concatenate(after))


def sentence_features(run: Run, sentences: Sequence[str]) -> BeforeAndAfter:
    """Means of word vectors and embeddings of some sentences."""
    table = run.model.text.table.weight.detach().float().cpu().numpy()
    rows = [run.vocabulary.numbers(sentence) for sentence in sentences]
    means = [table[numbers].mean(0) if numbers else np.zeros(table.shape[1], np.float32) for numbers in rows]
    return BeforeAndAfter(np.stack(means), run.encode_texts(sentences))


@styled
def correlation_figure(features: BeforeAndAfter) -> "Figure":
    """Both matrices of Pearson's correlation between items, with the mean of what is off the diagonal.

    Raises `DataError` for fewer than two items.
    """
    if len(features.before) < 2:
        raise DataError("a correlation is between two pictures at least")
    figure, drawn = panels(2, width=3.2, height=3.0, grid=False)
    shown = None
    for axes, rows, title in zip(drawn, (features.before, features.after), ("before", "after"), strict=True):
        matrix = np.corrcoef(rows)
        apart = matrix[~np.eye(len(matrix), dtype=bool)].mean()
        shown = axes.imshow(matrix, cmap="cividis", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(f"{title}   mean {apart:.3f}", loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
    assert shown is not None
    figure.colorbar(shown, ax=drawn, shrink=0.8, label="Pearson correlation")
    return figure


@styled
def map_figure(
    pictures: BeforeAndAfter,
    sentences: BeforeAndAfter,
    picture_groups: Sequence[str],
    sentence_groups: Sequence[str],
    *,
    seed: int = 0,
) -> "Figure":
    """t-SNE in two dimensions: pictures above, sentences below, before at the left, after at the right.

    A colour and a marker for each group. Raises `SettingsError` where scikit-learn is not installed, `DataError` for
    fewer than four items of a kind.
    """
    figure, drawn = panels(2, 2, width=3.0, height=2.8, grid=False)
    cases = [
        (rows, groups, f"{kind}, {when}")
        for kind, features, groups in (
            ("pictures", pictures, picture_groups),
            ("sentences", sentences, sentence_groups),
        )
        for when, rows in (("before", features.before), ("after", features.after))
    ]
    names = list(dict.fromkeys([*picture_groups, *sentence_groups]))
    for axes, (rows, groups, title) in zip(drawn, cases, strict=True):
        points = _two_dimensions(rows, seed)
        for name, colour, marker in zip(names, LINES * len(names), _MARKERS * len(names), strict=False):
            own = points[np.array(groups) == name]
            axes.scatter(own[:, 0], own[:, 1], s=10, color=colour, marker=marker, label=name, linewidths=0)
        axes.set_title(title, loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
    drawn[0].legend(fontsize=7.5)
    return figure


def _two_dimensions(rows: Float[np.ndarray, "items width"], seed: int) -> Float[np.ndarray, "items 2"]:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise SettingsError("this figure needs scikit-learn: pip install 'limner[figures]'") from None
    if len(rows) < 4:
        raise DataError(f"t-SNE places four items at least, here are {len(rows)}")
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    perplexity = min(30.0, (len(rows) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(unit), dtype=np.float32)

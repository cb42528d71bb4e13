"""Features below and above the projections: correlations between pictures, and maps of some groups.

At one side stand the backbone's pooled features of pictures, and of sentences an LSTM's features or else the means of
the word vectors; at the other the embeddings, all of one checkpoint. Where its stage kept the backbone frozen, its
features are those from before the training.

Sources: dual-path TOMM 2020, Figure 5 (Pearson correlation of 100 pictures by the ImageNet network and after stage I);
MNiL (MM 2017), Figure 5 (t-SNE of two categories, of intermediate features and of the embeddings).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from limner.data.records import Record
from limner.data.token_rows import lay_out
from limner.errors import DataError, SettingsError, install_hint
from limner.figures.style import LINES, panels, styled
from limner.inference.trained import TrainedModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNCUT = 1 << 20
"""More tokens than any sentence has: sentences are not padded to it."""

_MARKERS = "os^Dv*P"  # one more than there are colours, so that no pair of both comes twice in 42 groups


@dataclass(frozen=True, eq=False)
class TwoFeatures:
    """Features of the same items: what enters the head (or the text encoder), and the embeddings."""

    entering: Float[np.ndarray, "items width"]
    embedded: Float[np.ndarray, "items dim"]


def picture_features(run: TrainedModel, records: Sequence[Record]) -> TwoFeatures:
    """Pooled backbone features and embeddings of some pictures. Raises `ImageError`."""
    entering, embedded = [], []
    batch = run.encoding.batch
    for start in range(0, len(records), batch):
        pixels = np.stack([run.prepare_image(record.image) for record in records[start : start + batch]])
        # numpy has no bf16, in which a network may compute.
        entering.append(run.encoding.backbone.pool(pixels).float().cpu().numpy())
        embedded.append(run.encode_pixels(pixels))
    return TwoFeatures(np.concatenate(entering), np.concatenate(embedded))


def sentence_features(run: TrainedModel, sentences: Sequence[str]) -> TwoFeatures:
    """Features below the projection, and embeddings, of sentences (`TextEncoder.input_features`)."""
    # Whole sentences, with what a row of the network would cut: word vectors are not the network's.
    read = run.tokenizer.tokenize(sentences, _UNCUT)
    longest = max((len(sentence.token_ids) for sentence in read), default=1)
    # As wide as the longest sentence, at least 1: a row without columns is no input.
    token_ids = torch.from_numpy(lay_out([sentence.token_ids for sentence in read], max(1, longest)))
    with torch.inference_mode():
        blocks = [
            run.model.text.input_features(block.to(run.encoding.device)).float().cpu()
            # In blocks: the vectors of all words of a split at once would take gigabytes.
            for block in torch.split(token_ids, 256)
        ]
    # Unchecked: a split may hold a sentence without a known word, and the figure shows the split.
    return TwoFeatures(torch.cat(blocks).numpy(), run.encode_texts(sentences, check=False))


def mean_correlation(rows: Float[np.ndarray, "items width"]) -> float:
    """Mean of Pearson's correlation between two different items. Raises `DataError` for fewer than two."""
    # Nothing lies off the diagonal of one, and a mean of nothing is NaN.
    if len(rows) < 2:
        raise DataError("a correlation is between two pictures at least")
    # Without the diagonal, whose ones would lift the mean of a small set.
    return float(np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)].mean())


@styled
def correlation_figure(features: TwoFeatures) -> "Figure":
    """Both matrices of Pearson's correlation between items, with the mean of what is off the diagonal.

    Raises `DataError` for fewer than two items.
    """
    means = [mean_correlation(rows) for rows in (features.entering, features.embedded)]
    figure, drawn = panels(2, width=3.2, height=3.0, grid=False)
    drawing = None
    for axes, rows, title, apart in zip(
        drawn, (features.entering, features.embedded), ("backbone", "embedding"), means, strict=True
    ):
        matrix = np.corrcoef(rows)
        # From −1 to 1 in both panels: white is no correlation, and the panels compare.
        drawing = axes.imshow(matrix, cmap="PuOr_r", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(f"{title}   mean {apart:.3f}", loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
    assert drawing is not None
    figure.colorbar(drawing, ax=drawn, shrink=0.8, label="Pearson correlation")
    return figure


@styled
def map_figure(
    pictures: TwoFeatures,
    sentences: TwoFeatures,
    picture_groups: Sequence[str],
    sentence_groups: Sequence[str],
    *,
    seed: int = 0,
) -> "Figure":
    """t-SNE in two dimensions: pictures above, sentences below, the embeddings at the right.

    A colour and a marker for each group. Raises `SettingsError` where scikit-learn is not installed, `DataError` for
    fewer than four items of a kind, and items that are all the same.
    """
    figure, drawn = panels(2, 2, width=3.0, height=2.8, grid=False)
    cases = [
        (pictures.entering, picture_groups, "pictures, backbone"),
        (pictures.embedded, picture_groups, "pictures, embedding"),
        (sentences.entering, sentence_groups, "sentences, words"),
        (sentences.embedded, sentence_groups, "sentences, embedding"),
    ]
    names = list(dict.fromkeys([*picture_groups, *sentence_groups]))
    for axes, (rows, groups, title) in zip(drawn, cases, strict=True):
        points = _two_dimensions(rows, seed)
        for name, colour, marker in zip(names, LINES * len(names), _MARKERS * len(names), strict=False):
            members = points[np.array(groups) == name]
            axes.scatter(
                members[:, 0],
                members[:, 1],
                s=10,
                color=colour,
                marker=marker,
                # The blank, because matplotlib leaves names that begin with an underscore out of a legend.
                label=f" {name}",
                linewidths=0,
            )
        axes.set_title(title, loc="left")
        axes.set_xticks([])
        axes.set_yticks([])
    handles, labels = drawn[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _two_dimensions(rows: Float[np.ndarray, "items width"], seed: int) -> Float[np.ndarray, "items 2"]:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise SettingsError(f"this figure needs scikit-learn: {install_hint('figures')}") from None
    if len(rows) < 4:
        raise DataError(f"t-SNE places four items at least, here are {len(rows)}")
    # PCA's start is divided by its own deviation, which is 0 here.
    if not np.ptp(rows, axis=0).any():
        raise DataError("t-SNE cannot place items that are all the same")
    # t-SNE goes by Euclidean distance; of unit rows that has the order of cosines, by which search ranks.
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    # scikit-learn looks at three times as many neighbours as the perplexity; a small set has fewer.
    perplexity = min(30.0, (len(rows) - 1) / 3)
    # PCA's start keeps apart what is far apart; a random one places clusters anywhere.
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(unit), dtype=np.float32)

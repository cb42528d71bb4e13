"""How near an export is to its run, how large, and how fast: what stands in `export-report.json`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from pydantic import Field

from limner.documented import Result
from limner.errors import SettingsError
from limner.inference.trained import TrainedModel
from limner.settings import Settings
from limner.types import Reranker

REPORT_FILE = "export-report.json"

TOGETHER = 16
"""Rows of a batch whose time is taken."""

RERANKED = 20
"""Items of a query that are re-ranked at most: a run that re-ranks all would take hours of a split."""

_TIMES = 5
"""Times that a call is timed; the median is reported."""


@runtime_checkable
class Exported(Protocol):
    """An export as it is used: `ExportedModel`, or a reader of another program's folder."""

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Embeddings of pictures that the run has prepared."""

    def encode_texts(self, sentences: Sequence[str], *, check: bool = True) -> Float[np.ndarray, "batch dim"]:
        """Embeddings of sentences."""


class TowerReport(Settings):
    """One tower of an export beside the run's own."""

    rows: int = Field(ge=1)
    """Pictures or sentences that were compared."""
    lowest_cosine: float
    """Of the export's embedding and that of the run in fp32, over these rows."""
    mean_cosine: float
    """Their mean."""
    one_ms: float
    """Milliseconds of one row, the median of five, on this machine; tokenizing is within, decoding is not."""
    torch_one_ms: float
    """Milliseconds of one row by the run in torch, fp32."""
    batch_ms: float
    """Milliseconds of a batch of 16."""
    torch_batch_ms: float
    """Milliseconds of a batch of 16 by the run in torch, fp32."""


class RerankerReport(Settings):
    """The reranker of an export beside the run's own."""

    pairs: int = Field(ge=1)
    """Pairs of a picture and a sentence that were scored by both, from the run's regions."""
    largest_difference: float
    """Of both logits of a pair."""
    lowest_cosine: float | None
    """Of the regions of a picture and those of the run in fp32; None in int8, which reads no pictures for it."""
    mean_cosine: float | None
    """Their mean."""
    one_ms: float
    """Milliseconds of one sentence with 20 pictures, as `TowerReport.one_ms`."""
    torch_one_ms: float
    """Milliseconds of one sentence with 20 pictures by the run in torch, fp32."""
    first: int = Field(ge=1)
    """Pictures, or sentences, that were re-ranked for the figures below: as many as the run does, and at most 20."""
    recall: dict[str, dict[str, float]] | None = None
    """R@1, R@5 and R@10 in percent, re-ranked by the export; None without a dataset."""
    torch_recall: dict[str, dict[str, float]] | None = None
    """R@1, R@5 and R@10 in percent, re-ranked by the run in torch, fp32."""


class ExportReport(Settings):
    """The figures that `limner export` measured."""

    format: str
    """The format."""
    precision: str
    """fp32, bf16 or int8."""
    fingerprint: str
    """Digest of the run's model."""
    bytes: int = Field(ge=0)
    """Size of the folder."""
    image: TowerReport
    """The image tower."""
    text: TowerReport
    """The text tower."""
    reranker: RerankerReport | None = None
    """The reranker; None where the run or the format has none."""
    split: str | None = None
    """The split whose pictures and sentences were compared; None = drawn noise, and words of the vocabulary."""
    recall: dict[str, dict[str, float]] | None = None
    """R@1, R@5 and R@10 in percent of the export on that split, by direction; None without a dataset."""
    torch_recall: dict[str, dict[str, float]] | None = None
    """R@1, R@5 and R@10 in percent of the run in torch, fp32."""


class ExportedRun(Result):
    """The result of `limner export`."""

    folder: Path
    """The folder that was written."""
    format: str
    """Its format."""
    report: ExportReport | None
    """The content of its `export-report.json`; None for sentence-transformers, which holds the run itself."""


def compare(
    model: TrainedModel,
    exported: Exported,
    pixels: UInt8[np.ndarray, "images height width 3"],
    sentences: Sequence[str],
) -> tuple[TowerReport, TowerReport]:
    """Measure both towers against a run that was loaded in fp32."""
    return (
        _tower(exported.encode_pixels, model.encode_pixels, pixels),
        _tower(
            lambda rows: exported.encode_texts(rows, check=False),
            lambda rows: model.encode_texts(rows, check=False),
            list(sentences),
        ),
    )


def compare_rerankers(
    exported: Reranker,
    own: Reranker,
    pixels: UInt8[np.ndarray, "images height width 3"],
    sentences: Sequence[str],
) -> RerankerReport:
    """Measure a reranker against that of a run that was loaded in fp32, without R@K."""
    regions = own.region_features(pixels)
    cosines = None
    try:
        found, wanted = (
            rows.reshape(len(rows), -1).astype(np.float64)
            for rows in (exported.region_features(pixels), regions)
        )
        # a picture without any feature has no direction
        lengths = np.maximum(np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1), 1e-12)
        cosines = (found * wanted).sum(axis=1) / lengths
    except SettingsError:
        # in int8
        pass
    differences = [
        float(np.abs(exported.rerank(one, regions).logits - own.rerank(one, regions).logits).max())
        for one in sentences
    ]
    few, one = regions[:RERANKED], sentences[0]
    return RerankerReport(
        pairs=len(regions) * len(sentences),
        largest_difference=max(differences),
        lowest_cosine=None if cosines is None else float(cosines.min()),
        mean_cosine=None if cosines is None else float(cosines.mean()),
        one_ms=_milliseconds(lambda: exported.rerank(one, few)),
        torch_one_ms=_milliseconds(lambda: own.rerank(one, few)),
        first=RERANKED,
    )


def _tower(
    exported: Callable[[Any], np.ndarray],
    own: Callable[[Any], np.ndarray],
    rows: Any,
) -> TowerReport:
    found = np.concatenate([exported(rows[at : at + TOGETHER]) for at in range(0, len(rows), TOGETHER)])
    wanted = np.concatenate([own(rows[at : at + TOGETHER]) for at in range(0, len(rows), TOGETHER)])
    cosines = (found * wanted).sum(axis=1) / (np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1))
    one, together = rows[:1], rows[:TOGETHER]
    return TowerReport(
        rows=len(rows),
        lowest_cosine=float(cosines.min()),
        mean_cosine=float(cosines.mean()),
        one_ms=_milliseconds(lambda: exported(one)),
        torch_one_ms=_milliseconds(lambda: own(one)),
        batch_ms=_milliseconds(lambda: exported(together)),
        torch_batch_ms=_milliseconds(lambda: own(together)),
    )


def _milliseconds(call: Callable[[], object]) -> float:
    # the first call allocates and plans
    call()
    taken = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - start))
    return float(np.median(taken))


def drawn_pixels(
    model: TrainedModel, count: int, seed: int = 0
) -> UInt8[np.ndarray, "images height width 3"]:
    """Pictures of noise, coarse and fine, for a comparison without a dataset."""
    height, width = model.images.crop
    random = np.random.default_rng(seed)
    fine = random.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    coarse = random.integers(0, 256, (count, -(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    blocks = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :height, :width]
    # half of each: a network of photographs sees little in noise alone
    return np.where(np.arange(count)[:, None, None, None] % 2 == 0, blocks, fine)


def drawn_sentences(model: TrainedModel, count: int, seed: int = 0) -> list[str]:
    """Sentences of words that the model knows, of one to as many words as it reads and a few more."""
    entries = [entry.strip("▁Ġ#") for entry in model.tokenizer.entries]
    known = [entry for entry in entries if entry.isalpha()] or ["a"]
    random = np.random.default_rng(seed)
    most = model.model.settings.text.words + 3
    return [" ".join(random.choice(known, int(random.integers(1, most)))) for _ in range(count)]


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

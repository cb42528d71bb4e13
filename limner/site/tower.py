"""The smallest text tower with which a site finds what the server finds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from limner.data.token_rows import longest
from limner.export.onnx_files import require_onnx
from limner.export.run import write_tower
from limner.export.sessions import open_tower, require_onnxruntime
from limner.export.small_weights import write_small_weights
from limner.inference.trained import TrainedModel
from limner.site.vectors import SmallVectors

TowerType = Literal["int8", "int8-tables", "fp16", "fp32"]
TOWERS: tuple[TowerType, ...] = get_args(TowerType)
"""Kinds of text towers, smallest first. `int8-tables` has word tables in int8 and all else in fp16."""

ENOUGH = 0.95
"""Share of sentences whose first ten pictures must be the server's, in the same order."""

FIRST = 10
"""The pictures that are compared."""


@dataclass(frozen=True)
class Agreement:
    """How many sentences found the same first ten pictures as the server, in the same order, by each kind of tower."""

    sentences: int
    same: dict[str, float]


def write_text_tower(
    model: TrainedModel,
    path: Path,
    matrix: Float[np.ndarray, "rows dim"],
    vectors: SmallVectors,
    sentences: Sequence[str],
    wanted: TowerType | None,
    progress: Callable[[str], None],
) -> tuple[TowerType, Agreement]:
    """Write the smallest tower that agrees with the model on these sentences, or the wanted one; return its kind.

    Raises `SettingsError` if what writes ONNX or runs it is not installed.
    """
    require_onnx()
    require_onnxruntime()
    progress("text tower")
    whole = path.with_name("whole.onnx")
    write_tower(model, "text", whole)
    queries = model.encode_queries(sentences)
    count = min(FIRST, len(matrix))
    right = [np.argsort(-(matrix @ query), kind="stable")[:count] for query in queries]
    same: dict[str, float] = {}
    chosen: TowerType = wanted or "fp32"
    try:
        for kind in TOWERS if wanted is None else (wanted,):
            progress(f"text tower in {kind}")
            _write(whole, path, kind)
            found = vectors.best(_encoded(model, path, sentences), count)
            agree = [bool((one == other).all()) for one, other in zip(found, right, strict=True)]
            same[kind] = float(np.mean(agree))
            if same[kind] >= ENOUGH:
                chosen = kind
                break
    finally:
        for old in path.parent.glob("whole.onnx*"):
            old.unlink()
    return chosen, Agreement(len(sentences), same)


def _write(whole: Path, path: Path, kind: TowerType) -> None:
    if kind == "fp32":
        import onnx

        # of one file, whatever its size: a browser has no folder to look for a second one in
        onnx.save(onnx.load(whole), path)
        return
    write_small_weights(
        whole,
        path,
        tables="fp16" if kind == "fp16" else "int8",
        others="int8" if kind == "int8" else "fp16",
    )


def _encoded(model: TrainedModel, path: Path, sentences: Sequence[str]) -> Float[np.ndarray, "sentences dim"]:
    """Embeddings by a written tower, one sentence at a time as the page asks."""
    run = open_tower(path, "onnx")
    words = model.model.settings.text.words
    token_ids = model.tokenizer.encode(sentences, words).token_ids
    any_length = model.model.text.any_length
    rows = [run(row[None, : max(2, longest(row[None])) if any_length else words]) for row in token_ids]
    return np.concatenate(rows)

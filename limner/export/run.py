"""Exports a run: its two towers, reranker, tokenizer and preprocessing in a folder that other programs read."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from limner.durable import expect_new, sealed, whole_folder
from limner.errors import SettingsError
from limner.export.exported import FORMAT, RERANK_FILES, TOKENIZER_FILE
from limner.export.immich import write_immich
from limner.export.int8 import CalibrationRows, to_int8
from limner.export.onnx_files import (
    Example,
    put_weights_beside,
    require_onnx,
    write_graph,
    write_onnx,
    write_openvino,
)
from limner.export.recurrent import with_recorded_lstms
from limner.export.rerank_graphs import RerankGraphs, rerank_graphs
from limner.export.reranker import PARTS, PIXELS
from limner.export.sentence_transformers import write_sentence_transformers
from limner.export.sessions import require_onnxruntime
from limner.export.towers import ImageTower, TextTower
from limner.export.word_tokenizer import require_tokenizers
from limner.inference.calibration_file import FILE as CALIBRATION
from limner.inference.calibration_file import calibration_text, load_calibration
from limner.inference.load import load_model
from limner.inference.openvino_library import require_openvino
from limner.inference.source import EXPORT_FILE
from limner.inference.trained import TrainedModel
from limner.types import PADDING

ExportFormat = Literal["onnx", "openvino", "sentence-transformers", "immich"]

TOKENS = "token_ids"
"""Name of the input of what reads sentences."""

_EXAMPLE = 2
"""Rows that a tower is recorded with."""

Progress = Callable[[str], None]
"""Called with what is done next."""


@dataclass(frozen=True, eq=False)
class _Job:
    """An export that is written into an empty folder."""

    model: TrainedModel
    folder: Path
    format: str
    calibration: CalibrationRows | None
    bf16: bool
    progress: Progress


def export_run(
    model: TrainedModel | str | Path,
    out: str | Path,
    *,
    format: ExportFormat = "onnx",
    calibration: CalibrationRows | None = None,
    bf16: bool = False,
    progress: Progress = lambda _: None,
) -> Path:
    """Write a run's towers to a new folder, which appears whole or not at all: `limner export` as a function.

    `model` is a run folder or a model that was loaded in fp32 on the CPU. With `calibration` the towers are in int8;
    with `bf16`, which OpenVINO alone knows, computed in that. Raises `SettingsError` for a folder that is there, a
    library that is missing, and a format that cannot hold the model.
    """
    folder = Path(out)
    expect_new(folder, "the export")
    if format not in FORMATS:
        raise SettingsError(f"format: expected {', '.join(FORMATS)}, got {format[:40]!r}")
    chosen = FORMATS[format]
    if calibration is not None and not chosen.int8:
        raise SettingsError(f"int8: the format {format} holds the run's own weights; leave out int8")
    if bf16 and (not chosen.bf16 or calibration is not None):
        raise SettingsError(
            "bf16: OpenVINO computes in it, and not beside int8; take format openvino without int8"
        )
    # before minutes of recording
    for require in chosen.needs:
        require()
    if calibration is not None:
        require_onnxruntime()
    run = model if isinstance(model, TrainedModel) else load_model(model, device="cpu", precision="fp32")
    with whole_folder(folder) as partial:
        chosen.write(_Job(run, partial, format, calibration, bf16, progress))
    return folder


def _write_towers(job: _Job) -> None:
    model, folder, calibration = job.model, job.folder, job.calibration
    convert = FORMATS[job.format].convert
    network = model.model
    words = network.settings.text.words
    towers: dict[str, Any] = {}
    for name in ("image", "text"):
        job.progress(f"{name} tower")
        file = folder / f"{name}.onnx"
        write_tower(model, name, file)
        if calibration is not None:
            job.progress(f"{name} tower in int8")
            to_int8(file, PIXELS, calibration.pixels if name == "image" else None)
        towers[name] = {
            **_written(folder, name, convert),
            "input": PIXELS if name == "image" else TOKENS,
        }
    graphs = rerank_graphs(model)
    if graphs is not None:
        for part in PARTS:
            # in int8 an export adds no pictures, and a search reads the regions that a store has
            if calibration is not None and part == "regions":
                continue
            job.progress(f"{part} of the reranker")
            name = f"{RERANK_FILES}{part}"
            write_rerank_part(model, graphs, part, folder / f"{name}.onnx")
            if calibration is not None and part == "sentence":
                to_int8(folder / f"{name}.onnx", TOKENS, None)
            towers[name] = _written(folder, name, convert)
    content = model.tokenizer.content()
    if content is not None:
        (folder / TOKENIZER_FILE).write_bytes(content)
    fitted = load_calibration(model.path, model.fingerprint)
    if fitted is not None:
        (folder / CALIBRATION).write_text(calibration_text(fitted), encoding="utf-8")
    description = {
        "format": FORMAT,
        "format_name": job.format,
        "engine": job.format,
        "fingerprint": model.fingerprint,
        "system": network.settings.system,
        "dim": model.dim,
        "words": words,
        "padding": PADDING,
        "any_length": network.text.any_length,
        "images": model.images.model_dump(mode="json"),
        "tokenizer": model.tokenizer.to_description(),
        "tokenizer_file": content is not None,
        "towers": towers,
        "reranker": None
        if graphs is None
        else {**graphs.told, "any_length": graphs.any_length, "phrases": graphs.phrases},
        "rerank": model.rerank,
        "precision": "bf16" if job.bf16 else "fp32" if calibration is None else "int8",
        "limner": version("limner"),
    }
    (folder / EXPORT_FILE).write_text(sealed(description), encoding="utf-8")


def _written(folder: Path, name: str, convert: Callable[[Path], Path]) -> dict[str, Any]:
    """Convert a part for its engine, and describe its files."""
    file = convert(folder / f"{name}.onnx")
    files = sorted(path.name for path in folder.glob(f"{name}.*"))
    return {"file": file.name, "files": {one: digest(folder / one) for one in files}}


def _to_onnx(file: Path) -> Path:
    put_weights_beside(file)
    return file


def _to_openvino(file: Path) -> Path:
    converted = file.with_suffix(".xml")
    write_openvino(file, converted)
    for old in file.parent.glob(f"{file.name}*"):
        old.unlink()
    return converted


@dataclass(frozen=True)
class _Format:
    """A format of an export.

    - `write`: writes a `_Job`; `needs`: what has to be installed.
    - `convert`: of a tower in ONNX, what its engine reads; `int8` and `bf16`: the towers can be in it.
    """

    write: Callable[[_Job], None]
    needs: Sequence[Callable[[], object]] = (require_onnx,)
    convert: Callable[[Path], Path] = _to_onnx
    int8: bool = True
    bf16: bool = False


FORMATS: Mapping[str, _Format] = {
    "onnx": _Format(_write_towers),
    "openvino": _Format(_write_towers, (require_onnx, require_openvino), _to_openvino, bf16=True),
    "sentence-transformers": _Format(
        lambda job: write_sentence_transformers(job.model, job.folder), (), int8=False
    ),
    "immich": _Format(
        lambda job: write_immich(job.model, job.folder, job.calibration, job.progress),
        (require_onnx, require_tokenizers),
    ),
}
"""By name."""


def write_rerank_part(model: TrainedModel, graphs: RerankGraphs, part: str, path: Path) -> None:
    """Write one of a reranker's three parts as ONNX in fp32."""
    # shorter than a full row, so that a length that is open is not recorded as one that is fixed
    words = model.model.settings.text.words
    if graphs.any_length:
        words = max(words - 1, int(graphs.told.get("least_words", 2)))
    if part == "regions":
        pixels = torch.zeros(_EXAMPLE, *model.images.crop, 3, dtype=torch.uint8)
        write_graph(graphs.regions, {PIXELS: Example(pixels)}, ["regions"], path)
    elif part == "sentence":
        write_graph(
            with_recorded_lstms(graphs.sentence), graphs.sentence_inputs(words), graphs.sentence_outputs, path
        )
    else:
        write_graph(graphs.pairs, graphs.pair_inputs(words), graphs.pair_outputs, path)


def write_tower(model: TrainedModel, name: str, path: Path) -> None:
    """Write the image or the text tower of a model as ONNX in fp32."""
    network = model.model
    if next(network.parameters()).device.type != "cpu":
        raise SettingsError("export: a model is recorded on the CPU; load it there (--cpu)")
    if name == "image":
        tower: nn.Module = ImageTower(network, model.images)
        height, width = model.images.crop
        example = torch.zeros(_EXAMPLE, height, width, 3, dtype=torch.uint8)
        write_onnx(tower, example, PIXELS, path)
        return
    example = torch.full((_EXAMPLE, network.settings.text.words), PADDING, dtype=torch.int64)
    # a word each, so that nothing of the recorded example is empty
    example[:, 0] = 1
    write_onnx(TextTower(network), example, TOKENS, path, any_length=network.text.any_length)


def calibration_rows(model: TrainedModel, images: Sequence[Path]) -> CalibrationRows:
    """Read pictures for int8's scales."""
    return CalibrationRows(np.stack([model.prepare_image(image) for image in images]))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""`limner export`: a run in the formats of other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import counting_each, err, out, say_looks
from limner.cli.contract import command, group
from limner.cli.options import RunFolder, Stage, chosen
from limner.counted import counted
from limner.durable import expect_new, write_text

if TYPE_CHECKING:
    from limner.data.records import Dataset
    from limner.export.int8 import CalibrationRows
    from limner.export.report import Exported, ExportedRun, ExportReport
    from limner.export.run import ExportFormat
    from limner.export.split_report import Recall
    from limner.inference.trained import TrainedModel
    from limner.types import Reranker

app = group("Export.")

_COMPARED = 64
"""Pictures and sentences that both towers are compared on without a dataset."""

_RERANKED = 20
"""Pictures and sentences whose pairs are scored by both rerankers."""

# every activation of all of them is in memory at once: 64 of MobileNetV2 took 8 GB
_CALIBRATED = 32
"""Training pictures by which int8 chooses its scales."""


@command(app, "export", Conflict("--int8", needs="--data", why="its scales are measured on pictures"))
def export_command(
    run: RunFolder,
    out_folder: Annotated[Path, "New folder for the export.", "DIR"],
    form: Annotated[
        str, typer.Option("--format", help="onnx, openvino, sentence-transformers or immich.")
    ] = "onnx",
    int8: Annotated[bool, "Weights, and an image tower's activations, in int8; needs --data."] = False,
    bf16: Annotated[bool, "OpenVINO computes in bf16, fast where the processor has it."] = False,
    data: Annotated[
        str | None,
        "Measure the export on a split of this dataset; its training pictures give int8 its scales.",
        "FORMAT:PATH",
    ] = None,
    split: Annotated[str, "Split of --data to measure on."] = "val",
    stage: Stage = None,
) -> "ExportedRun":
    """Write a run's two towers for ONNX Runtime, OpenVINO, sentence-transformers or immich.

    `limner search` and `limner serve` take an export in onnx or openvino as --run, and then need no torch; it holds the
    run's reranker, too. A report is written beside the towers: how near they are to the run, R@K on a split, size and
    time.
    """
    from limner.data.readers import open_dataset
    from limner.export.report import REPORT_FILE, ExportedRun
    from limner.export.run import FORMATS, export_run
    from limner.export.sessions import openvino_has_bf16
    from limner.inference.load import load_model

    chosen("--format", form, FORMATS)
    # before the model is loaded
    expect_new(out_folder, "the export")
    dataset = None if data is None else open_dataset(data)
    if dataset is not None:
        # before minutes of recording: a misspelt split is told at once
        dataset.split(split)
    model = load_model(run, stage=stage, device="cpu", precision="fp32")
    calibration = _calibration(model, dataset) if int8 and dataset is not None else None
    export_run(
        model,
        out_folder,
        format=cast("ExportFormat", form),
        calibration=calibration,
        bf16=bf16,
        progress=lambda what: err.print(f"writing: {what}"),
    )
    precision = "int8" if int8 else "bf16" if bf16 else "fp32"
    report = _report(model, out_folder, form, precision, dataset, split)
    if report is not None:
        write_text(out_folder / REPORT_FILE, report.model_dump_json(indent=2) + "\n")
        _print(out_folder, report)
        if bf16 and not openvino_has_bf16():
            err.print("note: this processor has no bf16, so that figures and times are of fp32")
    else:
        out.print(f"{out_folder}: written for {form}")
    if form in ("onnx", "openvino"):
        # in int8 it indexes nothing
        index = "" if int8 else f"limner index {out_folder} STORE PICTURES, or "
        out.print(f"next: {index}limner search STORE TEXT --run {out_folder}")
    if form == "immich":
        # immich's database takes the width of an embedding from the model's name
        out.print(f"next: give it the name of an OpenCLIP model of {model.dim} numbers (docs/export.md)")
    return ExportedRun(folder=out_folder, format=form, report=report)


def _calibration(model: "TrainedModel", dataset: "Dataset") -> "CalibrationRows":
    import numpy as np

    from limner.export.run import calibration_rows

    paths = list(dict.fromkeys(record.image for record in dataset.split("train").records))
    # a fixed seed, so that two exports agree
    chosen = np.random.default_rng(0).permutation(len(paths))[:_CALIBRATED]
    return calibration_rows(model, [paths[place] for place in sorted(chosen)])


def _report(
    model: "TrainedModel",
    folder: Path,
    form: str,
    precision: str,
    dataset: "Dataset | None",
    split: str,
) -> "ExportReport | None":
    from limner.export.report import (
        ExportReport,
        compare,
        compare_rerankers,
        drawn_pixels,
        drawn_sentences,
        size_of,
    )
    from limner.export.split_report import OnSplit, first_reranked, measured_on
    from limner.inference.evaluations import note_look

    exported = _opened(folder, form)
    if exported is None:
        return None
    # nothing more is said of it where there is no terminal
    err.print("comparing with the run")
    rerankers = _rerankers(model, exported)
    found: OnSplit | None = None
    if dataset is None:
        pixels, sentences = drawn_pixels(model, _COMPARED), drawn_sentences(model, _COMPARED)
    else:
        with counting_each("pictures") as progress:
            found = measured_on(dataset, split, model, exported, rerankers, progress)
        say_looks(*note_look(model, dataset.split(split).fingerprint, split, "export"), split)
        pixels, sentences = found.pixels, found.sentences
    image, text = compare(model, exported, pixels, sentences)
    reranker = None
    if rerankers is not None:
        reranker = compare_rerankers(*rerankers, pixels[:_RERANKED], sentences[:_RERANKED])
        reranker = reranker.replace(first=first_reranked(model))
        if found is not None and found.reranked is not None:
            reranker = reranker.replace(recall=found.reranked[0], torch_recall=found.reranked[1])
    return ExportReport(
        format=form,
        precision=precision,
        fingerprint=model.fingerprint,
        bytes=size_of(folder),
        image=image,
        text=text,
        reranker=reranker,
        split=None if dataset is None else split,
        recall=found and found.recall[0],
        torch_recall=found and found.recall[1],
    )


def _opened(folder: Path, form: str) -> "Exported | None":
    """The export as it is used; None where that program is not installed."""
    if form in ("onnx", "openvino"):
        from limner.export.exported import load_export

        return load_export(folder)
    if form == "immich":
        from limner.export.immich_reader import ImmichFolder

        return ImmichFolder(folder)
    return None


def _rerankers(model: "TrainedModel", exported: "Exported") -> "tuple[Reranker, Reranker] | None":
    """The export's and the run's, in this order; None without any."""
    other = getattr(exported, "reranker", None)
    return None if other is None else (other, model.expect_reranker())


def _print(folder: Path, report: "ExportReport") -> None:
    out.print(f"{folder}: {report.format}, {report.precision}, {report.bytes / 1e6:.1f} MB")
    for name, tower in (("image", report.image), ("text", report.text)):
        out.print(
            f"  {name:5}  cosine with torch {tower.lowest_cosine:.6f} at least, {tower.mean_cosine:.6f} on average; "
            f"{tower.one_ms:.1f} ms for one and {tower.batch_ms:.1f} for 16, torch {tower.torch_one_ms:.1f} and "
            f"{tower.torch_batch_ms:.1f}"
        )
    _print_recall("", report.recall, report.torch_recall)
    if (reranker := report.reranker) is not None:
        regions = (
            ""
            if reranker.lowest_cosine is None
            else f"regions' cosine with torch {reranker.lowest_cosine:.6f} at least; "
        )
        out.print(
            f"  reranker  {regions}logits of {counted(reranker.pairs, 'pairs')} differ by "
            f"{reranker.largest_difference:.1e} at "
            f"most; {reranker.one_ms:.1f} ms for 20 pictures, torch {reranker.torch_one_ms:.1f}"
        )
        _print_recall(f", first {reranker.first} re-ranked", reranker.recall, reranker.torch_recall)


def _print_recall(how: str, recall: "Recall | None", own: "Recall | None") -> None:
    if recall is None or own is None:
        return
    for direction, values in recall.items():
        right = own[direction]
        listed = ", ".join(f"{name} {values[name]:.1f} (torch {right[name]:.1f})" for name in values)
        out.print(f"  {direction.replace('_', ' ')}{how}: {listed}")

"""`limner bench`: which lies a model believes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import counting, counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import Arithmetic, Cpu, ReportFile, Rerank, Stage, device, writable
from limner.counted import counted, some
from limner.durable import write_text
from limner.errors import DataError, SettingsError

if TYPE_CHECKING:
    from limner.data.minimal_pairs import PairSet
    from limner.evaluation.minimal_pairs import BenchReport, PairReport
    from limner.evaluation.reranking import First

app = group("Bench.")


@command(app, "bench", Conflict(needs="MODEL --write"))
def bench_command(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="Run folder or checkpoint, or embeddings of the set in an .npz file (docs/bench.md)."
        ),
    ] = None,
    write: Annotated[Path | None, "Write pictures and cases to this new folder, for other models."] = None,
    pairs: Annotated[
        Path | None, "Take the set from this folder, written before or your own, instead of drawing it."
    ] = None,
    stage: Stage = None,
    rerank: Rerank = None,
    details: Annotated[bool, "Show what the lies of each kind are about."] = False,
    save: Annotated[
        Path | None,
        "Write the embeddings to this .npz file, which this command reads, too.",
        writable,
    ] = None,
    report_file: ReportFile = None,
    precision: Arithmetic = None,
    cpu: Cpu = False,
) -> "BenchReport":
    """Measure which lies a model believes, on drawn people with true and false sentences."""
    from limner.evaluation.minimal_pairs import BenchReport, render_pairs

    embeddings = model if model is not None and model.suffix == ".npz" else None
    if embeddings is not None and any(option is not None for option in (stage, rerank, save, precision)):
        raise SettingsError(
            "--stage, --rerank, --save and --precision are for a run, and this is a file of embeddings"
        )
    if embeddings is not None and not embeddings.is_file():
        raise DataError(f"{embeddings}: no such file")
    if model is not None and embeddings is None:
        from limner.inference.run_file import checkpoint_path

        checkpoint_path(model, stage)
    if write is not None and write.exists() and (not write.is_dir() or any(write.iterdir())):
        raise DataError(f"--write {write}: is not an empty folder; name a new or empty one")
    how: dict[str, Any] = {"stage": stage, "device": device(cpu), "precision": precision}
    chosen = _pairs(pairs)
    if write is not None:
        chosen.write(write)
        out.print(
            f"{write}: {counted(len(chosen.images), 'pictures')}, "
            f"{counted(len(chosen.sentences), 'sentences')}, {counted(len(chosen.pairs), 'cases')}"
        )
    report = None
    if model is not None:
        report = (
            _of_run(model, chosen, rerank, save, how)
            if embeddings is None
            else _of_embeddings(embeddings, chosen)
        )
        out.print(render_pairs(report, details=details))
        _say_what_is_not_read(report)
        if report_file is not None:
            write_text(report_file, report.to_json())
    return BenchReport(
        name=chosen.name,
        version=chosen.version,
        digest=chosen.digest,
        pictures=len(chosen.images),
        sentences=len(chosen.sentences),
        cases=len(chosen.pairs),
        folder=write,
        measured=report,
    )


def _pairs(folder: Path | None) -> "PairSet":
    from limner.data.minimal_pairs import read_pairs
    from limner.people import LIES_DIGEST, LIES_VERSION, draw_lies

    if folder is not None:
        return read_pairs(folder)
    with counting("people") as progress:
        drawn = draw_lies(progress=progress, workers=os.cpu_count() or 1)
    if drawn.digest != LIES_DIGEST:
        # not refused: figures of two models on this machine can still be compared
        err.print(
            f"this machine draws another set than version {LIES_VERSION} (digest {drawn.digest[:16]}, not "
            f"{LIES_DIGEST[:16]}): other versions of Pillow or NumPy draw other pixels; compare figures of this "
            "digest alone"
        )
    return drawn


def _of_run(
    folder: Path, pairs: "PairSet", rerank: "First | None", save: Path | None, how: dict[str, Any]
) -> "PairReport":
    from limner.evaluation.minimal_pairs import write_embeddings
    from limner.inference.bench_run import bench_run
    from limner.inference.load import load_model

    run = load_model(folder, **how)
    with counting_each("pictures") as progress:
        return bench_run(
            run,
            pairs,
            rerank=rerank,
            progress=progress,
            keep=None if save is None else lambda *rows: write_embeddings(save, pairs, *rows),
        )


def _of_embeddings(file: Path, pairs: "PairSet") -> "PairReport":
    from limner.evaluation.minimal_pairs import bench_embeddings, read_embeddings
    from limner.inference.provenance import versions

    images, sentences = read_embeddings(file, pairs)
    return bench_embeddings(pairs, images, sentences, {"file": file.name, "versions": versions()})


def _say_what_is_not_read(report: "PairReport") -> None:
    if report.unknown_words:
        err.print(
            f"the model does not know, and leaves out, {counted(len(report.unknown_words), 'words')} of the set: "
            + some(report.unknown_words)
        )
    if unread := sum(of.unread or 0 for of in report.kinds.values()):
        err.print(
            f"in {counted(unread, 'cases')} it does not read a word that decides, and cannot see the lie"
        )
    learnt = report.provenance.get("learnt_from") or {}
    if learnt.get("selected_on"):
        err.print(
            f"the run was selected on {counted(learnt['selected_on'], 'pictures', of=learnt['images'])} "
            "here; its epoch was "
            "chosen by them"
        )
    # a run of embeddings says nothing of its training at all
    if "learnt_from" in report.provenance and not learnt.get("whole"):
        err.print(
            "this run does not name all pictures that it has learnt from, so that their content could not be compared"
        )
    if cut := report.provenance.get("sentences_cut"):
        err.print(f"{counted(cut, 'sentences')} lost the end, being longer than the model reads")

"""`limner index`, `limner index-sentences` and `limner reindex`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.cluster import connected_to, workers_for
from limner.cli.console import counting, counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import (
    Arithmetic,
    Batch,
    ClusterAddress,
    Cpu,
    Engine,
    NewStoreFolder,
    NoModel,
    Stage,
    StoreFolder,
    device,
)
from limner.cli.options import engine as chosen_engine
from limner.cli.options import precision as chosen_precision
from limner.cli.schemas import Indexed, SentencesIndexed
from limner.errors import DataError, SettingsError

if TYPE_CHECKING:
    from limner.data.records import Dataset
    from limner.export.exported import ExportedModel
    from limner.inference import TrainedModel
    from limner.search.batch_look import Workers
    from limner.search.sentences import Sentence
    from limner.search.store_files import StoreFiles
    from limner.types import Encoder
    from limner.wire import IndexReport, SentencesReport

app = group("Index.")

_SHOWN = 20
"""Pictures and sentences left out that are named one by one; `--json` has all."""
_BATCH = 256
"""Pictures that are decoded and encoded together."""


@command(app, "index")
def index_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder of the model, an export of it, or hf:ORG/NAME of the hub: a run, or a pair, which is "
            "imported into the store; with --vectors the name of the model that made them.",
        ),
    ],
    store: StoreFolder,
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="Picture files and folders of them; or --data.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT:PATH",
            help="Index a dataset instead: pictures, identities, metadata and sentences (docs/data-formats.md).",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Only this split of the dataset; all if not given.")
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(
            help="Of pictures: CSV or JSONL with a column 'file', optionally 'identity', and any others."
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Index embeddings that another program has computed: .npz with the arrays images and image_names, or "
            "what `limner store export` writes.",
        ),
    ] = None,
    regions: Annotated[
        bool | None,
        typer.Option(
            "--regions/--no-regions",
            help="A new store keeps region features to re-rank from; if not given, where the model re-ranks of itself.",
        ),
    ] = None,
    no_model: NoModel = False,
    batch: Batch = _BATCH,
    stage: Stage = None,
    engine: Engine = "torch",
    precision: Arithmetic = None,
    cpu: Cpu = False,
    cluster: ClusterAddress = None,
) -> Indexed:
    """Add pictures or a dataset to a store.

    Running it again adds only what is new; what cannot be read is skipped and listed. A new store holds the model, in
    STORE/model, unless --no-model is given, and notes its arithmetic, in which it goes on.
    """
    if vectors is not None:
        needless = {
            "pictures": pictures,
            "--data": data,
            "--split": split,
            "--regions or --no-regions": regions is not None,
            "--no-model": no_model,
            "--stage": stage,
            "--batch": batch != _BATCH,
            "--engine": engine != "torch",
            "--precision": precision,
            "--cpu": cpu,
            "--cluster": cluster,
        }
        if given := [name for name, value in needless.items() if value]:
            raise SettingsError(
                f"--vectors: the file names the pictures, and no model runs; leave out {given[0]}"
            )
        return _index_vectors(str(run), store, vectors, metadata)
    from limner.data.readers import open_dataset
    from limner.export.exported import is_export
    from limner.inference.hub_runs import is_hub_name
    from limner.search.index import check_arguments, index_pictures
    from limner.search.metadata import read_metadata

    check_arguments(bool(pictures), data is not None, split is not None, metadata is not None)
    # before the model is loaded: a file with a wrong column is refused within the second
    dataset = None if data is None else open_dataset(data)
    if dataset is not None and split is not None:
        dataset.split(split)
    notes = read_metadata(metadata) if metadata is not None else None
    if is_hub_name(str(run)):
        if stage is not None:
            raise SettingsError("--stage: a model of the hub has no stages")
        if no_model:
            raise SettingsError(
                "--no-model: a model of the hub lies in the store; for a store without it index with a run on this "
                f"machine: of a pair by `limner import {run} RUN`, of a run by `hf download`"
            )
        # a run and no pair: it is in the hub's cache, and used as one of this machine
        run = _run_of_the_hub(str(run), store) or run
    encoder: Encoder
    how = _how(cpu, engine, precision)
    with connected_to(cluster) as connection:
        if is_hub_name(str(run)):
            encoder, opened = _of_the_hub(str(run), store, how, regions=regions)
        elif is_export(run):
            _refuse_for_exports(stage=stage, engine=engine, precision=precision, cpu=cpu)
            encoder, opened = _of_export(run, store, keep_model=not no_model, regions=regions)
        else:
            encoder, opened = _of_run(run, store, how, stage=stage, keep_model=not no_model, regions=regions)
        workers = workers_for(
            connection, encoder, regions=opened.region_shape is not None, cpu=cpu, engine=engine
        )
        if dataset is not None:
            summary = _index_dataset(encoder, opened, dataset, split, batch, workers)
        else:
            with counting("pictures") as progress:
                summary = index_pictures(
                    encoder,
                    opened,
                    pictures or [],
                    metadata=notes,
                    batch_size=batch,
                    cluster=workers,
                    progress=progress,
                )
    _say(summary, store, len(opened))
    _say_unused(summary, metadata)
    return _indexed(summary, store, len(opened))


def _index_vectors(name: str, store: Any, vectors: Path, metadata: Path | None) -> Indexed:
    from limner.search.foreign_vectors import index_vectors, read_vectors, store_of_vectors
    from limner.search.metadata import read_metadata

    notes = read_metadata(metadata) if metadata is not None else None
    given = read_vectors(vectors)
    opened = store_of_vectors(name, given.vectors.shape[1], store)
    with counting("pictures") as progress:
        summary = index_vectors(opened, given, metadata=notes, progress=progress)
    _say(summary, store, len(opened))
    _say_unused(summary, metadata)
    return _indexed(summary, store, len(opened))


def _say_unused(summary: "IndexReport", metadata: Path | None) -> None:
    # a store without its metadata looks whole until a condition finds nothing
    if summary.unused_metadata:
        err.print(
            f"{metadata}: {len(summary.unused_metadata)} of its rows name none of these pictures, e.g. "
            f"{summary.unused_metadata[0]}; paths are relative to the file's own folder"
        )


def _run_of_the_hub(source: str, store: Any) -> Path | None:
    from limner.search.with_model import run_for_store

    return run_for_store(source, store)


def _how(cpu: bool, engine: str = "torch", precision: str | None = None) -> dict[str, Any]:
    """The arguments of `load_model` that say how a run computes."""
    return {
        "device": device(cpu),
        "engine": chosen_engine(engine),
        "precision": chosen_precision(precision),
    }


def _of_the_hub(
    source: str, store: Any, how: dict[str, Any], *, regions: bool | None
) -> "tuple[TrainedModel, StoreFiles]":
    from limner.search.with_model import store_with_model

    encoder, opened = store_with_model(source, store, regions=regions, **how)
    return _in_precision(encoder, opened, how["precision"]), opened


def _in_precision(encoder: "TrainedModel", opened: "StoreFiles", asked: str | None) -> "TrainedModel":
    """A run in the arithmetic of the store. Raises `SettingsError` if another was asked for."""
    from limner.search.kept_model import as_stored

    stored = opened.manifest.precision
    if asked is not None and stored not in (None, encoder.precision):
        raise SettingsError(
            f"--precision: {opened.folder} holds embeddings in {stored} and goes on in that; leave it out, or index "
            "into a new folder"
        )
    return as_stored(encoder, opened)


def _of_run(
    run: Path,
    store: Any,
    how: dict[str, Any],
    *,
    stage: str | None = None,
    keep_model: bool,
    regions: bool | None = None,
) -> "tuple[TrainedModel, StoreFiles]":
    from limner.inference import load_model
    from limner.search.with_model import store_of_run

    encoder = load_model(run, stage=stage, **how)
    # a store notes what to load when it is opened: of a stage that is not the best, the checkpoint itself
    named = run if stage is None else encoder.path
    opened = store_of_run(encoder, named, store, regions=regions, keep_model=keep_model)
    _say_not_kept(opened, store, named, keep_model=keep_model)
    return _in_precision(encoder, opened, how["precision"]), opened


def _of_export(
    export: Path, store: Any, *, keep_model: bool, regions: bool | None = None
) -> "tuple[ExportedModel, StoreFiles]":
    """As `_of_run`, without torch."""
    from limner.export.exported import load_export
    from limner.search.kept_model import store_of_export

    encoder = load_export(export)
    opened = store_of_export(encoder, store, regions=regions, keep_model=keep_model)
    _say_not_kept(opened, store, export, keep_model=keep_model)
    return encoder, opened


def _of_run_or_export(
    run: Path,
    store: Any,
    *,
    keep_model: bool,
    cpu: bool,
    engine: str = "torch",
    precision: str | None = None,
) -> "tuple[TrainedModel | ExportedModel, StoreFiles]":
    from limner.export.exported import is_export

    if is_export(run):
        _refuse_for_exports(stage=None, engine=engine, precision=precision, cpu=cpu)
        return _of_export(run, store, keep_model=keep_model)
    from limner.inference.hub_runs import local_run

    # the store notes the folder: of a run of the hub that in the hub's cache
    return _of_run(local_run(run), store, _how(cpu, engine, precision), keep_model=keep_model)


def _say_not_kept(opened: "StoreFiles", store: Any, run: Path, *, keep_model: bool) -> None:
    from limner.search.store_path import is_remote

    if keep_model and is_remote(store) and not opened.has_table:
        # told once, when the store is new: on a disk it would hold the model
        err.print(f"{store}: an object storage holds no model; the store needs the run {run} where it is")


def _refuse_for_exports(*, stage: str | None, engine: str, precision: str | None, cpu: bool) -> None:
    needless = {
        "--stage": stage is not None,
        "--engine": engine != "torch",
        "--precision": precision is not None,
        "--cpu": cpu,
    }
    if given := [name for name, is_given in needless.items() if is_given]:
        raise SettingsError(
            f"{given[0]}: an export is of one stage and arithmetic, and runs on the CPU by its own engine"
        )


def _index_dataset(
    encoder: "Encoder",
    store: "StoreFiles",
    dataset: "Dataset",
    split: str | None,
    batch: int,
    workers: "Workers | None",
) -> "IndexReport":
    from limner.search.index_dataset import index_dataset

    with counting_each("pictures") as progress:
        return index_dataset(
            encoder, store, dataset, split=split, batch_size=batch, cluster=workers, progress=progress
        )


@command(app, "index-sentences")
def index_sentences_command(
    run: Annotated[Path, typer.Argument(help="Run folder of the model, or an export of it.")],
    store: StoreFolder,
    data: Annotated[
        str, typer.Argument(help="A dataset (FORMAT:PATH), or a text file with one sentence a line.")
    ],
    split: Annotated[str | None, typer.Option(help="Only the sentences of this split.")] = None,
    no_model: NoModel = False,
    cpu: Cpu = False,
) -> SentencesIndexed:
    """Add sentences to a store, for searches by a picture.

    `limner search STORE --image FILE --sentences` finds them.
    """
    from limner.search.sentences import SentenceTable

    # before the model: a file that is not there costs no loading
    sentences = _sentences(data, split)
    encoder, files = _of_run_or_export(run, store, keep_model=not no_model, cpu=cpu)
    opened = SentenceTable(files)
    with counting("sentences") as progress:
        summary = opened.index(encoder, sentences, progress=progress)
    _say_left_out(summary)
    out.print(
        f"{store}: {len(opened)} sentences; {summary.added} added, {summary.unchanged} unchanged, "
        f"{len(summary.unknown)} left out, {summary.removed} removed"
    )
    return SentencesIndexed(
        store=str(store),
        sentences=len(opened),
        added=summary.added,
        unchanged=summary.unchanged,
        unknown=summary.unknown,
        removed=summary.removed,
        cut=summary.cut,
    )


def _sentences(data: str, split: str | None) -> "list[Sentence]":
    from limner.data.readers import open_dataset
    from limner.search.sentences import Sentence

    if data.endswith(".txt"):
        if split is not None:
            raise SettingsError("--split: a text file has no splits")
        try:
            lines = Path(data).read_text(encoding="utf-8").splitlines()
        # a ValueError of Python's, which would be a stack trace
        except UnicodeDecodeError:
            raise DataError(f"{data}: not UTF-8 text; save it as UTF-8") from None
        # no picture: such sentences are found, and go with no picture when it is deleted
        return [Sentence(line.strip()) for line in lines if line.strip()]
    dataset = open_dataset(data)
    records = (dataset if split is None else dataset.split(split)).records
    return [
        Sentence(sentence, os.path.abspath(record.image))  # noqa: PTH100 - as pictures are indexed
        for record in records
        for sentence in record.sentences
    ]


@command(app, "reindex")
def reindex_command(
    store: StoreFolder,
    run: Annotated[Path, typer.Argument(help="Run folder of the other model, or an export of it.")],
    new: NewStoreFolder,
    no_model: NoModel = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Take out of NEW what STORE does not hold, or no longer.")
    ] = False,
    batch: Batch = _BATCH,
    engine: Engine = "torch",
    precision: Arithmetic = None,
    cpu: Cpu = False,
    cluster: ClusterAddress = None,
) -> Indexed:
    """Copy a store for another model and encode its pictures again.

    Their metadata are copied; the old store is not changed. Run again, it adds what has come meanwhile.
    """
    from limner.search.index import reindex
    from limner.search.store_files import StoreFiles

    with connected_to(cluster) as connection:
        # before the model: a store that is not there costs no loading
        old = StoreFiles.open(store)
        # a new folder: vectors of two models cannot be compared, so a store holds one model's
        encoder, opened = _of_run_or_export(
            run, new, keep_model=not no_model, cpu=cpu, engine=engine, precision=precision
        )
        workers = workers_for(
            connection, encoder, regions=opened.region_shape is not None, cpu=cpu, engine=engine
        )
        with counting("pictures") as progress:
            summary = reindex(
                old, encoder, opened, delete=delete, batch_size=batch, cluster=workers, progress=progress
            )
    _say(summary, new, len(opened))
    if summary.others and delete:
        out.print(f"{summary.others} deleted that {store} does not hold")
    elif summary.others:
        err.print(f"{summary.others} pictures of {new} are not in {store}; --delete takes them out")
    return _indexed(summary, new, len(opened))


def _say(summary: "IndexReport", folder: object, pictures: int) -> None:
    # a broken disk may skip thousands; the count in the last line must stay in sight
    for path, reason in summary.skipped[:_SHOWN]:
        err.print(f"skipped {path}: {reason}")
    if len(summary.skipped) > _SHOWN:
        err.print(f"… and {len(summary.skipped) - _SHOWN} more skipped")
    sentences = summary.sentences
    if sentences is not None:
        _say_left_out(sentences)
    out.print(
        f"{folder}: {pictures} pictures; {summary.added} added, {summary.updated} updated, "
        f"{summary.unchanged} unchanged, {len(summary.skipped)} skipped{_passed_over(summary)}"
    )
    if summary.forgotten:
        out.print(
            f"{summary.forgotten} sentences removed: the files of their pictures are of other identities now"
        )
    if sentences is not None:
        out.print(
            f"sentences: {sentences.added} added, {sentences.unchanged} unchanged, "
            f"{len(sentences.unknown)} left out, {sentences.removed} removed"
        )


def _passed_over(summary: "IndexReport") -> str:
    from limner.search.find_pictures import hint, told

    passed = dict(summary.passed_over)
    if (step := hint(passed)) is not None:
        err.print(step)
    return f", {sum(passed.values())} passed over ({told(passed)})" if passed else ""


def _say_left_out(report: "SentencesReport") -> None:
    # a line of a text file may be as long as the file, hence the cut
    for text in report.unknown[:_SHOWN]:
        err.print(f"left out, the model knows no word of it: {text[:120]}")
    if report.cut:
        err.print(f"{report.cut} sentences are longer than the model reads, and lost their end")


def _indexed(summary: "IndexReport", folder: object, pictures: int) -> Indexed:
    return Indexed(
        store=str(folder),
        pictures=pictures,
        added=summary.added,
        updated=summary.updated,
        unchanged=summary.unchanged,
        skipped=summary.skipped,
        passed_over=summary.passed_over,
        unused_metadata=summary.unused_metadata,
        forgotten=summary.forgotten,
        others=summary.others,
        sentences=summary.sentences,
    )

"""`limner index`, `limner index-sentences` and `limner reindex`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.cluster import connected_to, workers_for
from limner.cli.conflicts import Conflict
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
from limner.cli.watch import say_unread, waits
from limner.counted import counted
from limner.errors import SettingsError
from limner.store_reports import IndexReport, SentencesReport
from limner.text_files import text_lines

if TYPE_CHECKING:
    from limner.export.exported import ExportedModel
    from limner.inference.trained import TrainedModel
    from limner.search.sentences import Sentence
    from limner.store.files import StoreFiles
    from limner.types import Encoder

app = group("Index.")

_SHOWN = 20
"""Pictures and sentences left out that are named one by one; `--json` has all."""
_BATCH = 256
"""Pictures that are decoded and encoded together."""


class Indexed(IndexReport):
    """The result of `limner index`, counted in images."""

    store: str
    """The store."""
    pictures: int
    """How many a search of it finds now."""
    waiting: int
    """How many are out of the search, and wait for their files."""


class SentencesIndexed(SentencesReport):
    """The result of `limner index-sentences`."""

    store: str
    """The store."""
    sentences: int
    """Its content now."""


# the file names the pictures, and no model runs
@command(app, "index", Conflict("--vectors", only="--metadata"))
def index_command(
    run: Annotated[
        Path,
        "Run folder of the model, an export of it, hf:ORG/NAME of the hub, or the folder of a pretrained model, which "
        "is imported into the store; with --vectors the name of the model that made them.",
    ],
    store: StoreFolder,
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="Picture files and folders of them; or --data.")
    ] = None,
    data: Annotated[
        str | None,
        "Index a dataset instead: pictures, identities, metadata and sentences (docs/data-formats.md).",
        "FORMAT:PATH",
    ] = None,
    split: Annotated[str | None, "Only this split of the dataset; all if not given."] = None,
    metadata: Annotated[
        Path | None, "Of pictures: CSV or JSONL with a column 'file', optionally 'identity', and any others."
    ] = None,
    vectors: Annotated[
        Path | None,
        "Index embeddings that another program has computed: .npz with the arrays images and image_names, or "
        "what `limner store export` writes.",
        "FILE",
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
    exclude: Annotated[
        list[str] | None,
        "Leave out files and folders of this name, or with a slash of this path within a folder that is given; * and ? "
        "as in a shell; may be repeated. A file .limnerignore in a folder has such patterns, one a line.",
        "PATTERN",
    ] = None,
) -> Indexed:
    """Add pictures or a dataset to a store.

    Running it again adds only what is new; what cannot be read is skipped and listed. A new store holds the model, in
    STORE/model, unless --no-model is given, and notes its arithmetic, in which it goes on.
    """
    if vectors is not None:
        return _index_vectors(str(run), store, vectors, metadata)
    from limner.data.readers import open_dataset
    from limner.search.find_pictures import find_pictures
    from limner.search.index import check_arguments, index_pictures
    from limner.search.index_dataset import index_dataset
    from limner.search.metadata import read_metadata

    check_arguments(bool(pictures), data is not None, split is not None, metadata is not None)
    # before the model is loaded: a file with a wrong column is refused within the second
    dataset = None if data is None else open_dataset(data)
    if dataset is not None and split is not None:
        dataset.split(split)
    notes = read_metadata(metadata) if metadata is not None else None
    # and before a store is made: of a folder without pictures there is none
    found = None if dataset is not None else find_pictures(pictures or [], exclude or [])
    encoder: Encoder
    with connected_to(cluster) as connection:
        encoder, opened = _open(
            run,
            store,
            cpu,
            stage=stage,
            engine=engine,
            precision=precision,
            keep_model=not no_model,
            regions=regions,
        )
        workers = workers_for(
            connection, encoder, regions=opened.region_shape is not None, cpu=cpu, engine=engine
        )
        how: dict[str, Any] = {"batch_size": batch, "cluster": workers}
        if dataset is not None:
            with counting_each("pictures") as each:
                summary = index_dataset(encoder, opened, dataset, split=split, progress=each, **how)
        else:
            assert found is not None
            with counting("pictures") as progress:
                summary = index_pictures(encoder, opened, found, metadata=notes, progress=progress, **how)
    return _told(summary, store, opened, metadata)


def _index_vectors(name: str, store: Any, vectors: Path, metadata: Path | None) -> Indexed:
    from limner.search.foreign_vectors import index_vectors, read_vectors, store_of_vectors
    from limner.search.metadata import read_metadata

    notes = read_metadata(metadata) if metadata is not None else None
    given = read_vectors(vectors)
    opened = store_of_vectors(name, given.vectors.shape[1], store)
    with counting("pictures") as progress:
        summary = index_vectors(opened, given, metadata=notes, progress=progress)
    return _told(summary, store, opened, metadata)


def _open(
    run: Path, store: Any, cpu: bool, *, keep_model: bool, **options: Any
) -> "tuple[TrainedModel | ExportedModel, StoreFiles]":
    from limner.search.open_source import open_source
    from limner.store.path import is_remote

    encoder, opened = open_source(run, store, keep_model=keep_model, device=device(cpu), **options)
    if keep_model and is_remote(store) and opened.rows.changed_at() is None:
        # told once, when the store is new: on a disk it would hold the model
        err.print(
            f"{store}: an object storage holds no model; the store needs the run {opened.run} where it is"
        )
    return encoder, opened


@command(app, "index-sentences")
def index_sentences_command(
    run: Annotated[
        Path, "Run folder of the model, an export of it, hf:ORG/NAME of the hub, or a model's folder."
    ],
    store: StoreFolder,
    data: Annotated[str, "A dataset (FORMAT:PATH), or a text file with one sentence a line."],
    split: Annotated[str | None, "Only the sentences of this split."] = None,
    no_model: NoModel = False,
    cpu: Cpu = False,
) -> SentencesIndexed:
    """Add sentences to a store, for searches by a picture.

    `limner search STORE --image FILE --sentences` finds them.
    """
    from limner.search.sentences import SentenceTable

    # before the model: a file that is not there costs no loading
    sentences = _sentences(data, split)
    encoder, files = _open(run, store, cpu, keep_model=not no_model)
    opened = SentenceTable(files)
    with counting("sentences") as progress:
        summary = opened.index(encoder, sentences, progress=progress)
    # read before anything is said: on a full disk the refusal is one line
    count = len(opened)
    _say_left_out(summary)
    out.print(
        f"{store}: {counted(count, 'sentences')}; {summary.added} added, {summary.unchanged} unchanged, "
        f"{len(summary.unknown)} left out, {summary.removed} removed"
    )
    return SentencesIndexed(store=str(store), sentences=count, **dict(summary))


def _sentences(data: str, split: str | None) -> "list[Sentence]":
    from limner.data.readers import open_dataset
    from limner.search.sentences import Sentence

    if data.endswith(".txt"):
        if split is not None:
            raise SettingsError("--split: a text file has no splits")
        # no picture: such sentences are found, and go with no picture when it is deleted
        return [Sentence(line.strip()) for line in text_lines(Path(data)) if line.strip()]
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
    run: Annotated[
        Path, "Run folder of the other model, an export of it, hf:ORG/NAME of the hub, or a model's folder."
    ],
    new: NewStoreFolder,
    no_model: NoModel = False,
    delete: Annotated[bool, "Take out of NEW what STORE does not hold, or no longer."] = False,
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
    from limner.store.files import StoreFiles

    with connected_to(cluster) as connection:
        # before the model: a store that is not there costs no loading
        old = StoreFiles.open(store)
        # a new folder: vectors of two models cannot be compared, so a store holds one model's
        encoder, opened = _open(run, new, cpu, engine=engine, precision=precision, keep_model=not no_model)
        workers = workers_for(
            connection, encoder, regions=opened.region_shape is not None, cpu=cpu, engine=engine
        )
        with counting("pictures") as progress:
            summary = reindex(
                old, encoder, opened, delete=delete, batch_size=batch, cluster=workers, progress=progress
            )
    told = _told(summary, new, opened)
    if summary.others and delete:
        out.print(f"{summary.others} deleted that {store} does not hold")
    elif summary.others:
        err.print(f"{counted(summary.others, 'pictures')} of {new} not in {store}; --delete takes them out")
    return told


def _told(summary: IndexReport, folder: object, store: "StoreFiles", metadata: Path | None = None) -> Indexed:
    others = say_unread(summary)
    waiting = store.waiting()
    pictures = len(store) - waiting
    sentences = summary.sentences
    if sentences is not None:
        _say_left_out(sentences)
    out.print(
        f"{folder}: {counted(pictures, 'pictures')}{waits(waiting)}; {summary.added} added, {summary.updated} updated, "
        f"{summary.unchanged} unchanged, {len(summary.skipped)} skipped{others}"
    )
    if summary.moved:
        out.print(f"moved, with their keys and what was told of them: {summary.moved}")
    if summary.copies:
        out.print(f"copies, which are found with their pictures: {summary.copies}")
    if some := summary.contradicted:
        out.print(
            f"{counted(len(some), 'copies')} of which other facts are told than of their pictures; the last stand, "
            f"e.g. of {some[-1]}"
        )
    if summary.replaced:
        out.print(f"removed, since the file of another picture lies in their place: {summary.replaced}")
    if summary.forgotten:
        out.print(
            f"{counted(summary.forgotten, 'sentences')} removed: files of their pictures have other identities"
        )
    if sentences is not None:
        out.print(
            f"sentences: {sentences.added} added, {sentences.unchanged} unchanged, "
            f"{len(sentences.unknown)} left out, {sentences.removed} removed"
        )
    # a store without its metadata looks whole until a condition finds nothing
    if summary.unused_metadata:
        err.print(
            f"{metadata}: {len(summary.unused_metadata)} of its rows name none of these pictures, e.g. "
            f"{summary.unused_metadata[0]}; paths are relative to the file's own folder"
        )
    return Indexed(store=str(folder), pictures=pictures, waiting=waiting, **dict(summary))


def _say_left_out(report: SentencesReport) -> None:
    # a line of a text file may be as long as the file, hence the cut
    for text in report.unknown[:_SHOWN]:
        err.print(f"left out, the model knows no word of it: {text[:120]}")
    if report.cut:
        err.print(f"{counted(report.cut, 'sentences')} lost the end, being longer than the model reads")

"""Arguments and options that several commands have."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer

from limner.errors import SettingsError
from limner.wire import WordMethodName

# copies of those in `limner.inference.precision`, whose import takes torch
InferenceEngine = Literal["torch", "openvino"]
Precision = Literal["auto", "fp32", "bf16"]

T = TypeVar("T")


def store_folder(given: str) -> Any:
    """Parse the folder of a store."""
    # only where a store is named: s3:// needs libraries that are an extra
    from limner.store.path import store_path

    return store_path(given)


def chosen(option: str, name: str, known: Iterable[T]) -> T:
    """The value of an option among those that are known. Raises `SettingsError` for another."""
    names = list(known)
    for one in names:
        if one == name:
            # and not `name`, which is any text to the type checker
            return one
    # cut and quoted: what came may be long, and hold what a terminal obeys
    raise SettingsError(f"{option}: expected {', '.join(map(str, names))}, got {name[:40]!a}")


def first(rerank: str | None) -> int | Literal["all"] | None:
    """The value of `--rerank`. Raises `SettingsError`."""
    if rerank is None or rerank.isdecimal():
        return None if rerank is None else int(rerank)
    if rerank != "all":
        # cut and quoted: what came may be long, and hold what a terminal obeys
        raise SettingsError(f"--rerank: expected a whole number or 'all', got {rerank[:40]!r}")
    return "all"


Cpu = Annotated[bool, "Use the CPU even where there is an accelerator."]

# Any: a folder is a `Path`, one of an object storage a `UPath`, which is an extra
StoreFolder = Annotated[Any, "Folder of the store, or s3://BUCKET/FOLDER.", "STORE", store_folder]
NewStoreFolder = Annotated[Any, "Folder of the new store, or s3://BUCKET/FOLDER.", "NEW", store_folder]

RunFolder = Annotated[Path, "Run folder, a checkpoint file, or hf:ORG/NAME."]
MovedRun = Annotated[
    Path | None, "Run folder of the model, if it has moved; or an export of it, which needs no torch."
]
Stage = Annotated[str | None, "Checkpoint of this stage instead of the best one."]
DataSource = Annotated[
    str, typer.Option("--data", metavar="FORMAT:PATH", help="The dataset (docs/data-formats.md).")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; may be repeated."),
]
PerQuery = Annotated[Path | None, "Write each query's values to this .parquet or .csv file, for `compare`."]

Trec = Annotated[Path | None, "Write TREC runs and qrels of both directions to this folder."]
# 1,000, the default, is what TREC's tracks take
Depth = Annotated[int, typer.Option("--depth", min=1, help="Items a query in these runs.")]

Batch = Annotated[int, "Pictures encoded and committed at once."]
NoModel = Annotated[bool, "A new store does not hold the model; it needs the run where it is."]
Engine = Annotated[
    InferenceEngine,
    "What runs the image backbone: torch, or openvino (CPU only; needs limner[openvino]).",
    lambda name: chosen("--engine", name, get_args(InferenceEngine)),
]
Arithmetic = Annotated[
    Precision | None,
    "Arithmetic of the network; fp32 on a CPU if not given, on a GPU what the recipe trains with. auto: bf16 "
    "where the processor multiplies it natively.",
    "fp32|bf16|auto",
    lambda name: chosen("--precision", name, get_args(Precision)),
]
# Any: typer knows no option that is a number or a word
Rerank = Annotated[
    Any,
    "How many of the first hits are re-ranked, in place of the recipe's number: 0 = none, or 'all'.",
    first,
]
Method = Annotated[
    WordMethodName,
    "The method that gives words their weights (docs/searching.md).",
    lambda name: chosen("--method", name, sorted(get_args(WordMethodName))),
]
ClusterAddress = Annotated[
    str | None,
    "Let workers of a Ray cluster read and encode the pictures (docs/searching.md; needs limner[cluster]).",
    "local|ray://HOST:PORT",
]

ProtocolName = Annotated[
    str | None, "Rules to evaluate by (docs/measures.md); default: the dataset's own, else plain."
]
Measures = Annotated[
    str | None,
    "What to measure instead of the protocol's: names with blanks between them (docs/measures.md), or 'all'.",
]
Folds = Annotated[
    int | None, "Mean over so many equal parts of the images instead of the protocol's (MSCOCO 1K: 5)."
]


def device(cpu: bool) -> str | None:
    """The device that `load_model` is asked for; None lets it choose."""
    return "cpu" if cpu else None


def writable(name: str) -> Path:
    """A file to write, while the command line is read: before hours of work. Raises `SettingsError`."""
    file = Path(name)
    if not file.parent.is_dir():
        raise SettingsError(f"{file.parent}: there is no such folder to write {file.name} to")
    return file


ReportFile = Annotated[
    Path | None,
    typer.Option("--report", parser=writable, help="Write the report to this JSON file, too."),
]

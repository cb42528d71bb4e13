"""Options that several commands have."""

from typing import Annotated, cast, get_args

import typer

from limner.errors import SettingsError
from limner.evaluation.reranking import First
from limner.inference.precision import InferenceEngine
from limner.search.store_path import StorePath, store_path

Cpu = Annotated[bool, typer.Option("--cpu", help="Use the CPU even where there is an accelerator.")]

StoreFolder = Annotated[
    StorePath,
    typer.Argument(metavar="STORE", parser=store_path, help="Folder of the store, or s3://BUCKET/FOLDER."),
]

Engine = Annotated[
    str, typer.Option(help="What runs the image backbone: torch, or openvino (CPU only, limner[openvino]).")
]

ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="Rules to evaluate by (docs/measures.md); default: the dataset's own, else plain."
    ),
]
Measures = Annotated[
    str | None,
    typer.Option(
        help="What to measure instead of the protocol's: names with blanks between them (docs/measures.md), or 'all'."
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(help="Mean over so many equal runs of images instead of the protocol's (MSCOCO 1K: 5)."),
]

Rerank = Annotated[
    str | None,
    typer.Option(
        help="How many of the first the run's matcher re-ranks, in place of its recipe's number; 0 = none, or 'all'."
    ),
]


def first(rerank: str | None) -> First | None:
    """What `--rerank` asks for. Raises `SettingsError`."""
    if rerank is None or rerank.isdecimal():
        return None if rerank is None else int(rerank)
    if rerank != "all":
        raise SettingsError(f"--rerank: expected a whole number or 'all', got {rerank[:40]!r}")
    return "all"


def device(cpu: bool) -> str | None:
    """The device that `load_model` is asked for; None lets it choose."""
    return "cpu" if cpu else None


def engine(name: str) -> InferenceEngine:
    """The engine of `--engine`. Raises `SettingsError` for another name."""
    if name not in get_args(InferenceEngine):
        raise SettingsError(f"--engine: expected 'torch' or 'openvino', got {name[:40]!r}")
    return cast(InferenceEngine, name)

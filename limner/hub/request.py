"""What of a run is published and how, as the library and the command line say it; nothing here imports torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from limner.settings import Settings


class PushRequest(Settings):
    """The decisions of whoever publishes a run."""

    to_folder: Path | None = None
    """Write what would be uploaded to this new folder, and upload nothing."""

    dry_run: bool = False
    """Print the files and the model card; upload and write nothing."""

    accept_terms: bool = False
    """You have read the terms of what the weights have learnt from, and may pass them on; needed where these are not
    open (docs/terms.md)."""

    public: bool = False
    """Everybody sees the repository; private otherwise."""

    gated: bool = False
    """Access on request; always so where the terms of what was learnt are not open."""

    licence: str | None = None
    """The hub's name of the licence of weights that have learnt from your own pictures, e.g. cc-by-4.0."""

    terms: Mapping[str, Any] = {}
    """Terms of what limner knows none, by the names in `run.json`, e.g. of a file of weights."""

    digests: bool | None = None
    """Keep the digests by which a run knows its training pictures; default: of published sets, and not of your own
    pictures."""

    with_bank: bool = False
    """Publish the embeddings of training pictures that a hub correction holds."""

    reports: tuple[Path, ...] = ()
    """Reports of `limner evaluate --report`, for the intervals on the card (`limner.hub.evaluations`)."""

    benchmarks: tuple[str, ...] = ()
    """Benchmark datasets of the hub whose leaderboard the test results are for, [PROTOCOL=]ORG/NAME[:TASK]."""

    stage: str | None = None
    """Checkpoint of this stage instead of the best one."""


class PushOptions(TypedDict, total=False):
    """The arguments of `push` by name, as callers spell them."""

    to_folder: str | Path | None
    dry_run: bool
    accept_terms: bool
    public: bool
    gated: bool
    licence: str | None
    terms: Mapping[str, Any]
    digests: bool | None
    with_bank: bool
    reports: Sequence[str | Path]
    benchmarks: Sequence[str]
    stage: str | None

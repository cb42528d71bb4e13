"""A push as values, the request and its outcome, for the library and the command line; they need no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from limner.documented import Result
from limner.settings import Settings


class PushRequest(Settings):
    """The decisions of whoever publishes a run."""

    folder: Path | None = None
    """Write what would be uploaded to this new folder, and upload nothing."""

    dry_run: bool = False
    """Print the files and the model card; upload and write nothing."""

    stage: str | None = None
    """Checkpoint of this stage instead of the best one."""

    accept_terms: bool = False
    """You have read the terms of what the weights have learnt from, and may pass them on; needed where these are not
    open (docs/terms.md)."""

    public: bool = False
    """Everybody sees the repository; private otherwise."""

    gated: bool = False
    """Access on request; always so where the terms of what was learnt are not open."""

    licence: str | None = None
    """The hub's name of the licence of weights that have learnt from your own pictures, e.g. cc-by-4.0."""

    terms: Mapping[str, Any] | None = None
    """Terms of what limner knows none, by the names in `run.json`, e.g. of a file of weights."""

    digests: bool | None = None
    """Keep the digests by which a run knows its training pictures; default: of published sets, and not of your own
    pictures."""

    bank: bool = False
    """Publish the embeddings of training pictures that a hub correction holds."""

    reports: tuple[Path, ...] = ()
    """Reports of `limner evaluate --report`, for the intervals on the card (`limner.hub.evaluations`)."""

    benchmarks: tuple[str, ...] = ()
    """Benchmark datasets of the hub whose leaderboard the test results are for, [PROTOCOL=]ORG/NAME[:TASK]."""


class PushOptions(TypedDict, total=False):
    """The arguments of `push` by name, as callers spell them."""

    folder: str | Path | None
    dry_run: bool
    stage: str | None
    accept_terms: bool
    public: bool
    gated: bool
    licence: str | None
    terms: Mapping[str, Any] | None
    digests: bool | None
    bank: bool
    reports: Sequence[str | Path]
    benchmarks: Sequence[str]


class PushedTerms(Result):
    """A set, or weights, that published weights have learnt from."""

    name: str
    """Its name."""
    licence: str
    """Its licence or conditions."""
    open: bool
    """True if it states a licence that lets the weights be passed on."""


class Pushed(Result):
    """The outcome of a push, or what it would be."""

    target: str
    """The repository ORG/NAME, or the folder."""
    url: str | None
    """The page of the repository; null for a folder."""
    dry_run: bool
    """True if nothing was uploaded or written."""
    fingerprint: str
    """Digest of the model, the same before and after."""
    files: dict[str, int]
    """The files, and the bytes of each."""
    licence: str
    """The licence as the hub calls it; "other" where no open one covers everything."""
    terms: tuple[PushedTerms, ...]
    """Sets and weights that the weights have learnt from."""
    private: bool | None
    """Seen by its owner alone; null for a folder."""
    gated: bool
    """Access on request."""
    replaced: tuple[str, ...]
    """Settings of the description that named a place of this machine, and are "not-published" now."""
    picture_digests: int
    """Training pictures whose digests are published."""
    bank: int
    """Training pictures and sentences whose embeddings are published."""
    card: str
    """The model card."""

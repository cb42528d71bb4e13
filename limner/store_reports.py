"""The reports of what is done with a store: indexing, its checking, its repair, an erasure, a server's probes."""

import operator
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, JsonValue

from limner.wire import ResponseModel


def as_text(value: object) -> str:
    """A text of a damaged row or of a file system as an answer can hold it: in Unicode alone."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class SentencesReport(ResponseModel):
    """The result of indexing sentences."""

    added: int
    """Added."""

    unchanged: int
    """Already in the store."""

    unknown: tuple[str, ...]
    """Sentences that were left out, because the model knows no word of them."""

    removed: int
    """Other sentences of the same pictures, which were removed."""

    cut: int = 0
    """Added ones that are longer than the model reads, and were embedded without their end."""


class IndexReport(ResponseModel):
    """The result of indexing, in pictures."""

    added: int = 0
    """Added."""
    updated: int = 0
    """Replaced, because their bytes or metadata changed."""
    unchanged: int = 0
    """Left as they were."""
    moved: int = 0
    """Found at another path, which they have now; nothing was encoded."""
    copies: int = 0
    """Files that are further places of a picture, since their bytes are the same."""
    contradicted: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Paths of such files of which other facts are told than of another of the picture's; the last stand."""
    replaced: int = Field(default=0, exclude_if=operator.not_)
    """Removed: the file of another picture of the store has taken the place of theirs."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Path and reason of each unreadable file; its old row stays."""
    cut_off: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Paths of JPEG files that lack their end, at most a twentieth of their rows, and were read all the same."""
    passed_over: dict[str, int] = {}  # noqa: RUF012 - of a model, where each has its own
    """Files in searched folders that were not tried, counted by ending: pictures without a reader here first."""
    left_out: dict[str, int] = Field(default={}, exclude_if=operator.not_)
    """Folders of other systems and programs or of uploads, links to folders, excluded names, by name or pattern."""
    # told, because a misspelt path in the metadata is otherwise seen only when a condition finds nothing
    unused_metadata: tuple[str, ...] = ()
    """Paths in the metadata that are none of the pictures."""
    forgotten: int = 0
    """Sentences that were removed: the file of the picture that they described is now one of another identity."""
    others: int = Field(default=0, exclude_if=operator.not_)
    """Of a reindexing: pictures that the new store had and the old one has not; with `delete` they were taken out."""
    sentences: SentencesReport | None = Field(default=None, exclude_if=operator.not_)
    """The sentences of a dataset; absent if none was indexed."""

    def __repr__(self) -> str:
        counts = f"{self.added} added, {self.updated} updated, {self.unchanged} unchanged, {len(self.skipped)} skipped"
        return f"IndexReport({counts}, {sum(self.passed_over.values())} passed over)"

    # pydantic's own lists every field
    __str__ = __repr__


class SyncReport(IndexReport):
    """The result of a look at the folders that a store follows."""

    gone: tuple[str, ...] = ()
    """Paths of pictures of which no file is left: taken out of the search, or not, as `doubt` says."""
    returned: int = 0
    """Pictures that were out of the search, and whose files are back."""
    copies_gone: int = 0
    """Files of pictures that have others, which are gone."""
    doubt: str | None = None
    """The reason why these were left where they are; null = they are out."""
    away: tuple[tuple[str, str], ...] = ()
    """Folders that seem to be away, with the reason; nothing of them was changed."""
    erased: int = 0
    """Pictures whose files have been gone for long enough: nothing of them is left on the disk."""
    waiting: int = 0
    """Pictures that are out of the search, and wait for their files."""
    dry_run: bool = False
    """True if nothing was changed; `added` and `updated` then count files to read, which were not opened."""
    whole: bool = True
    """False for a look at files that changed; `gone`, `doubt` and `skipped` are of these alone."""

    def standing(self, store: object) -> dict[str, str]:
        """Lines of what keeps pictures of lost files in the search: by the folder that is away, by "" for a doubt."""
        lines = {
            folder: f"{folder} {reason}, as if its disk were away: its pictures stay; `limner store sync {store} "
            "--yes` if they are gone for good"
            for folder, reason in self.away
        }
        if self.doubt is not None:
            lines[""] = (
                f"{self.doubt}, as if a disk were away: they stay; `limner store sync {store} --dry-run` names them, "
                "--yes in its place says that they are gone for good"
            )
        return lines

    @property
    def is_news(self) -> bool:
        """True if it changed something."""
        changed = self.added, self.updated, self.moved, self.copies, self.replaced, self.returned, self.erased
        return any(changed) or (self.doubt is None and bool(self.gone or self.copies_gone))

    @property
    def sound(self) -> bool:
        """True if every folder was there and nothing is in doubt; else the command's exit code is 1."""
        return self.doubt is None and not self.away

    def __repr__(self) -> str:
        gone = "gone" if self.doubt is None else "gone, which stay"
        return f"SyncReport({self.added} added, {self.updated} updated, {self.moved} moved, {len(self.gone)} {gone})"

    __str__ = __repr__


class Finding(ResponseModel):
    """One kind of trouble that `verify` found."""

    count: int
    """Number of pictures or sentences."""

    example: str
    """Path of the first of them."""


class Verification(ResponseModel):
    """The result of `verify`."""

    pictures: int
    """Rows of the table of pictures."""

    sentences: int
    """Rows of the table of sentences."""

    sound: bool
    """True if nothing is damaged; files that are gone or changed are no damage."""

    found: dict[str, Finding]
    """The findings by kind of damage or change."""


class GraphWidth(ResponseModel):
    """How much a search looks at, and what it finds with it."""

    width: int
    """Rows that it looks at in a graph, or lists that it reads."""
    recall: float
    """Share of the ten best pictures that it finds, in [0, 1]."""


class GraphRecall(ResponseModel):
    """The result of `limner store recall`."""

    pictures: int
    """Number of pictures in the store."""
    by: str
    """`graph`, or `lists` in a store whose vectors are on disk."""
    seconds: float
    """Time to build it."""
    wanted: float
    """Share of the ten best pictures that it has to find."""
    tried: tuple[GraphWidth, ...]
    """The widths that were measured; searches use the last where `wanted` is 0.995."""
    recall: float
    """Share of the ten best of exact search that is found, for pictures of the store with noise as queries."""
    milliseconds: float
    """Time of a search by it, median of up to 200."""
    milliseconds_exact: float
    """Time of an exact search, median of the same."""

    def __str__(self) -> str:
        lines = [f"{self.pictures} pictures, {self.by} built in {self.seconds:.1f} s"]
        lines += [f"width {one.width}: {100 * one.recall:.1f} % of the ten best" for one in self.tried]
        return "\n".join(
            [
                *lines,
                f"{100 * self.recall:.1f} % of the ten best found, {self.milliseconds:.2f} ms a search, "
                f"{self.milliseconds_exact:.2f} ms exactly",
            ]
        )


class StoreExport(ResponseModel):
    """The result of an export of a store's rows."""

    out: str
    """The file or folder that was written."""

    to: str
    """The format: parquet, lance, faiss or qdrant-jsonl."""

    pictures: int
    """Pictures in it."""

    sentences: int
    """Texts of sentences in it."""

    dim: int
    """Width of the vectors."""

    fingerprint: str
    """Digest of the model that the vectors are of."""

    bytes: int
    """Its size on the disk."""


class Repair(ResponseModel):
    """The result of `repair`: what it did, or what it would do if the losses are accepted."""

    applied: bool = True
    """False if something would be lost, which was not accepted: nothing was changed."""

    pictures: int
    """Pictures in the store afterwards."""

    sentences: int
    """Sentences in the store afterwards."""

    repaired: tuple[str, ...] = ()
    """Paths of pictures that are encoded again from their files."""

    lost: tuple[tuple[str, str], ...] = ()
    """Paths of pictures that are damaged and cannot be encoded again, with the reason."""

    lost_sentences: tuple[str, ...] = ()
    """Texts of sentences that are damaged, or whose picture is lost."""

    missing: tuple[str, ...] = ()
    """Tables whose rows are not those of the last commit, with their number: whose the others were nobody can tell."""

    model_from: str | None = None
    """The run from which the model in the store's folder was taken back; None = it was sound, or could not be."""

    beside: tuple[str, ...] = ()
    """Damage of the store's model or a calibration, which no repair makes again, and what to do about it."""

    @property
    def loses(self) -> bool:
        """True if anything is lost, or may be."""
        return bool(self.lost or self.lost_sentences or self.missing)

    @property
    def sound(self) -> bool:
        """True if nothing is lost and nothing stays damaged."""
        return not (self.beside or self.loses)


class Remains(ResponseModel):
    """Traces of erased rows that one file still has."""

    file: str
    """The file, within the store's folder; `uploads/NAME` for one in the folder of uploads, `uploads` for those of
    others; `the audit log`."""

    kind: str
    """The column that they are of: path, sha256, vector, thumbnail …"""

    count: int
    """Number of different traces."""


class TraceCounts(ResponseModel):
    """Traces of erased rows: their paths, keys, hashes, facts and texts, and pieces of their bytes."""

    searched: int
    """Traces that were searched for in every file of the store after the erasure."""
    visible: int
    """Those that the files showed before it: only of these does the search tell something."""
    shared: int
    """Traces left out, because pictures, sentences or settings that stay have the same bytes."""
    short: int
    """Traces left out, because they are too short or too plain to be told from other bytes."""
    model: int = 0
    """Those that stand in the files of the store's model, which an erasure leaves as they are."""


_NO_TRACES = TraceCounts(searched=0, visible=0, shared=0, short=0)


class ErasureReport(ResponseModel):
    """The result of an erasure.

    What was deleted before it is off the disk as well, also by an erasure that failed or was killed: nobody can name it
    any more, so that the same call counts it nowhere, and lists its names as `unknown` and `unmet`.
    """

    pictures: int
    """Pictures that were erased."""

    sentences: int
    """Sentences that were erased: those of these pictures, and those that were named by their keys."""

    left: int
    """Pictures that the store holds after it."""

    uploads: int
    """Files of these pictures in the folder of uploads, which were deleted."""

    leftovers: int = 0
    """Other pictures there that no row named, which were deleted: left by earlier deletions and killed changes."""

    unknown: tuple[str, ...] = ()
    """Keys and paths that were named and of which the store held nothing."""

    unmet: tuple[str, ...] = ()
    """Conditions that no picture met, `identity=NAME` among them; several together if each was met by others. Over
    HTTP empty without the right `search`: whoever may not search would spell out the pictures that stay with it."""

    similar: tuple[str, ...] = ()
    """Identities and paths that look like those that were named, and were left: in other case, or with other signs.
    Over HTTP empty without the right `search`."""

    naming: tuple[str, ...] = ()
    """Keys of sentences that stay, and whose text holds an identity that no picture has any more; they can be erased
    by these keys. Over HTTP empty without the right `search`."""

    alerts: int = Field(default=0, exclude_if=operator.not_)
    """Alerts that named an identity or a file of these, and were taken away. Over HTTP 0 without the right `search`."""

    returning: int = Field(default=0, exclude_if=operator.not_)
    """Files of these in folders that the store follows: the next look indexes them again, as new pictures."""

    audit_lines: int | None
    """Lines of the audit log from which something was removed; null if none was named."""

    learnt: int | None = None
    """Erased pictures that the store's model has learnt from; null if it is damaged, not at hand, or does not say."""

    traced: int
    """Pictures and sentences whose traces were searched for: all, or an even sample of very many."""

    traces: TraceCounts
    """How the proof was made. Over HTTP all 0 without the right `search`: what is shared tells what others have."""

    files: int
    """Files of the store that were searched afterwards."""

    bytes: int
    """Their size."""

    found: tuple[Remains, ...]
    """Traces that are there all the same; empty if nothing of the erased rows is left."""

    dry_run: bool = False
    """True if nothing was erased or searched."""

    @property
    def sound(self) -> bool:
        """True if the report lists nothing that was not erased, or is left."""
        return not (self.found or self.unknown or self.unmet or self.naming)

    def without_clues(self) -> "ErasureReport":
        """The report without what it tells of pictures that were not erased."""
        return self.model_copy(
            update={"unmet": (), "similar": (), "naming": (), "alerts": 0, "traces": _NO_TRACES}
        )

    @classmethod
    def planned(cls, **said: Any) -> "ErasureReport":
        """The report of an erasure that was not made, by what it would be."""
        nothing: dict[str, Any] = {"traced": 0, "traces": _NO_TRACES, "files": 0, "bytes": 0, "found": ()}
        return cls(uploads=0, audit_lines=None, dry_run=True, **nothing, **said)


ProbeName = Literal["store", "model", "writer", "uploads", "audit", "tokens"]
"""Parts that a server needs in order to answer."""


class ProbeReport(ResponseModel):
    """The last result of one of a server's probes."""

    name: ProbeName
    """`store`, `tokens`: they can be read; `model`: it answers; `writer`, `uploads`, `audit`: there can be written. A
    server where `writer` or `uploads` fails answers searches, and is ready."""
    reason: str | None
    """The reason why it fails; null = it does not."""
    took_ms: float | None
    """Milliseconds that the last probe took; null before the first one has ended."""
    age_seconds: float | None
    """Seconds since the last probe ended; null before the first one has ended."""


class Readiness(ResponseModel):
    """A server that is ready to answer searches."""

    status: Literal["ok"] = "ok"
    """Always "ok": a server that is not ready answers 503."""

    probes: tuple[ProbeReport, ...]
    """Each probe that the server makes."""


class StoreFacts(ResponseModel):
    """The description of a store."""

    pictures: int
    """How many a search finds."""
    waiting: int
    """How many are out of the search, and wait for their files."""
    run: str
    """Run folder of its model."""
    kept_from: str | None
    """Run that the model in the store's folder was kept from; null without one."""
    model_bytes: int
    """Part of `bytes` that the model in the store's folder takes, also where it is linked from its run; 0 without."""
    fingerprint: str
    """Digest of the model."""
    precision: str | None
    """Arithmetic of its embeddings, fp32 or bf16; null if it does not say, as stores of limner 0.1.0."""
    created: str
    """When it was made, ISO 8601."""
    dim: int
    """Width of an embedding."""
    map: tuple[int, int, int] | None
    """Shape of what it keeps of each picture for re-ranking; null = nothing."""
    bytes: int
    """Size on the disk."""
    folders: tuple[str, ...]
    """Folders that it follows."""


class StoredPicture(ResponseModel):
    """A picture of a store."""

    id: str
    """Its key."""
    path: str
    """Its file."""
    copies: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Further files of the same bytes."""
    identity: str | None
    """The identity that it shows."""
    metadata: dict[str, JsonValue]
    """Its other metadata."""
    taken_read: datetime | None
    """When, by what its file says: the camera's own clock."""
    taken_told: datetime | None
    """When, by what somebody told limner, which stands before what was read."""
    size: int
    """Bytes of its file."""
    sha256: str
    """Digest of its file."""
    gone: int | None
    """Since when its files are gone and no search finds it, seconds since 1970; null while one is there."""


class Deleted(ResponseModel):
    """The result of `limner store delete`, or what it would delete."""

    deleted: tuple[str, ...]
    """Paths that were taken out; a picture that has others stays."""
    left: int
    """Pictures that the store holds after it."""
    dry_run: bool
    """True if nothing was deleted."""


class Compacted(ResponseModel):
    """The result of `limner store compact`."""

    pictures: int
    """The content of the store."""
    bytes_before: int
    """Size on the disk before."""
    bytes_after: int
    """Size on the disk now."""


class BackedUp(ResponseModel):
    """The result of `limner store backup`."""

    copy_folder: str
    """Folder of the copy."""
    pictures: int
    """Pictures in it."""
    sentences: int
    """Sentences in it."""
    bytes: int
    """Its size on the disk."""

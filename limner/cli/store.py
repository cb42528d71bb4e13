"""`limner store`: list, verify, repair, compact and change a search store."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import counting, err, out
from limner.cli.contract import UnsoundError, command, group
from limner.cli.options import Cpu, StoreFolder, device
from limner.cli.schemas import Compacted, Deleted, StoredPicture, StoredPictures, StoreFacts
from limner.errors import DataError, SettingsError
from limner.wire import Repair, Verification

if TYPE_CHECKING:
    from limner.search.entry import StoredImage
    from limner.types import Encoder

app = group("List, delete, verify, repair and compact the pictures of a store.")


@command(app, "info")
def info_command(store: StoreFolder) -> StoreFacts:
    """Describe a store: its model, number of pictures, and size on disk."""
    from limner.search.store_files import StoreFiles
    from limner.search.store_path import size_of

    opened = StoreFiles.open(store)
    facts = StoreFacts(
        pictures=len(opened),
        run=opened.run,
        fingerprint=opened.fingerprint,
        created=opened.manifest.created,
        dim=opened.dim,
        map=opened.region_shape,
        bytes=size_of(store),
    )
    regions = "" if facts.map is None else f", with region features of {' × '.join(map(str, facts.map))}"
    out.print(f"{store}: {facts.pictures} pictures, {facts.bytes / 1e6:.1f} MB{regions}")
    out.print(f"model {facts.fingerprint[:12]} of run {facts.run}, made {facts.created}")
    return facts


@command(app, "list")
def list_command(
    store: StoreFolder,
    identity: Annotated[str | None, typer.Option(help="Only pictures of this identity.")] = None,
) -> StoredPictures:
    """Print the pictures of a store in the order of their paths: key, path, identity."""
    from limner.search.store_files import StoreFiles

    # the table's own order is that of the commits
    entries = sorted(StoreFiles.open(store).entries().values(), key=lambda entry: entry.path)
    chosen = [entry for entry in entries if identity is None or entry.identity == identity]
    for entry in chosen:
        out.print(
            f"{entry.id}  {entry.path}" + (f"  [{entry.identity}]" if entry.identity is not None else "")
        )
    if not chosen:
        err.print(f"{store}: no such picture" if entries else f"{store}: the store is empty")
    return StoredPictures([_stored(entry) for entry in chosen])


@command(app, "delete")
def delete_command(
    store: StoreFolder,
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="Pictures by path; a folder means all below it.")
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="A picture by its key; may be repeated.")
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="All pictures whose file is gone.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> Deleted:
    """Take pictures out of a store.

    Their files are left alone; `limner index` would add them again.
    """
    from limner.search.store_files import StoreFiles

    # without a name nothing is deleted, rather than everything
    if not (pictures or ids or missing):
        raise SettingsError("name pictures to delete: their paths, --id KEY or --missing")
    opened = StoreFiles.open(store)
    entries = list(opened.entries().values())
    # by key: a picture may be named by its path, by its folder and by its key
    doomed = {entry.id: entry for entry in _named(entries, pictures or [], ids or [])}
    # a disk that is not mounted makes every file look gone, which --dry-run shows
    if missing:
        doomed |= {entry.id: entry for entry in entries if not Path(entry.path).exists()}
    if dry:
        for entry in doomed.values():
            out.print(entry.path)
        out.print(f"{store}: would delete {len(doomed)} of {len(entries)} pictures")
    else:
        count = opened.delete(list(doomed))
        out.print(f"{store}: {count} deleted, {len(opened)} left")
    paths = tuple(entry.path for entry in doomed.values())
    return Deleted(deleted=paths, left=len(entries) - len(doomed), dry_run=dry)


@command(app, "verify")
def verify_command(
    store: StoreFolder,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Read every picture file and compare its bytes.")
    ] = False,
) -> Verification:
    """Read a whole store and check each picture's file: exit code 1 if the store is damaged."""
    from limner.search.store_files import StoreFiles
    from limner.search.verify import DAMAGE, STALE, verify

    # unchecked: what is damaged is to be told, and not to end it
    opened = StoreFiles.open(store, check=False)
    with counting("pictures") as progress:
        # more threads than cores, since they wait for the disk; no more than 16 files at once
        report = verify(opened, hashes=hashes, workers=min(16, 2 * (os.cpu_count() or 1)), progress=progress)
    # damage first, which alone makes a store unsound
    for kind, about in {**DAMAGE, **STALE}.items():
        if kind in report.found:
            found = report.found[kind]
            state = "damaged" if kind in DAMAGE else "stale"
            out.print(f"{state}: {about}: {found.count}, e.g. {found.example}")
    whole = "whole, each picture once" if report.sound else f"damaged: limner store repair {store}"
    sentences = f" and {report.sentences} sentences" if report.sentences else ""
    out.print(f"{store}: {report.pictures} pictures{sentences}, {whole}")
    if not report.sound:
        # the report is printed all the same; the exit code is for scripts
        raise UnsoundError(report)
    return report


@command(app, "repair")
def repair_command(
    store: StoreFolder,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="The store's run, if it has moved; it encodes what is damaged."),
    ] = None,
    cpu: Cpu = False,
) -> Repair:
    """Keep what is sound of a damaged store, and encode the rest again from the pictures' files.

    Pictures whose files are gone, or whose rows cannot be read, are listed and no longer in the store.
    """
    from limner.search.repair import repair
    from limner.search.store_files import StoreFiles

    def model() -> "Encoder":
        from limner.inference.trained import load_model

        return load_model(run or opened.run, device=device(cpu))

    opened = StoreFiles.open(store, check=False)
    with counting("pictures") as progress:
        report = repair(opened, model, progress=progress)
    for path in report.repaired:
        out.print(f"encoded again: {path}")
    for path, reason in report.lost:
        out.print(f"lost: {path}: {reason}")
    for text in report.lost_sentences:
        out.print(f"lost: the sentence {text!r}")
    out.print(
        f"{store}: {report.pictures} pictures and {report.sentences} sentences, {len(report.repaired)} encoded "
        f"again, {len(report.lost) + len(report.lost_sentences)} lost"
    )
    if not report.complete:
        out.print(
            "rows are gone of which nothing is left, not even a name: index the folders of this store again"
        )
    return report


@command(app, "compact")
def compact_command(
    store: StoreFolder,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Write again what has deleted pictures in it, and release old versions now."
        ),
    ] = False,
) -> Compacted:
    """Merge the small files that many changes leave; searches can continue meanwhile."""
    from limner.search.store_files import StoreFiles
    from limner.search.store_path import size_of

    opened = StoreFiles.open(store)
    before = size_of(store)
    opened.compact(purge=purge)
    after = size_of(store)
    out.print(f"{store}: {len(opened)} pictures, {after / 1e6:.1f} MB where it was {before / 1e6:.1f} MB")
    if not purge:
        # a day: readers may still be at an older version
        out.print("what is replaced or deleted stays on the disk for a day or longer, or until --purge")
    return Compacted(pictures=len(opened), bytes_before=before, bytes_after=after)


def _stored(entry: "StoredImage") -> StoredPicture:
    return StoredPicture(
        id=entry.id,
        path=entry.path,
        identity=entry.identity,
        metadata=dict(entry.metadata),
        size=entry.size,
        sha256=entry.sha256,
    )


def _named(
    entries: "Sequence[StoredImage]", paths: Sequence[Path], ids: Sequence[str]
) -> "list[StoredImage]":
    """The entries at and below paths, and of keys. Raises `DataError` for a name without an entry."""
    found: list[StoredImage] = []
    by_path = {entry.path: entry for entry in entries}
    by_key = {entry.id: entry for entry in entries}
    for path in paths:
        whole = os.path.abspath(path)  # noqa: PTH100 - as they were indexed: resolve() would follow links
        matches = [by_path[whole]] if whole in by_path else []
        # with the separator: below "/a/b" lies "/a/b/c" and not "/a/bc"
        matches = matches or [entry for entry in entries if entry.path.startswith(whole + os.sep)]
        # an error and not zero deletions: the path is misspelt, and nothing has been deleted yet
        if not matches:
            raise DataError(f"{path}: the store holds no such picture and none below it")
        found += matches
    for key in ids:
        if key not in by_key:
            raise DataError(f"--id {key}: the store holds no such picture")
        found.append(by_key[key])
    return found

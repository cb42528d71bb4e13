"""`limner store`: list, verify, back up, export, repair, compact, change and erase from a search store."""

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import counting, counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.duplicates import duplicates_command
from limner.cli.erasure import held, print_erasure, print_unknown
from limner.cli.options import Cpu, StoreFolder, device
from limner.cli.watch import alerts_command, sync_command, waits
from limner.counted import counted
from limner.errors import DataError, SettingsError
from limner.names import Spelling
from limner.store_reports import (
    BackedUp,
    Compacted,
    Deleted,
    ErasureReport,
    GraphRecall,
    Repair,
    StoredPicture,
    StoreExport,
    StoreFacts,
    Verification,
)

if TYPE_CHECKING:
    from limner.server.audit import ErasableLog
    from limner.store.entry import StoredImage
    from limner.store.files import StoreFiles
    from limner.types import Encoder

app = group("List, delete, erase, verify, back up, export, repair and compact the pictures of a store.")


command(app, "sync")(sync_command)
command(app, "alerts")(alerts_command)
command(app, "duplicates")(duplicates_command)


@command(app, "info")
def info_command(store: StoreFolder) -> StoreFacts:
    """Describe a store: its model, number of pictures, and size on disk."""
    from limner.search.foreign_vectors import foreign_model
    from limner.store.files import StoreFiles
    from limner.store.folders import folders_of
    from limner.store.manifest import IN_STORE, MODEL_FOLDER
    from limner.store.path import size_of

    opened = StoreFiles.open(store)
    is_kept = opened.manifest.run == IN_STORE
    waiting = opened.waiting()
    facts = StoreFacts(
        pictures=len(opened) - waiting,
        waiting=waiting,
        run=opened.run,
        kept_from=opened.manifest.kept_from,
        model_bytes=size_of(store / MODEL_FOLDER) if is_kept else 0,
        fingerprint=opened.fingerprint,
        precision=opened.manifest.precision,
        created=opened.manifest.created,
        dim=opened.dim,
        map=opened.region_shape,
        bytes=size_of(store),
        folders=tuple(one.path for one in folders_of(opened)),
    )
    regions = "" if facts.map is None else f", with region features of {' × '.join(map(str, facts.map))}"
    out.print(
        f"{store}: {counted(facts.pictures, 'pictures')}{waits(waiting)}, {facts.bytes / 1e6:.1f} MB{regions}"
    )
    arithmetic = "" if facts.precision is None else f" in {facts.precision}"
    out.print(f"model {facts.fingerprint[:12]}{arithmetic} of run {facts.run}, made {facts.created}")
    if is_kept:
        # a link to a file of the run takes no room twice, but stays when the run goes
        origin = "" if facts.kept_from is None else f", from {facts.kept_from}"
        out.print(f"holds the model, {facts.model_bytes / 1e6:.1f} MB of its size{origin}")
    elif foreign_model(opened) is not None:
        out.print("vectors of another program, whose model limner has not")
    else:
        out.print("does not hold the model: it needs the run where it is")
    for folder in facts.folders:
        out.print(f"follows {folder}")
    return facts


@command(app, "list")
def list_command(
    store: StoreFolder,
    identity: Annotated[str | None, "Only pictures of this identity."] = None,
) -> list[StoredPicture]:
    """Print the pictures of a store in the order of their paths: key, path, identity."""
    from limner.store.files import StoreFiles

    entries = StoreFiles.open(store).images()
    chosen = [entry for entry in entries if identity is None or entry.identity == identity]
    for entry in chosen:
        identity_too = f"  [{entry.identity}]" if entry.identity is not None else ""
        out.print(f"{entry.id}  {entry.path}{identity_too}")
        for copy in entry.paths[1:]:
            out.print(f"{'':32}  {copy}  (a copy)")
    if not chosen:
        err.print(f"{store}: no such picture" if entries else f"{store}: the store is empty")
    return [StoredPicture.model_validate(entry, from_attributes=True) for entry in chosen]


# without a name nothing is deleted, rather than everything
@command(app, "delete", Conflict(needs="PICTURES --id --missing"), Conflict("--yes", needs="--missing"))
def delete_command(
    store: StoreFolder,
    pictures: Annotated[
        list[str] | None, typer.Argument(help="Pictures by path; a folder means all below it.")
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="A picture by its key; may be repeated.")
    ] = None,
    missing: Annotated[
        bool, "All pictures whose file is gone; refused where a disk may be away, or for more than a tenth."
    ] = False,
    dry_run: Annotated[bool, "Only say what would be deleted."] = False,
    yes: Annotated[bool, "Their files are gone for good: delete them in any case."] = False,
) -> Deleted:
    """Take pictures out of a store.

    Their files are left alone; `limner index` would add them again. A picture with a copy elsewhere stays with that.
    Their bytes stay on the disk for a while: see `limner store erase`.
    """
    from limner.store.files import StoreFiles
    from limner.store.missing import doubt, is_gone

    # as Path it would be the current folder
    if "" in (pictures or []):
        raise SettingsError("expected a picture or a folder, got an empty text")
    opened = StoreFiles.open(store)
    entries = opened.images()
    # of a picture with copies elsewhere these stay
    reason = None
    doomed = set(_named(entries, [Path(path) for path in pictures or []], ids or []))
    if missing:
        gone = {path for entry in entries for path in entry.paths if is_gone(path)}
        doomed |= gone
        # those that wait are known to be gone
        every = [path for entry in entries if entry.gone is None for path in entry.paths]
        reason = None if yes else doubt([path for path in every if path in gone], len(every))
    whole = [entry for entry in entries if doomed.issuperset(entry.paths)]
    left = sum(entry.gone is None for entry in entries) - sum(entry.gone is None for entry in whole)
    others = len(doomed) - sum(len(entry.paths) for entry in whole)
    waited = sum(entry.gone is not None for entry in whole)
    copies = f", {counted(waited, 'pictures')} of them out of the search already" if waited else ""
    copies += f", and {counted(others, 'copies')} of others" if others else ""
    if reason:
        said = (
            f"{store}: would delete {counted(len(whole), 'pictures', of=len(entries))}{copies}, but {reason}, as if "
            "its disk were away; {}add --yes if these files are gone for good"
        )
        if not dry_run:
            raise SettingsError(said.format("look by --dry-run, and "))
        err.print(said.format(""))
    if dry_run:
        for path in sorted(doomed):
            out.print(path)
        out.print(f"{store}: would delete {counted(len(whole), 'pictures', of=len(entries))}{copies}")
    else:
        count, waiting = opened.take_out(doomed), opened.waiting()
        left = len(opened) - waiting
        out.print(f"{store}: {count} deleted, {left} left{waits(waiting)}{copies}")
    _warn_of_return(opened, doomed)
    return Deleted(deleted=tuple(sorted(doomed)), left=left, dry_run=dry_run)


@command(app, "erase")
def erase_command(
    store: StoreFolder,
    identity: Annotated[str | None, "Pictures of this identity."] = None,
    paths: Annotated[
        # not Path, which makes the current folder of an empty text
        list[str] | None,
        typer.Option(
            "--path", metavar="PATH", help="A picture, or a folder with all below it; may be repeated."
        ),
    ] = None,
    where: Annotated[
        list[str] | None, "Pictures that meet a condition; of several, and --identity, all."
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="A picture or sentence by its key; may be repeated.")
    ] = None,
    uploads: Annotated[
        Path | None, "Folder of a server's uploads: delete the pictures there that no row names afterwards."
    ] = None,
    audit: Annotated[Path | None, "Audit log of a server: remove what it tells of these pictures."] = None,
    dry_run: Annotated[bool, "Only say what would be erased."] = False,
    yes: Annotated[bool, "Ask no question on a terminal."] = False,
) -> ErasureReport:
    """Erase pictures from the disk, with their sentences, and all that was deleted earlier.

    A search of all files of the store then proves it: exit code 1 if something is left. Without a name or condition
    only what was deleted earlier goes. Files of pictures that clients did not add are left alone. A path or key that
    the store does not hold is listed, with exit code 1, and so are an identity or condition that no picture meets, and
    sentences that stay and name an identity that no picture has any more; all else is done.
    """
    from limner.store.erasable import erasable
    from limner.store.erase import erase
    from limner.store.files import StoreFiles

    opened = StoreFiles.open(store)
    keys, files, conditions = ids or (), paths or (), where or ()
    chosen = erasable(opened, keys, identity=identity, paths=files, where=conditions)
    total = len(opened)
    count, sentences = len(chosen.images), len(chosen.sentences)
    if dry_run:
        for image in chosen.images:
            out.print(image.path)
        leftovers = _leftovers(opened, uploads)
        for path in leftovers:
            out.print(f"{path} (no row names it)")
        out.print(
            f"{store}: would erase {counted(count, 'pictures', of=total)}, "
            f"{counted(sentences, 'sentences')}, and what was deleted earlier"
        )
        names = {path.name for path in leftovers}
        planned = ErasureReport.planned(
            pictures=count,
            sentences=sentences,
            left=total - count,
            leftovers=len(leftovers),
            unknown=tuple(name for name in chosen.unknown if Path(name).name not in names),
            unmet=chosen.unmet,
            similar=chosen.similar,
            naming=chosen.naming,
        )
        print_unknown(store, planned)
        return planned.model_copy(update={"returning": _warn_of_return(opened, _paths_of(chosen.images))})
    question = f"{store}: erase {counted(count, 'pictures', of=total)} and {counted(sentences, 'sentences')} for good?"
    if (count or sentences) and not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        raise SettingsError("nothing was erased")
    forget = None if audit is None else _erasable_log(audit)
    with counting_each("rows") as progress:
        report = erase(
            opened,
            keys,
            identity=identity,
            paths=files,
            where=conditions,
            uploads=uploads,
            audit=forget,
            progress=progress,
        )
    print_erasure(store, report)
    return report.model_copy(update={"returning": _warn_of_return(opened, _paths_of(chosen.images))})


@command(app, "verify")
def verify_command(
    store: StoreFolder,
    hashes: Annotated[bool, "Read every picture file and compare its bytes."] = False,
) -> Verification:
    """Read a whole store and check each picture's file: exit code 1 if the store is damaged."""
    from limner.store.files import StoreFiles
    from limner.store.verify import BESIDE, DAMAGE, STALE, verify

    # unchecked: what is damaged is to be told, and not to end it
    opened = StoreFiles.open(store)
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
    if "file" in report.found:
        # no repair reads it either, and these numbers may not be all
        whole = "damaged: put back a copy of the store, or index into a new folder"
    elif not report.sound and not DAMAGE.keys() & report.found.keys() - set(BESIDE):
        whole = "whole, each picture once, but not what lies beside its rows"
    sentences = f" and {counted(report.sentences, 'sentences')}" if report.sentences else ""
    out.print(f"{store}: {counted(report.pictures, 'pictures')}{sentences}, {whole}")
    return report


@command(app, "backup")
def backup_command(
    store: StoreFolder,
    copy: Annotated[Path, "New folder for the copy."],
) -> BackedUp:
    """Copy a store as it is at one moment, and check the copy; others may search and change the store meanwhile."""
    from limner.store.backup import backup
    from limner.store.path import size_of

    with counting("pictures checked") as progress:
        report = backup(store, copy, progress=progress)
    size = size_of(copy)
    out.print(f"{copy}: {counted(report.pictures, 'pictures')}, {size / 1e6:.1f} MB, whole")
    return BackedUp(copy_folder=str(copy), pictures=report.pictures, sentences=report.sentences, bytes=size)


@command(app, "export")
def export_command(
    store: StoreFolder,
    exported: Annotated[Path, "New file or folder: .parquet, .lance, .jsonl; for faiss a folder."],
    to: Annotated[str, typer.Option("--to", help="parquet, lance, faiss or qdrant-jsonl.")],
) -> StoreExport:
    """Write vectors, keys, facts and sentences of all pictures for another program, as they are at one moment.

    What was deleted or erased is not among them. `limner index NAME NEW --vectors FILE` reads each of these formats.
    """
    from limner.search.store_export import export_store

    with counting("pictures") as progress:
        report = export_store(store, exported, to, progress=progress)
    out.print(
        f"{exported}: {held(report)}, width {report.dim}, "
        f"{report.bytes / 1e6:.1f} MB; model {report.fingerprint[:12]}"
    )
    return report


@command(app, "recall")
def recall_command(
    store: StoreFolder,
    recall: Annotated[
        float, typer.Option("--recall", help="Share of the ten best that has to be found.", min=0, max=1)
    ] = 0.995,
) -> GraphRecall:
    """Build the graph or the lists of approximate search, and measure how many of the ten best pictures they find.

    The queries are vectors of the store with noise. At the default share the last width is the one that searches use.
    """
    from limner.search.approximate import trial
    from limner.store.files import StoreFiles

    report = trial(StoreFiles.open(store).snapshot(), recall)
    out.print(f"{store}: {report}")
    return report


@command(app, "repair")
def repair_command(
    store: StoreFolder,
    run: Annotated[Path | None, "The store's run, if it has moved; it encodes what is damaged."] = None,
    accept_loss: Annotated[bool, "Give up what cannot be restored."] = False,
    cpu: Cpu = False,
) -> Repair:
    """Keep what is sound of a damaged store, and encode the rest again from the pictures' files.

    If anything would be lost, it is listed and nothing is changed, unless `--accept-loss` is given. A model in the
    store's folder is taken back from its run; a calibration is not repaired. Exit code 1 if one of them stays damaged,
    or anything is lost.
    """
    from limner.search.repair import repair
    from limner.store.files import StoreFiles

    def model() -> "Encoder":
        from limner.search.foreign_vectors import foreign_model
        from limner.store.kept_model import load_stored_model

        return foreign_model(opened) or load_stored_model(run or opened.run, opened, device=device(cpu))

    opened = StoreFiles.open(store)
    with counting("pictures") as progress:
        report = repair(opened, model, accept_loss=accept_loss, progress=progress)
    _print_repair(store, report)
    return report


def _print_repair(store: Path, report: Repair) -> None:
    would = "" if report.applied else "would be "
    for path in report.repaired:
        out.print(f"{would}encoded again: {path}")
    for path, reason in report.lost:
        out.print(f"{would}lost: {path}: {reason}")
    for text in report.lost_sentences:
        out.print(f"{would}lost: the sentence {text!r}")
    for text in report.missing:
        out.print(f"{would}lost: {text}")
    if report.model_from is not None:
        out.print(f"taken back from {report.model_from}: the model in the store's folder")
    for text in report.beside:
        out.print(f"not repaired: {text}")
    if report.applied:
        again = "; index the folders of this store again" if report.loses else ""
        out.print(f"{store}: {held(report)}, {len(report.repaired)} encoded again{again}")
    else:
        out.print(
            f"{store}: nothing was changed, since not all can be restored. Put back the store's files from a copy, or "
            f"repair with --accept-loss, which keeps {held(report)}, and "
            "index the folders again"
        )


@command(app, "compact")
def compact_command(store: StoreFolder) -> Compacted:
    """Write a store's file anew without what was deleted, and give its room back to the disk; searches continue."""
    from limner.store.files import StoreFiles
    from limner.store.path import size_of

    opened = StoreFiles.open(store)
    before = size_of(store)
    with opened.writing():
        opened.rows.scrub()
    after = size_of(store)
    out.print(
        f"{store}: {counted(len(opened), 'pictures')}, {after / 1e6:.1f} MB where it was {before / 1e6:.1f} MB"
    )
    return Compacted(pictures=len(opened), bytes_before=before, bytes_after=after)


def _paths_of(images: "Iterable[StoredImage]") -> list[str]:
    return [path for image in images for path in image.paths]


def _warn_of_return(files: "StoreFiles", paths: Collection[str]) -> int:
    """Say which of the files that were taken out the next look at the folders would index again; count them."""
    from limner.search.find_pictures import coming_back

    if back := coming_back(files, paths):
        err.print(
            f"{counted(len(back), 'files')} in folders that the store follows, e.g. {back[0]}: the next look at these "
            "(`limner index`, `store sync`, `watch`, `open`) indexes them again, without what was told of them; "
            "delete the files, or name them in a .limnerignore"
        )
    return len(back)


def _erasable_log(file: Path) -> "ErasableLog":
    from limner.server.audit import ErasableLog

    if not file.exists():
        raise DataError(f"{file}: no such file")
    return ErasableLog(file)


def _leftovers(files: "StoreFiles", uploads: Path | None) -> list[Path]:
    from limner.store.uploads import Uploads

    return [] if uploads is None else Uploads.of(uploads, files).leftovers(files)


def _named(entries: "Sequence[StoredImage]", paths: Sequence[Path], ids: Sequence[str]) -> list[str]:
    """The files at and below paths, and of keys. Raises `DataError` for a name without one."""
    found: list[str] = []
    held = {path for entry in entries for path in entry.paths}
    by_key = {entry.id: entry for entry in entries}
    spelling = Spelling(held)
    for path in paths:
        whole = spelling.of(os.path.abspath(path))  # noqa: PTH100 - as they were indexed: resolve() would follow links
        matches = [whole] if whole in held else []
        # with the separator: below "/a/b" lies "/a/b/c" and not "/a/bc"
        matches = matches or [one for one in held if one.startswith(whole + os.sep)]
        # an error and not zero deletions: the path is misspelt, and nothing has been deleted yet
        if not matches:
            raise DataError(f"{path}: the store holds no such picture and none below it")
        found += matches
    for key in ids:
        if key not in by_key:
            raise DataError(f"--id {key}: the store holds no such picture")
        found += by_key[key].paths
    return found

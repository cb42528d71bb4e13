"""`limner watch` and `limner store sync`: a store that is what its folders are."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.console import counting, err, out
from limner.cli.contract import as_json, command, emit, group
from limner.cli.options import Batch, Cpu, StoreFolder, device
from limner.counted import counted
from limner.store_reports import IndexReport, SyncReport

if TYPE_CHECKING:
    from limner.search.store import Store

app = group("Watch.")

_SHOWN = 20
"""Files that are named one by one; `--json` has all."""

Kept = Annotated[
    float,
    typer.Option(
        "--kept-days",
        min=0,
        metavar="DAYS",
        help="Days for which the picture of a deleted file waits for it to come back; then it is erased. 0 = at once.",
    ),
]


def sync_command(
    store: StoreFolder,
    dry_run: Annotated[bool, "Only say what would change."] = False,
    yes: Annotated[
        bool, "Files of folders that are away, or of more than a tenth of the store, are gone for good."
    ] = False,
    kept_days: Kept = 30,
    batch: Batch = 64,
    cpu: Cpu = False,
) -> SyncReport:
    """Make a store what its folders are: those that `limner index` was given.

    New and changed files are indexed, moved ones keep what was told of them, and deleted ones leave the search. Their
    pictures come back with their files until they are erased. A folder that is not there, or is empty, changes nothing:
    it is said, with exit code 1.
    """
    return _synced(store, cpu, kept_days=kept_days, batch_size=batch, dry_run=dry_run, yes=yes)[1]


def _synced(store: Any, cpu: bool, **values: Any) -> "tuple[Store, SyncReport]":
    from limner.search.store import open_store
    from limner.search.sync import SyncSettings, expect_folders, sync
    from limner.store.files import StoreFiles

    how = SyncSettings.parse(values)
    # before the model: a store without folders is told at once
    expect_folders(StoreFiles.open(store))
    opened = open_store(store, device=device(cpu))
    with counting("pictures") as progress:
        report = sync(opened.engine.encoder, opened.files, how, progress=progress)
    _tell(str(store), report)
    for line in report.standing(store).values():
        err.print(line)
    return opened, report


@command(app, "watch", schema=SyncReport)
def watch_command(
    store: StoreFolder,
    kept_days: Kept = 30,
    every: Annotated[
        float, typer.Option(min=1, help="Seconds after which all folders are looked through.")
    ] = 600,
    batch: Batch = 64,
    cpu: Cpu = False,
) -> None:
    """Keep a store what its folders are, until Ctrl-C.

    What `limner store sync` does at once is done with each change here, when its file has settled. A line tells of
    each, with --json one of JSON. All folders are looked through again every ten minutes, and every minute on disks of
    a network, whose systems tell of no changes.
    """
    from limner.search.sync import SyncSettings
    from limner.search.watch import expect_watchfiles, watch

    expect_watchfiles()
    how = {"kept_days": kept_days, "batch_size": batch}
    opened, report = _synced(store, cpu, **how)
    if as_json():
        emit(report, lines=True)
    watch(opened.engine.encoder, opened.files, tell_line, SyncSettings.parse(how), every=every)


def tell_line(told: SyncReport | str) -> None:
    """A line for each change, after the time of day."""
    now = time.strftime("%H:%M:%S")
    if isinstance(told, str):
        err.print(f"{now} {told}")
        return
    if as_json():
        emit(told, lines=True)
    _tell(now, told)


def waits(waiting: int) -> str:
    """Say how many pictures wait for their files, behind a count of those that a search finds; "" for none."""
    of_them = "waits for its file" if waiting == 1 else "wait for their files"
    return f"; {counted(waiting, 'pictures')} {of_them}" if waiting else ""


def say_unread(report: IndexReport) -> str:
    """Name files that were not read, or not wholly; return the counts of those that were not tried, for a last line."""
    from limner.search.find_pictures import hint, told

    # a broken disk may skip thousands; the count in the last line must stay in sight
    for path, reason in report.skipped[:_SHOWN]:
        err.print(f"skipped {path}: {reason}")
    if len(report.skipped) > _SHOWN:
        err.print(f"… and {len(report.skipped) - _SHOWN} more skipped")
    for path in report.cut_off[:_SHOWN]:
        err.print(f"read without its end, which is missing: {path}")
    if len(report.cut_off) > _SHOWN:
        err.print(f"… and {len(report.cut_off) - _SHOWN} more without their ends")
    passed = dict(report.passed_over)
    if (step := hint(passed)) is not None:
        err.print(step)
    left = ", ".join(f"{count:,} {name}" for name, count in report.left_out.items())
    over = f", {sum(passed.values())} passed over ({told(passed)})" if passed else ""
    return over + (f", left out: {left}" if left else "")


def _tell(beginning: str, report: SyncReport) -> None:
    others = say_unread(report)
    # files that were not opened yet: some may be no pictures
    read = {"added": report.added, "updated": report.updated}
    told = {
        **({"to read": sum(read.values())} if report.dry_run else read),
        "moved": report.moved,
        "returned": report.returned,
        "copies": report.copies,
        "replaced": report.replaced,
        "gone" if report.doubt is None else "gone, which stay": len(report.gone),
        "copies gone": report.copies_gone,
        "skipped": len(report.skipped),
        "erased": report.erased,
    }
    changes = ", ".join(f"{count:,} {name}" for name, count in told.items() if count) or "nothing new"
    would = "dry run: " if report.dry_run else ""
    away = f", {counted(len(report.away), 'folders')} away" if report.away else ""
    out.print(
        f"{beginning}: {would}{changes}, {report.unchanged:,} unchanged{others}{away}{waits(report.waiting)}"
    )
    for path in report.gone[:_SHOWN] if report.dry_run or report.doubt else ():
        out.print(f"gone: {path}")

"""`limner watch`, `limner store sync` and `store alerts`: a store that is what its folders are, and tells of it."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.alert_reports import AlertReport, SavedAlert
from limner.cli.conflicts import Conflict
from limner.cli.console import counting, err, out
from limner.cli.contract import as_json, command, emit, group
from limner.cli.options import Batch, Cpu, StoreFolder, device
from limner.counted import counted
from limner.store_reports import IndexReport, SyncReport
from limner.wire import no_picture_has

if TYPE_CHECKING:
    from limner.search.store import Store
    from limner.search.sync import SyncSettings

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
    from limner.search.sync import SyncSettings

    how = SyncSettings(kept_days=kept_days, batch_size=batch, dry_run=dry_run, yes=yes)
    return _synced(_opened(store, cpu), how)


def _opened(store: Any, cpu: bool) -> "Store":
    from limner.search.store import open_store
    from limner.search.sync import expect_folders
    from limner.store.files import StoreFiles

    # before the model: a store without folders is told at once
    expect_folders(StoreFiles.open(store))
    return open_store(store, device=device(cpu))


def _synced(opened: "Store", how: "SyncSettings") -> SyncReport:
    from limner.search.sync import sync

    with counting("pictures") as progress:
        report = sync(opened.engine.encoder, opened.files, how, progress=progress)
    folder = str(opened.files.folder)
    _tell(folder, report)
    for line in report.standing(folder).values():
        err.print(line)
    return report


@command(
    app,
    "watch",
    Conflict("--alert", needs="--at-least"),
    *(Conflict(name, needs="--alert") for name in ("--at-least", "--where", "--hook", "--notify")),
    Conflict("--send-picture", needs="--hook"),
    schema=SyncReport | AlertReport,
)
def watch_command(
    store: StoreFolder,
    kept_days: Kept = 30,
    every: Annotated[
        float, typer.Option(min=1, help="Seconds after which all folders are looked through.")
    ] = 600,
    alert: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="NAME TEXT", help="Save an alert: tell of new pictures that fit the text."),
    ] = None,
    at_least: Annotated[
        float | None, "Probability of such a picture, 0 to 1; of a model without a calibration its cosine."
    ] = None,
    where: Annotated[list[str] | None, "Condition that it meets, too; may be repeated."] = None,
    hook: Annotated[str | None, "Address that gets what the alert finds as JSON, by POST.", "URL"] = None,
    send_picture: Annotated[bool, "Send small pictures to this address, too."] = False,
    notify: Annotated[bool, "Show a notification on this desktop, too."] = False,
    batch: Batch = 64,
    cpu: Cpu = False,
) -> None:
    """Keep a store what its folders are, until Ctrl-C, and tell of new pictures that fit its alerts.

    What `limner store sync` does at once is done with each change here, when its file has settled. A line tells of
    each, with --json one of JSON. All folders are looked through again every ten minutes, and every minute on disks of
    a network, whose systems tell of no changes.

    An alert is kept in the store, until `limner store alerts --delete NAME`.
    """
    from limner.search.alerts import Alerting, save_alert
    from limner.search.sync import SyncSettings
    from limner.search.watch import expect_watchfiles, watch
    from limner.store.alerts import Alert

    expect_watchfiles()
    how = SyncSettings(kept_days=kept_days, batch_size=batch)
    made = None
    if alert is not None:
        # before the model is loaded
        given = {"name": alert[0], "text": alert[1], "at_least": at_least, "where": where or []}
        made = Alert.parse({**given, "hook": hook, "send_picture": send_picture, "notify": notify})
    opened = _opened(store, cpu)
    if made is not None:
        kept, fits = save_alert(opened.engine, made)
        if absent := opened.files.snapshot().metadata.absent(kept.request.conditions):
            err.print(no_picture_has(absent))
        err.print(
            f"alert {kept.name} is saved: it tells of new pictures with a {kept.by} of at least {kept.at_least:g}, "
            f"which {fits:,} of {counted(len(opened), 'pictures')} have"
        )
    report = _synced(opened, how)
    if as_json():
        emit(report, lines=True)
    alerting = Alerting(opened.engine, tell_line)
    try:
        watch(opened.engine.encoder, opened.files, tell_line, how, every=every, after=alerting.look)
    finally:
        alerting.close()


def alerts_command(
    store: StoreFolder, delete: Annotated[str | None, "Take this alert away.", "NAME"] = None
) -> list[SavedAlert]:
    """List the alerts of a store, which `limner watch STORE --alert` saves."""
    from limner.store.alerts import alerts_of, change_alerts, saved_alert, without
    from limner.store.files import StoreFiles

    files = StoreFiles.open(store)
    if delete is not None:
        change_alerts(files, lambda alerts: without(alerts, delete))
    found = [saved_alert(one) for one in alerts_of(files).values()]
    for one in found:
        more = f", web hook at {one.hook}" if one.hook else ""
        more += ", on the desktop" if one.notify else ""
        where = "".join(f", {condition}" for condition in one.where)
        out.print(f"{one.name}: {one.text!r}{where}, {one.by} of at least {one.at_least:g}{more}")
    if not found:
        err.print(f"{store}: no alerts")
    return found


def tell_line(told: SyncReport | AlertReport | str) -> None:
    """A line for each change, after the time of day."""
    now = time.strftime("%H:%M:%S")
    if isinstance(told, str):
        err.print(f"{now} {told}")
        return
    if as_json():
        emit(told, lines=True)
    if isinstance(told, SyncReport):
        _tell(now, told)
        return
    for line in told.lines(_SHOWN):
        out.print(f"{now} {line}")


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

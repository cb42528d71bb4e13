"""The report of an erasure as the command line prints it."""

import shlex
from typing import Any

from limner.cli.console import out
from limner.counted import counted
from limner.store_reports import ErasureReport


def held(report: Any) -> str:
    """Count pictures and sentences."""
    return f"{counted(report.pictures, 'pictures')} and {counted(report.sentences, 'sentences')}"


def print_unknown(store: object, report: ErasureReport, shown: int = 20) -> None:
    """Print what was named and is not there, or stays."""
    for name in report.unknown:
        out.print(
            f"{name}: the store holds no such picture or sentence and none below it; it spells paths as indexed"
        )
    for condition in report.unmet:
        out.print(f"{condition}: no picture of the store meets it")
    for name in report.similar:
        out.print(f"not erased: {name!r}, which looks like what was named")
    if (report.unknown or report.unmet) and not (report.found or report.dry_run):
        out.print(
            "if an earlier erasure of these failed or was killed, what it had deleted is off the disk now"
        )
    if report.naming:
        more, keys = len(report.naming) - shown, "".join(f" --id {key}" for key in report.naming[:shown])
        out.print(
            f"{counted(len(report.naming), 'sentences')} left with an identity that no picture has; this erases "
            f"them: limner store erase {shlex.quote(str(store))}{keys}"
            + (f" ({more} more, whose keys --json prints)" if more > 0 else "")
        )


def print_erasure(store: object, report: ErasureReport) -> None:
    """Print what was erased, and what was found of it afterwards."""
    files = f", {counted(report.uploads, 'files')} of uploads deleted" if report.uploads else ""
    files += (
        f", {counted(report.leftovers, 'pictures')} deleted that no row named" if report.leftovers else ""
    )
    of_log = f", {counted(report.audit_lines or 0, 'lines')} of the audit log changed"
    lines = "" if report.audit_lines is None else of_log
    out.print(
        f"{store}: {held(report)} erased, {report.left} left{files}{lines}; what was deleted earlier is gone"
    )
    traces = report.traces
    verdict = "none is left but in sentences that stay" if report.naming else "none is left"
    verdict = "some are left" if report.found else verdict
    out.print(
        f"searched {counted(report.files, 'files')} ({report.bytes / 1e6:.1f} MB) for "
        f"{counted(traces.searched, 'traces')}, "
        f"{traces.visible} of which were there before: {verdict}"
    )
    if traces.shared or traces.short:
        out.print(
            f"not searched for: {traces.shared} that stand in pictures, sentences or settings that stay, "
            f"{traces.short} that are too short or too plain"
        )
    if traces.model:
        out.print(f"{traces.model} stand in the files of the store's model, which stay as they are")
    for one in report.found:
        out.print(f"left in {one.file}: {one.kind} ({one.count})")
    if report.alerts:
        out.print(f"{counted(report.alerts, 'alerts')} that named these taken away")
    if report.learnt:
        out.print(
            f"the store's model has learnt from {report.learnt} of these pictures: its weights, and eight bytes of the "
            "digest of each, stay; train again without them and reindex"
        )
    elif report.learnt is None and report.pictures:
        # silence would be read as none
        out.print(
            "not known whether the store's model has learnt from these pictures: it is not at hand, is damaged "
            "(`limner store verify` tells), or does not say"
        )
    print_unknown(store, report)

"""`limner audit`: check a server's audit log, and remove what it tells of a person."""

from pathlib import Path
from typing import Annotated

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import out
from limner.cli.contract import command, group
from limner.counted import counted
from limner.errors import DataError
from limner.server.audit_reports import AuditForgotten, AuditVerification

app = group("Check a server's audit log, and remove what it tells of a person.")

AuditFile = Annotated[Path, "The audit log, which `limner serve --audit` writes."]


@command(app, "verify")
def verify_command(
    file: AuditFile,
    holds: Annotated[
        str | None, "A digest that an earlier call has printed; it must still be there.", "DIGEST"
    ] = None,
) -> AuditVerification:
    """Check that each line holds the digest of the line before: exit code 1 if one does not.

    Keep the printed digest elsewhere: with `--holds` it shows later that its line and those before it, back to the
    first that is left, are unchanged, but for those of which parts were forgotten.
    """
    from limner.server.audit import verify

    report = verify(file, holds)
    if report.broken is not None:
        out.print(f"{file}: line {report.broken}: {report.reason}")
    elif report.reason is not None:
        out.print(f"{file}: {report.reason}")
    else:
        since = "" if report.since is None else f" since {report.since}"
        removed = f", {report.removed} old ones removed" if report.removed else ""
        forgotten = f", parts of {report.forgotten} forgotten" if report.forgotten else ""
        out.print(f"{file}: whole, {counted(report.lines, 'lines')}{since}{removed}{forgotten}")
        out.print(f"digest of the last line: {report.digest}")
    return report


# without a name nothing is removed, rather than everything
@command(app, "forget", Conflict(needs="--id --text"))
def forget_command(
    file: AuditFile,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Key of a picture; may be repeated.")] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="A word or phrase of queries and conditions; may be repeated."),
    ] = None,
) -> AuditForgotten:
    """Remove keys of pictures, and queries that found them or contain a phrase; who asked and when stays.

    Each changed line says so and keeps its old digest, so that a digest that was kept still fits. A server may go on
    writing meanwhile.
    """
    from limner.server.audit import forget

    if not file.exists():
        raise DataError(f"{file}: no such file")
    try:
        done = forget(file, ids or (), texts or ())
    except OSError as error:
        raise DataError(f"{file}: cannot be written ({error.strerror or error})") from None
    out.print(f"{file}: something was removed from {counted(done.changed, 'lines')}")
    return done

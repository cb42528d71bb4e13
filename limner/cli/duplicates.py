"""`limner store duplicates`: pictures that are there several times, or nearly so."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import counting, err, out, save_sheet
from limner.cli.options import StoreFolder
from limner.counted import counted

if TYPE_CHECKING:
    from limner.search.duplicates import Duplicates
    from limner.store.files import StoreFiles
    from limner.wire import Hit

_SHEET = 1000
"""Pictures on a sheet at most."""


def duplicates_command(
    store: StoreFolder,
    least: Annotated[
        float,
        typer.Option(
            "--cosine", metavar="NUMBER", help="Cosine from which pictures are similar, above 0 to 1."
        ),
    ] = 0.95,
    sheet: Annotated[Path | None, "Draw the groups to a file (.png, .jpg), the one to keep first."] = None,
) -> "Duplicates":
    """Find pictures that are there several times: copies, other sizes and formats, and shots that are nearly the same.

    Each group names one to keep and what speaks for it. Nothing is changed.
    """
    from limner.search.duplicates import find_duplicates
    from limner.store.files import StoreFiles

    files = StoreFiles.open(store)
    with counting("pictures") as progress:
        found = find_duplicates(files, least, progress)
    for group in found.groups:
        why = f"  ({', '.join(group.why)})" if group.why else ""
        out.print(f"keep     {group.path}{why}")
        for other in group.others:
            out.print(f"{other.level:<8} {other.path}")
    others = sum(len(group.others) for group in found.groups)
    of = counted(found.pictures, "pictures")
    err.print(f"{counted(len(found.groups), 'groups')}, {others:,} beside what to keep, of {of}")
    if sheet is not None:
        from limner.search.contact_sheet import contact_sheet
        from limner.store.contents import thumbnails

        hits = _hits(found, files)
        drawn = contact_sheet(
            hits[:_SHEET],
            thumbnail=lambda key: thumbnails(files, [key])[0] or b"",
            query="each group by its number, first what to keep",
            names=True,
        )
        save_sheet(drawn, sheet)
    return found


def _hits(found: "Duplicates", files: "StoreFiles") -> "list[Hit]":
    """The pictures of each group as hits whose rank is its number."""
    import numpy as np

    snapshot = files.snapshot()
    hits: list[Hit] = []
    for number, group in enumerate(found.groups, start=1):
        # of equal bytes one look is enough
        shown = {group.keep: 1.0, **{one.id: one.cosine for one in group.others if one.level != "bytes"}}
        rows = [row for key in shown if (row := snapshot.row(key)) is not None]
        some = snapshot.hits(np.array(rows, np.int64), np.array(list(shown.values())[: len(rows)]))
        hits += [hit.model_copy(update={"rank": number}) for hit in some]
    return hits

"""`limner site`: a store as static files that search themselves in the browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from limner.cli.console import counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import MovedRun, StoreFolder, chosen
from limner.counted import counted

if TYPE_CHECKING:
    from limner.site.write import SiteReport

app = group("Site.")


@command(app, "site")
def site_command(
    store: StoreFolder,
    out_folder: Annotated[Path, "New folder for the site.", "OUT"],
    run: MovedRun = None,
    full_pictures: Annotated[
        bool, "The pictures themselves, too, without their metadata; else thumbnails alone."
    ] = False,
    facts: Annotated[
        bool, typer.Option("--facts/--no-facts", help="Names of files, identities and times of the pictures.")
    ] = True,
    tower: Annotated[
        str | None,
        "Text tower: int8, int8-tables, fp16 or fp32; if not given, the smallest that finds the model's own "
        "first ten pictures for 95 % of the store's sentences.",
    ] = None,
    runtime: Annotated[
        list[Path] | None,
        "What `npm pack` wrote of a library of the page, instead of fetching it; may be repeated.",
        "FILE.tgz",
    ] = None,
) -> "SiteReport":
    """Write a store as a folder of files that any web host serves and that searches itself in the browser.

    It holds a search page, thumbnails, vectors and the text tower of the model. Queries are answered in the browser, by
    the embedding alone: nothing is re-ranked, and there are no composed queries. See docs/site.md.
    """
    from limner.site.tower import ENOUGH, TowerType
    from limner.site.write import write_site

    with counting_each("pictures") as progress:
        report = write_site(
            store,
            out_folder,
            run=run,
            full_pictures=full_pictures,
            facts=facts,
            tower=None if tower is None else chosen("--tower", tower, get_args(TowerType)),
            runtime=runtime or (),
            progress=progress,
            doing=lambda what: err.print(f"writing: {what}"),
        )
    out.print(f"{out_folder}: {counted(report.pictures, 'pictures')}, {report.bytes / 1e6:.1f} MB")
    out.print(
        f"  pictures {report.picture_bytes / 1e6:.1f} MB, vectors {report.vector_bytes / 1e6:.1f}, text tower in "
        f"{report.tower} {report.tower_bytes / 1e6:.1f}, libraries {report.library_bytes / 1e6:.1f}"
    )
    tried = ", ".join(f"{100 * share:.1f} % by {kind}" for kind, share in report.same.items())
    out.print(
        f"  the model's own first ten pictures, in its order, of {counted(report.sentences, 'sentences')}: {tried}"
    )
    if report.same[report.tower] < ENOUGH:
        err.print(
            f"{out_folder}: the page's first ten pictures differ from the server's more often than it should be"
        )
    if report.reranks:
        err.print(f"{out_folder}: the page ranks by the embedding alone; a server of this store re-ranks")
    if report.left_out:
        err.print(
            f"{out_folder}: {counted(report.left_out, 'pictures')} left out; gone or changed since they were indexed"
        )
    if report.without_full:
        err.print(
            f"{out_folder}: {counted(report.without_full, 'pictures')} with a thumbnail alone; gone or "
            "changed since they were indexed"
        )
    out.print(
        f"next: python -m http.server --bind 127.0.0.1 --directory {out_folder}, then http://127.0.0.1:8000"
    )
    return report

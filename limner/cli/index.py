"""`limner index` and `limner reindex`."""

from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, err, out
from limner.cli.options import Cpu, device
from limner.runs import load_run
from limner.search.index import IndexSummary, index_pictures
from limner.search.metadata import read_metadata
from limner.search.opening import store_for
from limner.search.reindexing import reindex
from limner.search.store import Store

_SHOWN = 20


def index_command(
    run: Annotated[Path, typer.Argument(help="Run folder of the model.")],
    store: Annotated[Path, typer.Argument(help="Folder of the store; made if it is not there.")],
    pictures: Annotated[list[Path], typer.Argument(help="Picture files and folders of them.")],
    metadata: Annotated[
        Path | None,
        typer.Option(help="CSV or JSONL with a column 'file', optionally 'identity', and any others."),
    ] = None,
    batch: Annotated[int, typer.Option(help="Pictures encoded and committed at once.")] = 256,
    stage: Annotated[
        str | None, typer.Option(help="Checkpoint of this stage instead of the best one.")
    ] = None,
    cpu: Cpu = False,
) -> None:
    """Add pictures to a store. Running it again adds only what is new; what cannot be read is skipped and listed."""
    notes = read_metadata(metadata) if metadata is not None else None
    encoder = load_run(run, stage=stage, device=device(cpu))
    opened = store_for(encoder, run if stage is None else encoder.path, store)
    with counting("pictures") as progress:
        summary = index_pictures(
            encoder, opened, pictures, metadata=notes, batch_size=batch, progress=progress
        )
    _say(summary, store, opened)
    if summary.unused_metadata:
        err.print(f"{summary.unused_metadata} entries of {metadata} name none of these pictures")


def reindex_command(
    store: Annotated[Path, typer.Argument(help="Folder of the store; it is left as it is.")],
    run: Annotated[Path, typer.Argument(help="Run folder of the other model.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Folder of the new store.")],
    batch: Annotated[int, typer.Option(help="Pictures encoded and committed at once.")] = 256,
    cpu: Cpu = False,
) -> None:
    """Move to another model: the pictures of a store, and what is known of them, into a new one."""
    old = Store.open(store)
    encoder = load_run(run, device=device(cpu))
    opened = store_for(encoder, run, new)
    with counting("pictures") as progress:
        summary = reindex(old, encoder, opened, batch_size=batch, progress=progress)
    _say(summary, new, opened)


def _say(summary: IndexSummary, folder: Path, store: Store) -> None:
    for path, reason in summary.skipped[:_SHOWN]:
        err.print(f"skipped {path}: {reason}")
    if len(summary.skipped) > _SHOWN:
        err.print(f"… and {len(summary.skipped) - _SHOWN} more skipped")
    out.print(
        f"{folder}: {len(store)} pictures; {summary.added} added, {summary.updated} updated, "
        f"{summary.unchanged} unchanged, {len(summary.skipped)} skipped"
    )

"""`limner index` and `limner search`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, err, out
from limner.cli.options import Cpu, Rerank, device, first
from limner.errors import SettingsError
from limner.runs import load_run
from limner.search.index import index_pictures
from limner.search.metadata import read_metadata
from limner.search.opening import open_store, store_for
from limner.search.sheet import contact_sheet

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
    for path, reason in summary.skipped[:_SHOWN]:
        err.print(f"skipped {path}: {reason}")
    if len(summary.skipped) > _SHOWN:
        err.print(f"… and {len(summary.skipped) - _SHOWN} more skipped")
    out.print(
        f"{store}: {len(opened)} pictures; {summary.added} added, {summary.updated} updated, "
        f"{summary.unchanged} unchanged, {len(summary.skipped)} skipped"
    )
    if summary.unused_metadata:
        err.print(f"{summary.unused_metadata} entries of {metadata} name none of these pictures")


def search_command(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    text: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many pictures, at least 1.")] = 10,
    image: Annotated[Path | None, typer.Option(help="Search by this picture instead of a text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    sheet: Annotated[Path | None, typer.Option(help="Draw the ranked pictures into this file.")] = None,
    truth: Annotated[
        str | None, typer.Option(help="The identity that is right: frames its pictures green, others red.")
    ] = None,
    rerank: Rerank = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --json: where the matcher looked, word by word.")
    ] = False,
    run: Annotated[Path | None, typer.Option(help="Run folder of the model, if it has moved.")] = None,
    cpu: Cpu = False,
) -> None:
    """Find the pictures of a store that fit a description, or that are like a picture."""
    if (text is None) == (image is None):
        raise SettingsError("give either a text or --image FILE to search for")
    if image is not None and (rerank is not None or explain):
        raise SettingsError("--rerank and --explain: a matcher reads a text, not a picture")
    if explain and not as_json:
        raise SettingsError("--explain: attention comes with --json; `limner figure attention` draws it")
    engine = open_store(store, run=run, device=device(cpu))
    if text is not None:
        hits = engine.search(text, k, rerank=first(rerank), explain=explain)
    else:
        hits = engine.search_image(Path(image or ""), k)
    if as_json:
        typer.echo(json.dumps([hit.to_dict() for hit in hits], indent=2))
    else:
        for hit in hits:
            identity = f"  [{hit.identity}]" if hit.identity is not None else ""
            sure = "" if hit.confidence is None else f"  {hit.confidence:6.1%}"
            out.print(f"{hit.rank:>3}  {hit.score:+.3f}{sure}  {hit.path}{identity}")
        if not hits:
            err.print(f"{store}: the store is empty")
    if sheet is not None:
        query: str | Path = text if text is not None else Path(image or "")
        try:
            contact_sheet(hits, query=query, truth=truth).save(sheet)
        # Pillow knows formats by the file's ending, and calls an unknown one a ValueError
        except (OSError, ValueError) as error:
            raise SettingsError(f"{sheet}: the sheet cannot be saved ({error}); try a name in .jpg") from None
        err.print(f"drawn to {sheet}")

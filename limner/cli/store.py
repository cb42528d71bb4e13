"""`limner store`: what a search store holds, and looking after it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, err, out
from limner.cli.options import StoreFolder
from limner.errors import DataError, SettingsError
from limner.search.entry import StoredImage
from limner.search.store_files import StoreFiles
from limner.search.store_path import size_of
from limner.search.verify import DAMAGE, STALE, verify

app = typer.Typer(help="List, delete, verify and compact the pictures of a store.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command("info")
def info_command(store: StoreFolder, as_json: Json = False) -> None:
    """Say what a store is: its model, how many pictures, its size on disk."""
    opened = StoreFiles.open(store)
    size = size_of(store)
    facts = {
        "pictures": len(opened),
        "run": opened.manifest.run,
        "fingerprint": opened.fingerprint,
        "created": opened.manifest.created,
        "dim": opened.dim,
        "map": opened.map_shape,
        "bytes": size,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    regions = "" if opened.map_shape is None else f", with maps of {' × '.join(map(str, opened.map_shape))}"
    out.print(f"{store}: {facts['pictures']} pictures, {size / 1e6:.1f} MB{regions}")
    out.print(f"model {opened.fingerprint[:12]} of run {opened.manifest.run}, made {opened.manifest.created}")


@app.command("list")
def list_command(
    store: StoreFolder,
    identity: Annotated[str | None, typer.Option(help="Only pictures of this identity.")] = None,
    as_json: Json = False,
) -> None:
    """Print the pictures of a store in the order of their paths: key, path, identity."""
    entries = sorted(StoreFiles.open(store).entries().values(), key=lambda entry: entry.path)
    chosen = [entry for entry in entries if identity is None or entry.identity == identity]
    if as_json:
        typer.echo(json.dumps([_facts(entry) for entry in chosen], indent=2))
        return
    for entry in chosen:
        out.print(
            f"{entry.id}  {entry.path}" + (f"  [{entry.identity}]" if entry.identity is not None else "")
        )
    if not chosen:
        err.print(f"{store}: no such picture" if entries else f"{store}: the store is empty")


@app.command("delete")
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
) -> None:
    """Take pictures out of a store. Their files are left alone; `limner index` would add them again."""
    if not (pictures or ids or missing):
        raise SettingsError("name pictures to delete: their paths, --id KEY or --missing")
    opened = StoreFiles.open(store)
    entries = list(opened.entries().values())
    doomed = {entry.id: entry for entry in _named(entries, pictures or [], ids or [])}
    if missing:
        doomed |= {entry.id: entry for entry in entries if not Path(entry.path).exists()}
    if dry:
        for entry in doomed.values():
            out.print(entry.path)
        out.print(f"{store}: would delete {len(doomed)} of {len(entries)} pictures")
        return
    count = opened.delete(list(doomed))
    out.print(f"{store}: {count} deleted, {len(opened)} left")


@app.command("verify")
def verify_command(
    store: StoreFolder,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Read every picture file and compare its bytes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read all of a store, and look at each picture's file: exit code 1 when the store is damaged."""
    opened = StoreFiles.open(store)
    with counting("pictures") as progress:
        report = verify(opened, hashes=hashes, workers=min(16, 2 * (os.cpu_count() or 1)), progress=progress)
    if as_json:
        typer.echo(json.dumps(report.model_dump(mode="json"), indent=2))
    else:
        for kind, said in {**DAMAGE, **STALE}.items():
            if kind in report.found:
                one = report.found[kind]
                kept = "damaged" if kind in DAMAGE else "stale"
                out.print(f"{kept}: {said}: {one.count}, e.g. {one.example}")
        whole = "whole, each picture once" if report.sound else "damaged: index into a new folder"
        sentences = f" and {report.sentences} sentences" if report.sentences else ""
        out.print(f"{store}: {report.pictures} pictures{sentences}, {whole}")
    if not report.sound:
        raise typer.Exit(1)


@app.command("compact")
def compact_command(
    store: StoreFolder,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Remove deleted pictures from the disk now; servers must open the store again."
        ),
    ] = False,
) -> None:
    """Join the small files that many changes leave; searches go on meanwhile."""
    opened = StoreFiles.open(store)
    before = size_of(store)
    opened.compact(purge=purge)
    after = size_of(store)
    out.print(f"{store}: {len(opened)} pictures, {after / 1e6:.1f} MB where it was {before / 1e6:.1f} MB")
    if not purge:
        out.print("what is replaced or deleted stays on the disk for seven days, or until --purge")


def _facts(entry: StoredImage) -> dict[str, object]:
    return {
        "id": entry.id,
        "path": entry.path,
        "identity": entry.identity,
        "metadata": dict(entry.metadata),
        "size": entry.size,
        "sha256": entry.sha256,
    }


def _named(entries: Sequence[StoredImage], paths: Sequence[Path], ids: Sequence[str]) -> list[StoredImage]:
    """The entries of paths, of all below them, and of keys. Raises `DataError` for one that names none."""
    found: list[StoredImage] = []
    by_path = {entry.path: entry for entry in entries}
    by_key = {entry.id: entry for entry in entries}
    for path in paths:
        whole = os.path.abspath(path)  # noqa: PTH100 - as they were indexed: resolve() would follow links
        own = [by_path[whole]] if whole in by_path else []
        own = own or [entry for entry in entries if entry.path.startswith(whole + os.sep)]
        if not own:
            raise DataError(f"{path}: the store holds no such picture and none below it")
        found += own
    for key in ids:
        if key not in by_key:
            raise DataError(f"--id {key}: the store holds no such picture")
        found.append(by_key[key])
    return found

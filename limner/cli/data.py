"""`limner data`: look at a dataset, or draw one."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, out
from limner.data.check import check_dataset, render
from limner.data.readers import FORMATS, open_dataset
from limner.demo.people import generate_people

app = typer.Typer(help="Check a dataset, or draw one of generated people.", no_args_is_help=True)

Data = Annotated[str, typer.Argument(help=f"FORMAT:PATH with FORMAT one of {', '.join(FORMATS)}.")]


@app.command("check")
def check_command(
    data: Data,
    fast: Annotated[
        bool, typer.Option("--fast", help="Only look for the pictures, do not open them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Find what is wrong with a dataset before training does: exit code 1 when there are errors."""
    dataset = open_dataset(data)
    with counting("pictures") as progress:
        report = check_dataset(dataset, workers=os.cpu_count() or 1, progress=progress, open_images=not fast)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        out.print(render(report))
    if not report.sound:
        raise typer.Exit(1)


@app.command("people")
def people_command(
    folder: Annotated[Path, typer.Argument(help="Folder to draw into.")],
    identities: Annotated[int, typer.Option(help="How many different people.")] = 800,
    seed: Annotated[int, typer.Option(help="Another seed draws other people.")] = 0,
    val: Annotated[int | None, typer.Option(help="People for validation (default: a tenth).")] = None,
    test: Annotated[int | None, typer.Option(help="People for testing (default: a fifth).")] = None,
    workers: Annotated[int, typer.Option(help="Processes (default: one a core).")] = 0,
) -> None:
    """Draw people and describe them, in the form of CUHK-PEDES."""
    with counting("people") as progress:
        summary = generate_people(
            folder,
            identities,
            seed,
            val=val,
            test=test,
            workers=workers or os.cpu_count() or 1,
            progress=progress,
        )
    out.print(
        f"{folder}: {summary.identities} people, {summary.images} pictures, {summary.sentences} sentences; "
        f"use it as cuhk-pedes:{folder}"
    )

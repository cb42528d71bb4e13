"""`limner data`: look at a dataset, or draw one."""

import os
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, out
from limner.cli.contract import UnsoundError, command, group
from limner.cli.schemas import DataReport, PeopleDrawn

app = group("Check a dataset, or draw one of generated people.")


@command(app, "check")
def check_command(
    data: Annotated[str, typer.Argument(metavar="FORMAT:PATH", help="The dataset (docs/data-formats.md).")],
    fast: Annotated[
        bool, typer.Option("--fast", help="Only look for the pictures, do not open them.")
    ] = False,
) -> DataReport:
    """Find what is wrong with a dataset before training does: exit code 1 when there are errors."""
    from limner.data.check import check_dataset, render
    from limner.data.readers import open_dataset

    dataset = open_dataset(data)
    with counting("pictures") as progress:
        # threads, one a core: decoding and hashing leave Python free; cpu_count() may be None
        report = check_dataset(dataset, workers=os.cpu_count() or 1, progress=progress, open_images=not fast)
    # printed whether it is sound or not; the exit code alone differs, for scripts
    out.print(render(report))
    result = DataReport.model_validate(report.to_json())
    if not result.sound:
        raise UnsoundError(result)
    return result


@command(app, "people")
def people_command(
    folder: Annotated[Path, typer.Argument(help="Folder to draw into.")],
    identities: Annotated[int, typer.Option(help="How many different people.")] = 800,
    seed: Annotated[int, typer.Option(help="Another seed draws other people.")] = 0,
    # None: the shares depend on how many people there are
    val: Annotated[int | None, typer.Option(help="People for validation (default: a tenth).")] = None,
    test: Annotated[int | None, typer.Option(help="People for testing (default: a fifth).")] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            "--language",
            metavar="en|de|zh|vi",
            help="Language of the sentences (default: en); several with commas between them.",
        ),
    ] = None,
    # 0, since the help in docs/cli.md is generated, and shows defaults: no machine's number of cores
    workers: Annotated[int, typer.Option(help="Processes (default: one a core).")] = 0,
) -> PeopleDrawn:
    """Draw people and describe them, in the form of CUHK-PEDES."""
    from limner.demo.people import generate_people

    with counting("people") as progress:
        summary = generate_people(
            folder,
            identities,
            seed,
            val=val,
            test=test,
            languages=language or ("en",),
            workers=workers or os.cpu_count() or 1,
            progress=progress,
        )
    out.print(
        f"{folder}: {summary.identities} people, {summary.images} pictures, {summary.sentences} sentences; "
        # the next command's argument, as it is to be typed
        f"use it as cuhk-pedes:{folder}"
    )
    return PeopleDrawn(
        folder=folder,
        identities=summary.identities,
        images=summary.images,
        sentences=summary.sentences,
        drawn=summary.drawn,
    )

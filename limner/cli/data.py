"""`limner data`: look at a dataset, or draw one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import counting, counting_each, out, save_sheet, say_looks
from limner.cli.contract import command, group
from limner.counted import counted
from limner.documented import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from limner.data.records import Dataset
    from limner.inference.seen_before import PretrainedData, SeenBefore
    from limner.inference.suspicious_captions import DataReport, SuspiciousCaptions

app = group("Check a dataset, or draw one of generated people.")


class PeopleDrawn(Result):
    """The content of a folder of generated people."""

    folder: Path
    """The folder; `cuhk-pedes:FOLDER` names the dataset."""
    identities: int
    """People."""
    images: int
    """Pictures."""
    sentences: int
    """Descriptions."""
    drawn: int
    """People drawn by this call; 0 if all existed."""


class TripletsDrawn(Result):
    """The content of a folder of generated triplets."""

    folder: Path
    """The folder; `cirr:FOLDER` names the set."""
    people: int
    """People."""
    images: int
    """Pictures."""
    triplets: int
    """Triplets of a reference, a sentence and a target."""
    content: str
    """Digest of pictures and sentences."""


@command(app, "check", Conflict("--sheet", needs="--with", why="shows captions that a run suspects"))
def check_command(
    data: Annotated[str, "The dataset (docs/data-formats.md).", "FORMAT:PATH"],
    fast: Annotated[bool, "Only look for the pictures, do not open them."] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="RUN", help="Also find captions that this run holds for another picture's."
        ),
    ] = None,
    split: Annotated[str, "With --with: the split whose captions are judged."] = "train",
    worst: Annotated[int, typer.Option(min=1, help="With --with: how many captions to show.")] = 20,
    sheet: Annotated[
        Path | None, "With --with: draw these with their pictures to a file (.png, .jpg)."
    ] = None,
    pretrained: Annotated[
        str | None,
        "Name what weights have seen of the dataset by their own card: a name of docs/terms.md, their file or "
        "folder, or a run.",
        "NAME|RUN",
    ] = None,
    pretrained_data: Annotated[
        str | None,
        "A set that weights were trained on: count what it shares with the dataset.",
        "FORMAT:PATH",
    ] = None,
) -> "DataReport":
    """Find what is wrong with a dataset before training does: exit code 1 when there are errors."""
    from limner.data.check import check_dataset, render
    from limner.data.readers import open_dataset
    from limner.inference.seen_before import pretrained_terms, seen_before
    from limner.inference.suspicious_captions import DataReport

    dataset = open_dataset(data)
    # before every picture has been opened: a misspelt name is told at once
    judged = None if run is None else dataset.split(split)
    seen = [] if pretrained is None else seen_before(pretrained_terms(pretrained), dataset)
    other = None if pretrained_data is None else open_dataset(pretrained_data)
    with counting("pictures") as progress:
        # threads, one a core: decoding and hashing leave Python free; cpu_count() may be None
        report = check_dataset(dataset, workers=os.cpu_count() or 1, progress=progress, open_images=not fast)
    # printed whether it is sound or not; the exit code alone differs, for scripts
    out.print_lines(render(report))
    result = DataReport(**dict(report))
    if pretrained is not None or other is not None:
        result = result.replace(pretrained=_pretrained(pretrained, seen, dataset, other, fast))
    if result.sound and run is not None and judged is not None:
        result = result.replace(suspicious=_suspicious(run, judged, worst, sheet))
    return result


def _pretrained(
    weights: str | None, seen: "Sequence[SeenBefore]", dataset: "Dataset", other: "Dataset | None", fast: bool
) -> "PretrainedData":
    """Print what weights have seen of a dataset, by their card and by a set that they were trained on."""
    from limner.data.shared_records import shared_records
    from limner.inference.seen_before import PretrainedData

    out.print()
    for one in seen:
        nothing = (
            f"{one.name}: its card names what it was trained on, and {dataset.terms.name} is not among it"
        )
        out.print(one.line() or nothing)
    if weights is not None and not seen:
        out.print(f"{weights}: no card says anything of {dataset.terms.name}")
    rows = []
    if other is not None:
        with counting("pictures") as progress:
            rows = shared_records(dataset, other, read_files=not fast, progress=progress)
        out.print(f"Shared with {other.source}, by split:")
        for row in rows:
            where = ", ".join(f"{name} {count:,}" for name, count in row.in_splits.items())
            same_bytes = "" if row.same_bytes is None else f", {row.same_bytes:,} by their bytes"
            out.print(
                f"  {row.split}: {counted(row.same_number, 'pictures', of=row.pictures)} by the number in the file name"
                f"{f' ({where})' if where else ''}{same_bytes}; "
                f"{counted(row.same_caption, 'captions', of=row.captions)}"
            )
    return PretrainedData(
        seen=tuple(seen),
        compared_with=None if other is None else other.source,
        shared=tuple(rows),
    )


def _suspicious(folder: Path, dataset: "Dataset", worst: int, sheet: Path | None) -> "SuspiciousCaptions":
    """Print and draw the captions that a run holds for another picture's, the worst first."""
    from limner.inference.evaluations import note_look
    from limner.inference.load import load_model
    from limner.inference.suspicious_captions import SuspiciousCaptions, suspicious_captions
    from limner.search.contact_sheet import caption_sheet

    model = load_model(folder)
    with counting_each("pictures") as progress:
        found = suspicious_captions(model, dataset, progress=progress)
    wrong = sum(one.right <= 0.5 for one in found)
    split = dataset.records[0].split or ""
    say_looks(*note_look(model, dataset.fingerprint, split, "captions"), split)
    out.print()
    out.print(
        f"{counted(wrong, 'captions', of=len(found))} of {split} are probably wrong, judged by {folder}; the worst:"
    )
    for one in found[:worst]:
        out.print(f"  {one.right:4.0%} right  {one.file}: {one.caption}")
    if sheet is not None:
        rows = [(one.file, one.caption, f"{one.right:.0%} right · {one.file.name}") for one in found[:worst]]
        save_sheet(caption_sheet(rows), sheet)
    return SuspiciousCaptions(
        run=folder, split=split, captions=len(found), wrong=wrong, worst=tuple(found[:worst])
    )


@command(app, "people")
def people_command(
    folder: Annotated[Path, "Folder to draw into."],
    identities: Annotated[int, "How many different people."] = 800,
    seed: Annotated[int, "Another seed draws other people."] = 0,
    # None: the shares depend on how many people there are
    val: Annotated[int | None, "People for validation (default: a tenth)."] = None,
    test: Annotated[int | None, "People for testing (default: a fifth)."] = None,
    language: Annotated[
        list[str] | None,
        "Language of the sentences (default: en); several with commas between them.",
        "en|de|zh|vi",
    ] = None,
    # 0, since the help in docs/cli.md is generated, and shows defaults: no machine's number of cores
    workers: Annotated[int, "Processes (default: one a core)."] = 0,
) -> PeopleDrawn:
    """Draw people and describe them, in the form of CUHK-PEDES."""
    from limner.people import generate_people

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
        f"{folder}: {counted(summary.identities, 'people')}, {counted(summary.images, 'pictures')}, "
        f"{counted(summary.sentences, 'sentences')}; "
        # the next command's argument, as it is to be typed
        f"use it as cuhk-pedes:{folder}"
    )
    return PeopleDrawn.model_validate(summary, from_attributes=True)


@command(app, "triplets")
def triplets_command(
    people: Annotated[Path, "Folder of `limner data people`."],
    folder: Annotated[Path, "Folder to draw into."],
    twins: Annotated[int, "Near-twins of each person, 1 to 8."] = 4,
    seed: Annotated[int, "Another seed draws other changes and pictures."] = 0,
    workers: Annotated[int, "Processes (default: one a core)."] = 0,
) -> TripletsDrawn:
    """Draw near-twins of generated people, each with one change, and sentences that ask for it, in the form of CIRR."""
    from limner.people import draw_triplets

    with counting("people") as progress:
        summary = draw_triplets(
            people,
            folder,
            seed=seed,
            twins=twins,
            workers=workers or os.cpu_count() or 1,
            progress=progress,
        )
    out.print(
        f"{folder}: {counted(summary.triplets, 'triplets')} of {counted(summary.people, 'people')}, "
        f"{counted(summary.images, 'pictures')}; "
        f"use them as cirr:{folder}"
    )
    return TripletsDrawn(
        folder=folder,
        people=summary.people,
        images=summary.images,
        triplets=summary.triplets,
        content=summary.digest,
    )

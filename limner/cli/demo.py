"""`limner demo`: the whole way on generated people, from drawing them to searching for them."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from limner.cli.console import counting, counting_each, err, out
from limner.cli.training_progress import TrainingProgress
from limner.data.people import OPTIONS_FILE, generate_people
from limner.data.readers import open_dataset
from limner.data.records import Dataset, group_numbers
from limner.errors import DataError, SettingsError
from limner.evaluation.colour_baseline import colour_similarity
from limner.evaluation.measures import RecallAt
from limner.evaluation.ranking import rank_scores
from limner.evaluation.relevance import Relevance
from limner.evaluation.report import render
from limner.inference import load_model
from limner.inference.calibration import calibrate_run, load_calibration, write_calibration
from limner.inference.checkpoint import write_text
from limner.inference.evaluate_run import evaluate_run
from limner.inference.trained import RUN_FILE
from limner.recipes import change, get_recipe
from limner.search.card import FILE as CARD
from limner.search.card import read_card
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.opening import store_for
from limner.search.sheet import contact_sheet
from limner.search.store import check_empty
from limner.training.loop import train

RECIPE = "dual-path-people"
PEOPLE, VAL, TEST = 1800, 100, 200
VIEWS = (2, 2)
SHEETS = ("search-1.png", "search-2.png", "search-3.png")


def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder that everything is written to.")] = Path(
        "demo-output"
    ),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    identities: Annotated[
        int, typer.Option(help="People drawn, 100 for validation and 200 for testing.")
    ] = PEOPLE,
) -> None:
    """Draw people, train both stages, evaluate, index, and search three times.

    Run again, it goes on where it stopped. It writes over nothing that a demo has not made.
    """
    began = time.monotonic()
    people, run, store = folder / "people", folder / "run", folder / "store"
    _claim(folder)
    out.print(f"1. Drawing {identities} people")
    with counting("people") as progress:
        drawn = generate_people(
            people,
            identities,
            0,
            val=VAL,
            test=TEST,
            views=VIEWS,
            workers=os.cpu_count() or 1,
            progress=progress,
        )
    out.print(f"   {drawn.images} pictures, {drawn.sentences} sentences in {people}")

    recipe = change(get_recipe(RECIPE), settings or [])
    dataset = open_dataset(f"cuhk-pedes:{people}")
    out.print(f"2. Training '{recipe.name}', two stages; the best epoch is chosen on validation people")
    with TrainingProgress(err) as bars:
        train(recipe, dataset.split("train"), dataset.split("val"), run, resume=True, listener=bars.listen)

    test = dataset.split("test")
    out.print(f"3. Evaluating on {TEST} people never seen ({len(test)} pictures)")
    encoder = load_model(run)
    with counting_each("pictures") as count:
        report = evaluate_run(encoder, test, "test", progress=count)
    out.print(render(report))
    colours = colour_baseline(test)
    out.print(
        f"   text→image R@1 {report.text_to_image['R@1']:.1f}%, a bag of colours {colours:.1f}%, "
        f"chance {chance(test):.1f}%"
    )
    write_text(folder / "report.json", report.to_json())

    # what makes match probabilities of scores: fitted on validation people, like the choice of the epoch
    try:
        with counting_each("pictures") as count:
            write_calibration(run, calibrate_run(encoder, dataset.split("val"), "val", progress=count))
    except DataError as error:
        out.print(f"   searches have no match probability: {error}")

    out.print("4. Indexing the test people's pictures")
    opened = store_for(encoder, run, store)
    facts = {
        str(record.image.resolve()): {"identity": record.group, "camera": record.image.parent.name}
        for record in test.records
    }
    with counting("pictures") as progress:
        index_pictures(encoder, opened, list(facts), metadata=facts, progress=progress)

    out.print("5. Searching")
    best: tuple[int, str] | None = None
    engine = Engine(opened, encoder, load_calibration(run, encoder.fingerprint))
    for number, (sentence, truth) in enumerate(examples(test), start=1):
        hits = engine.search(sentence, 10)
        found = next((hit.rank for hit in hits if hit.identity == truth), None)
        sheet = folder / SHEETS[number - 1]
        contact_sheet(hits, query=sentence, truth=truth).save(sheet)
        where = f"found at rank {found}" if found else "not among the first 10"
        if best is None or (found or 11) < best[0]:
            best = found or 11, sentence
        out.print(f"   “{sentence}”\n   {where}; {sheet}")
    minutes = (time.monotonic() - began) / 60
    assert best is not None
    out.print(f"Done in {minutes:.1f} minutes. Try:")
    out.print(f'   {_typed()} search {store} "{best[1]}"')
    out.print(f"   {_typed()} serve {store}    # the same in a browser")
    write_text(
        folder / "summary.json",
        json.dumps(
            {"text_to_image R@1": report.text_to_image["R@1"], "colours R@1": colours, "minutes": minutes}
        )
        + "\n",
    )


def _claim(folder: Path) -> None:
    """Refuse to write over what no demo has made; drawing the people, its first step, refuses a foreign `people`."""
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"--out {folder}: a folder was expected, this is a file")
    if not (folder / "people" / OPTIONS_FILE).exists():
        for name in ("run", "store", "report.json", "summary.json", *SHEETS):
            if (folder / name).exists() and not _is_empty(folder / name):
                raise SettingsError(
                    f"--out {folder}: holds '{name}', which is not of a demo; name a new or empty folder"
                )
    store = folder / "store"
    if (store / CARD).exists():
        read_card(store)
        if not (folder / "run" / RUN_FILE).exists():
            raise SettingsError(
                f"--out {folder}: the run that its store was built with is gone; remove {store}, or name a new folder"
            )
    elif store.exists():
        check_empty(store)


def _typed() -> str:
    """How this program is to be typed: by its path in an environment that is not activated."""
    return "limner" if shutil.which("limner") else sys.argv[0]


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def colour_baseline(dataset: Dataset) -> float:
    """Text→image R@1 in percent of comparing the colours that a sentence names with those of a picture."""
    image_groups, sentence_groups = group_numbers(dataset)
    sentences = [sentence for record in dataset.records for sentence in record.sentences]
    scores = colour_similarity(sentences, [record.image for record in dataset.records])
    ranking = rank_scores(scores, Relevance.from_groups(sentence_groups, image_groups), [RecallAt(1)])
    return 100 * float(np.nanmean(ranking.each(RecallAt(1))))


def chance(dataset: Dataset) -> float:
    """Text→image R@1 in percent of a random ranking: the mean share of right pictures."""
    image_groups, sentence_groups = group_numbers(dataset)
    share = np.bincount(image_groups) / len(image_groups)
    return 100 * float(share[sentence_groups].mean())


def examples(dataset: Dataset) -> list[tuple[str, str]]:
    """Three sentences of different people, spread over the split, with whom they describe."""
    records = dataset.records
    return [(record.sentences[0], record.group) for record in records[:: max(1, len(records) // 3)][:3]]

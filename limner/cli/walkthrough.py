"""The steps of `limner demo`: draw people, train on them, evaluate, calibrate, index, and search three times."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from limner.cli.console import counting, counting_each, err, out
from limner.cli.training_progress import TrainingProgress
from limner.counted import counted
from limner.data.readers import open_dataset
from limner.data.records import Dataset, group_numbers
from limner.documented import Result
from limner.durable import write_text
from limner.errors import DataError, SettingsError
from limner.evaluation.colour_baseline import colour_similarity
from limner.evaluation.measures import RecallAt
from limner.evaluation.ranking import rank_scores
from limner.evaluation.relevance import Relevance
from limner.evaluation.report import Report, render
from limner.inference.calibration import calibrate_run, write_calibration
from limner.inference.calibration_file import load_calibration
from limner.inference.evaluate_run import evaluate_run
from limner.inference.load import load_model
from limner.inference.run_file import expect_free
from limner.inference.source import RUN_FILE
from limner.inference.trained import TrainedModel
from limner.people import OPTIONS_FILE, generate_people
from limner.recipes import get_recipe
from limner.recipes.change import change
from limner.search.contact_sheet import contact_sheet
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.open_source import store_of
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.store.files import StoreFiles, has_store
from limner.store.manifest import check_empty
from limner.training.loop import train

RECIPE = "dual-path-people"
VAL, TEST = 100, 200
VIEWS = (2, 2)
SHEETS = ("search-1.png", "search-2.png", "search-3.png")


class DemoSummary(Result):
    """The measures of the demo."""

    store: Path
    """Store that can be searched now."""
    sentence: str
    """A description that finds its person there."""
    text_to_image: float
    """R@1 in percent, on people that training has not seen; one seed (docs/results.md has the mean of three)."""
    colours: float
    """R@1 of comparing colours alone."""
    minutes: float
    """How long it took."""


def run_demo(folder: Path, settings: Sequence[str], identities: int) -> DemoSummary:
    """Run all steps in `folder`; run again, it goes on where it stopped. `SettingsError` for a foreign folder."""
    began = time.monotonic()
    people, run_folder, store_folder = folder / "people", folder / "run", folder / "store"
    _claim(folder)
    out.print(f"1. Drawing {counted(identities, 'people')}")
    _draw(people, identities)

    recipe = change(get_recipe(RECIPE), list(settings))
    dataset = open_dataset(f"cuhk-pedes:{people}")
    out.print(f"2. Training '{recipe.name}', two stages; the best epoch is chosen on validation people")
    with TrainingProgress(err.rich) as bars:
        train(
            recipe,
            dataset.split("train"),
            dataset.split("val"),
            run_folder,
            resume=True,
            listener=bars.listen,
        )

    test = dataset.split("test")
    out.print(
        f"3. Evaluating on {counted(TEST, 'people')} that training has not seen ({counted(len(test), 'pictures')})"
    )
    run = load_model(run_folder)
    report, colours = _evaluate(run, test)
    write_text(folder / "report.json", report.to_json())
    _calibrate(run, run_folder, dataset.split("val"))

    out.print("4. Indexing the test people's pictures and sentences")
    store = store_of(run, run_folder, store_folder)
    facts = {
        str(record.image.resolve()): {"identity": record.group, "camera": record.image.parent.name}
        for record in test.records
    }
    with counting("pictures") as progress:
        index_pictures(run, store, list(facts), metadata=facts, progress=progress)
    # the page's examples, and what a picture that is dropped onto it finds
    SentenceTable(store).index(
        run,
        [Sentence(text, str(record.image.resolve())) for record in test.records for text in record.sentences],
    )

    out.print("5. Searching")
    sentence = _search(Store(Engine(store, run, load_calibration(run_folder, run.fingerprint))), test, folder)
    done = DemoSummary(
        store=store_folder,
        sentence=sentence,
        text_to_image=report.text_to_image["R@1"],
        colours=colours,
        minutes=(time.monotonic() - began) / 60,
    )
    summary = {"text_to_image R@1": done.text_to_image, "colours R@1": colours, "minutes": done.minutes}
    write_text(folder / "summary.json", json.dumps(summary) + "\n")
    return done


def _claim(folder: Path) -> None:
    """Refuse to overwrite files that no demo has made; drawing the people, the first step, refuses a foreign
    `people`."""
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"--out {folder}: a folder was expected, this is a file")
    expect_free(folder, "the demo")
    if not (folder / "people" / OPTIONS_FILE).exists():
        for name in ("run", "store", "report.json", "summary.json", *SHEETS):
            if (folder / name).exists() and not _is_empty(folder / name):
                raise SettingsError(
                    f"--out {folder}: holds '{name}', which is not of a demo; name a new or empty folder"
                )
    store = folder / "store"
    if has_store(store):
        StoreFiles.open(store)
        if not (folder / "run" / RUN_FILE).exists():
            raise SettingsError(
                f"--out {folder}: the run that its store was built with is gone; remove {store}, or name a new folder"
            )
    elif store.exists():
        check_empty(store)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _draw(people: Path, identities: int) -> None:
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
    out.print(f"   {counted(drawn.images, 'pictures')}, {counted(drawn.sentences, 'sentences')} in {people}")


def _evaluate(run: TrainedModel, test: Dataset) -> tuple[Report, float]:
    """The run's report, and text→image R@1 of the colour baseline."""
    with counting_each("pictures") as count:
        report = evaluate_run(run, test, "test", progress=count)
    out.print(render(report))
    colours = colour_baseline(test)
    out.print(
        f"   text→image R@1 {report.text_to_image['R@1']:.1f}%, a bag of colours {colours:.1f}%, "
        f"chance {chance(test):.1f}%"
    )
    return report, colours


def _calibrate(run: TrainedModel, folder: Path, val: Dataset) -> None:
    """Fit match probabilities on the validation people, like the choice of the epoch."""
    try:
        with counting_each("pictures") as count:
            made = calibrate_run(run, val, "val", progress=count)
        write_calibration(folder, made)
        if made.remark is not None:
            out.print(f"   {made.remark}")
    except DataError as error:  # too few people, as with a small --identities
        out.print(f"   searches have no match probability: {error}")


def _search(store: Store, test: Dataset, folder: Path) -> str:
    """Search for three people and draw a sheet of each answer; returns the sentence that went best."""
    best: tuple[int, str] | None = None
    for name, (sentence, truth) in zip(SHEETS, examples(test), strict=False):
        hits = store.search(sentence, k=10).hits
        found = next((hit.rank for hit in hits if hit.identity == truth), None)
        sheet = folder / name
        contact_sheet(hits, thumbnail=store.thumbnail, query=sentence, truth=truth).save(sheet)
        where = f"found at rank {found}" if found else "not among the first 10"
        if best is None or (found or 11) < best[0]:
            best = found or 11, sentence
        out.print(f"   “{sentence}”")
        out.print(f"   {where}; {sheet}")
    assert best is not None
    return best[1]


def colour_baseline(dataset: Dataset) -> float:
    """Text→image R@1 in percent of a search that compares the colours named in a sentence with those of an image."""
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
    """Three sentences about different people, spread over the split, with their identities."""
    records = dataset.records
    return [(record.sentences[0], record.group) for record in records[:: max(1, len(records) // 3)][:3]]

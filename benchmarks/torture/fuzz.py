"""Damaged files as input: each command that reads one does its work or says one line, and never a stack trace.

The files are those that people exchange: results (`.npz`, Parquet, CSV), TREC runs, metadata, captions, sentences,
queries, and a run's `calibration.json`. Files of stores and checkpoints are mutated by the tests of stores.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.torture.commands import Result, called
from benchmarks.torture.mutations import of_arrays, of_bytes, of_columns, of_json
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import SENTENCES, Workshop, facts_of
from limner.data.readers import open_dataset
from limner.inference.load import load_model
from tests.agreeing import agreeing, resaved

CASES, SHORT_CASES = 500, 8
"""Mutations of each kind of file."""

Mutation = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it lies, the command that reads it, its mutations, and exit codes beside 0 and 2."""

    file: Path
    command: tuple[object, ...]
    mutations: tuple[Mutation, ...]
    codes: tuple[int, ...] = ()


def fuzz(shop: Workshop, *, short: bool = False, seed: int = 0) -> Outcome:
    """Mutate every kind of file."""
    outcome = Outcome()
    for name, kind in _kinds(shop, shop.fresh("fuzz")).items():
        sound = kind.file.read_bytes()
        judge(name, "sound", kind, outcome, expected=(0, *kind.codes))
        for number in range(SHORT_CASES if short else CASES):
            # a generator each, so that a finding can be had again without those before it
            rng = random.Random(f"{seed} {name} {number}")
            kind.file.write_bytes(rng.choice(kind.mutations)(sound, rng))
            judge(name, f"mutation {number} of seed {seed}", kind, outcome)
        kind.file.write_bytes(sound)
    return outcome


def judge(
    name: str, which: str, kind: Kind, outcome: Outcome, *, expected: tuple[int, ...] | None = None
) -> Result | None:
    """Call the command once, and note anything but work or one line."""
    try:
        result = called(*kind.command)
    # everything: whatever passes the error boundary is a stack trace to a user
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        at = "" if where is None else f" at {Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
        outcome.find(f"{name}, {which}: {type(error).__name__}{at}: {error}")
        return None
    outcome.count(f"{name}: {'read' if result.code == 0 else 'refused'}")
    done = result.code in (0, *kind.codes) and "Traceback" not in result.err and "Warning:" not in result.err
    sound = done if expected is None else done and result.code in expected
    outcome.expect(sound or (expected is None and result.refused), f"{name}, {which}: {result}")
    return result


def _kinds(shop: Workshop, folder: Path) -> dict[str, Kind]:
    pictures = shop.copy_of_toys(folder / "pictures")[:6]
    for path in sorted((folder / "pictures").iterdir())[6:]:
        path.unlink()
    store, results = folder / "store", folder / "results.npz"
    notes = facts_of(pictures, folder / "facts.jsonl", camera=3, taken="2026-11-24T08:00:00")
    table = folder / "facts.csv"
    rows = [f"{path},{path.stem[:1]},3" for path in pictures]
    table.write_text("\n".join(["file,identity,camera", *rows]) + "\n", encoding="utf-8")
    captions = folder / "pictures" / "captions.jsonl"
    lines = (shop.pictures / "captions.jsonl").read_text(encoding="utf-8").splitlines()[:6]
    captions.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sentences, queries = folder / "sentences.txt", folder / "queries.txt"
    sentences.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    queries.write_text(
        "\n".join(f"q{n}\t{text}" for n, text in enumerate(SENTENCES)) + "\n", encoding="utf-8"
    )
    run = shutil.copytree(shop.other, folder / "run")
    for command in (
        ("index", run, store, folder / "pictures", "--metadata", notes, "--cpu"),
        ("evaluate", run, "--data", shop.data, "--split", "train", "--save", results, "--cpu"),
        ("score", results, "--trec", folder / "trec"),
        ("calibrate", run, "--data", _agreeing(shop, folder / "agreeing"), "--cpu"),
    ):
        made = called(*command)
        assert made.code == 0, made
    trec, qrels = (
        next(path for path in sorted((folder / "trec").iterdir()) if ("qrels" in path.name) == is_qrels)
        for is_qrels in (False, True)
    )
    lists, numbers = _tables_of(results, folder)
    index = ("index", run, store, folder / "pictures", "--cpu", "--metadata")
    search = ("search", store, "--cpu")
    text, lines_of_json = (of_bytes,), (of_bytes, of_json)
    return {
        "results.npz": Kind(results, ("score", results), (of_bytes, of_arrays, of_arrays)),
        "results.parquet": Kind(lists, ("score", lists), (of_bytes, of_columns, of_columns)),
        "results.csv": Kind(numbers, ("score", numbers), text),
        "TREC run": Kind(trec, ("score", trec, "--qrels", qrels), text),
        "TREC qrels": Kind(qrels, ("score", trec, "--qrels", qrels), text),
        "metadata.jsonl": Kind(notes, (*index, notes), lines_of_json),
        "metadata.csv": Kind(table, (*index, table), text),
        # 1: the doctor has found something
        "captions.jsonl": Kind(captions, ("data", "check", f"folder:{captions.parent}"), lines_of_json, (1,)),
        "captions.jsonl, indexed": Kind(
            captions, ("index", run, store, "--data", f"folder:{captions.parent}", "--cpu"), lines_of_json
        ),
        "sentences.txt": Kind(sentences, ("index-sentences", run, store, sentences, "--cpu"), text),
        "queries": Kind(queries, (*search, "--queries", queries), text, (1,)),
        "calibration.json": Kind(
            run / "calibration.json", (*search, SENTENCES[0], "--run", run), lines_of_json
        ),
    }


def _tables_of(results: Path, folder: Path) -> tuple[Path, Path]:
    """The same results as a table, with the embeddings in a column of lists and in one column a dimension."""
    with np.load(results) as arrays:
        rows = np.concatenate([arrays["images"], arrays["sentences"]]).astype(np.float32)
        groups = np.concatenate([arrays["image_groups"], arrays["sentence_groups"]])
        sides = ["image"] * len(arrays["images"]) + ["sentence"] * len(arrays["sentences"])
    facts = {"side": sides, "group": groups, "name": [f"item {row}" for row in range(len(rows))]}
    lists, numbers = folder / "results.parquet", folder / "results.csv"
    pyarrow.parquet.write_table(pa.table({**facts, "embedding": list(rows)}), lists)
    # few dimensions: the mutations are to meet the other columns, too
    wide = {f"x{place}": rows[:, place] for place in range(min(4, rows.shape[1]))}
    pyarrow.csv.write_csv(pa.table({**facts, **wide}), numbers)
    return lists, numbers


def _agreeing(shop: Workshop, folder: Path) -> str:
    """A dataset on which the small run is right, since probabilities cannot be fitted to one that guesses."""
    rows = []
    for record in agreeing(load_model(shop.other, device="cpu"), open_dataset(shop.data), "val").records:
        row = {
            "file": record.image.name,
            "captions": record.sentences,
            "identity": record.group,
            "split": "val",
        }
        rows.append(json.dumps(row))
    folder.mkdir(parents=True)
    # a run is not calibrated on the files that it was trained on
    for path in sorted(shop.pictures.glob("*.png")):
        resaved(path, folder)
    (folder / "captions.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return f"folder:{folder}"

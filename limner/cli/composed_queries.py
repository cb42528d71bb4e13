"""`limner evaluate --composed`: queries of a picture and a text, measured or written for CIRR's server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.cli.console import counting_each, err, out, say_looks
from limner.durable import write_text
from limner.errors import DataError, SettingsError

if TYPE_CHECKING:
    from limner.data.composed import ComposedSet
    from limner.evaluation.composed import ComposedReport
    from limner.inference.trained import TrainedModel


def evaluate_composed_queries(
    run: Path,
    source: str,
    split: str,
    report_file: Path | None,
    submission_folder: Path | None,
    how: dict[str, Any],
) -> "ComposedReport":
    """Measure a run's composed queries on a split; with a folder, write the rankings of one without targets.

    `how` are the arguments of `load_model`.
    """
    from limner.data.readers.composed import open_composed
    from limner.evaluation.composed import render_composed
    from limner.inference.composing import expect_inversion, read_inversion
    from limner.inference.evaluate_composed import evaluate_composed
    from limner.inference.load import load_model

    composed = open_composed(source, split)
    for line in composed.deviations:
        err.print(f"another edition than the published one: {line}")
    loaded = load_model(run, **how)
    # of another model's file a user is told whose it is; a run without one is measured by the sum
    inversion = (
        None if read_inversion(loaded.path) is None else expect_inversion(loaded.path, loaded.fingerprint)
    )
    if submission_folder is not None:
        return _submit(loaded, composed, submission_folder)
    if inversion is None:
        err.print(f"{run}: has learnt no composed queries; `limner compose` teaches it")
    with counting_each("pictures") as progress:
        report = evaluate_composed(loaded, inversion, composed, _choosing(source, split), progress=progress)
    out.print(render_composed(report))
    provenance = report.provenance
    say_looks(provenance["evaluations_of_split"], provenance.get("evaluations_problem", ""), split)
    if report.weight_chosen_on == split:
        err.print(f"the sum's weight was chosen on {split} itself, which flatters the sum")
    if report_file is not None:
        write_text(report_file, report.to_json())
    return report


def _choosing(source: str, split: str) -> "ComposedSet | None":
    """The validation split that chooses the weight of the sum; None where the set has none."""
    from limner.data.readers.composed import open_composed

    if split == "val":
        return None
    try:
        return open_composed(source, "val")
    except DataError:
        return None


def _submit(run: "TrainedModel", composed: "ComposedSet", folder: Path) -> "ComposedReport":
    """Write the rankings in the form of CIRR's server."""
    from limner.evaluation.composed import REFERENCE, ComposedReport
    from limner.inference.composing import expect_inversion
    from limner.inference.evaluate_composed import COMPOSED, encode_composed, queries_of, submission

    if composed.protocol != "cirr":
        raise SettingsError("--submission: writes the files of CIRR's server; other sets have none")
    inversion = expect_inversion(run.path, run.fingerprint)
    with counting_each("pictures") as progress:
        encoded = encode_composed(run, composed, progress)
    made = queries_of(run, inversion, composed, encoded, 0.5)[COMPOSED]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in submission(composed, encoded, made).items():
        write_text(folder / name, json.dumps(content) + "\n")
        out.print(f"written to {folder / name}")
    return ComposedReport(
        protocol=composed.protocol,
        split=composed.split,
        counts={"queries": composed.triplets, "pictures": sum(one.size for one in composed.galleries)},
        rows=(),
        text_weight=None,
        weight_chosen_on=None,
        against_sum={},
        reference=REFERENCE[composed.protocol],
        provenance={"dataset": composed.source, "submission": str(folder)},
    )

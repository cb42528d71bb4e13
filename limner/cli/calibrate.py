"""`limner calibrate`: probabilities of a run's scores, fitted on validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from limner.cli.console import counting_each, err, out
from limner.cli.options import Cpu, Rerank, device, first
from limner.data.readers import open_dataset
from limner.errors import CheckpointError, SettingsError
from limner.evaluation.reliability import Reliability
from limner.inference import TrainedModel, load_model
from limner.inference.calibrating import calibrate_run, check_calibration
from limner.inference.calibration_file import FILE, THRESHOLD, Kind, read_calibration, write_calibration


def calibrate_command(
    run: Annotated[Path, typer.Argument(help="Run folder, or a checkpoint file.")],
    data: Annotated[str, typer.Option("--data", help="FORMAT:PATH of the dataset.")],
    split: Annotated[str | None, typer.Option(help="Split to fit on; never test; val if not given.")] = None,
    stage: Annotated[
        str | None, typer.Option(help="Checkpoint of this stage instead of the best one.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help=f"Probability below which the first hit is no good match; {THRESHOLD} if not given."
        ),
    ] = None,
    rerank: Rerank = None,
    check: Annotated[
        str | None,
        typer.Option(help="Measure the calibration that the run has on this split, and fit nothing."),
    ] = None,
    cpu: Cpu = False,
) -> None:
    """Fit the probabilities of a run's scores and write them into its folder, with what they are worth."""
    if check is not None and (threshold is not None or rerank is not None or split is not None):
        raise SettingsError(
            "--check measures what was fitted; --split, --threshold and --rerank are of fitting"
        )
    fit_on = split or "val"
    loaded = load_model(run, stage=stage, device=device(cpu))
    fitted = None if check is None else read_calibration(loaded.path.parent)
    if check is not None and fitted is None:
        raise CheckpointError(f"{run}: has no {FILE} to measure; fit it first, without --check")
    dataset = open_dataset(data).split(check or fit_on)
    with counting_each("pictures") as progress:
        if check is not None and fitted is not None:
            found = check_calibration(loaded, dataset, fitted, progress=progress)
            out.print(_table(check, "fitted on " + fitted.split, len(dataset), fitted.threshold, found))
            return
        chosen = THRESHOLD if threshold is None else threshold
        made = calibrate_run(
            loaded, dataset, fit_on, threshold=chosen, rerank=first(rerank), progress=progress
        )
    out.print(_table(fit_on, "by cross-validation", len(dataset), made.threshold, made.reliability))
    _say_what_is_replaced(loaded)
    out.print(f"written to {write_calibration(loaded.path.parent, made)}")


def _say_what_is_replaced(run: TrainedModel) -> None:
    """A run folder has one calibration: that of another checkpoint goes."""
    try:
        before = read_calibration(run.path.parent)
    except CheckpointError:
        return
    if before is not None and before.fingerprint != run.fingerprint:
        err.print(
            f"replaces the calibration of {before.checkpoint}; a run has one, of {run.path.name} from now on"
        )


def _table(
    split: str, how: str, gallery: int, threshold: float, measured: Mapping[Kind, Reliability]
) -> Table:
    """A column a kind of score; shares in percent, both errors from 0 to 1."""
    table = Table(
        title=Text(f"first hits of {gallery:,} pictures · {split}, {how}"),
        caption=Text("* as first hits where the right pictures are taken out of the gallery"),
        caption_justify="left",
    )
    table.add_column("")
    for kind in measured:
        table.add_column(kind, justify="right")
    every = list(measured.values())
    shares = [one.good_right for one in every]
    for name, values in (
        ("sentences", [f"{one.queries:,}" for one in every]),
        ("right (R@1)", [f"{one.right:.1%}" for one in every]),
        ("mean probability", [f"{one.probability:.1%}" for one in every]),
        ("expected calibration error", [f"{one.ece:.3f}" for one in every]),
        ("Brier score", [f"{one.brier:.3f}" for one in every]),
        (f"of probability {threshold:g} or more", [f"{one.good:.1%}" for one in every]),
        ("of these right", ["–" if share is None else f"{share:.1%}" for share in shares]),
        ("wrong ones that reach it*", [f"{one.good_astray:.1%}" for one in every]),
    ):
        table.add_row(name, *values)
    return table

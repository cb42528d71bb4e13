"""`limner calibrate`: probabilities of a run's scores, fitted on validation."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.console import counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource, Rerank, RunFolder, Stage, device, first
from limner.cli.schemas import CalibrationReport
from limner.errors import CheckpointError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from limner.evaluation.calibration import Reliability
    from limner.inference import TrainedModel
    from limner.inference.calibration import Kind

app = group("Calibrate.")

_THRESHOLD = 0.5
"""That of `limner.inference.calibration`, whose import takes torch; a test holds them equal."""


@command(app, "calibrate")
def calibrate_command(
    run: RunFolder,
    data: DataSource,
    # None and not "val": --check has to tell a split that was given from the default
    split: Annotated[str | None, typer.Option(help="Split to fit on; never test; val if not given.")] = None,
    stage: Stage = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help=f"Probability below which the first hit is no good match; {_THRESHOLD} if not given."
        ),
    ] = None,
    rerank: Rerank = None,
    check: Annotated[
        str | None,
        typer.Option(help="Measure the calibration that the run has on this split, and fit nothing."),
    ] = None,
    cpu: Cpu = False,
) -> CalibrationReport:
    """Fit probabilities to a run's scores, on validation.

    Writes them into the run's folder, with what they are worth.
    """
    from limner.data.readers import open_dataset
    from limner.inference import load_model
    from limner.inference.calibration import (
        FILE,
        THRESHOLD,
        calibrate_run,
        check_calibration,
        read_calibration,
        write_calibration,
    )

    # options that would do nothing are refused: a user believes that they did something
    if check is not None and (threshold is not None or rerank is not None or split is not None):
        raise SettingsError(
            "--check measures the calibration of a run; --split, --threshold and --rerank fit one"
        )
    fit_on = split or "val"
    loaded = load_model(run, stage=stage, device=device(cpu))
    # read_ and not load_calibration: of another model's file a user is told whose it is
    fitted = None if check is None else read_calibration(loaded.path.parent)
    if check is not None and fitted is None:
        raise CheckpointError(f"{run}: has no {FILE} to measure; fit it first, without --check")
    dataset = open_dataset(data).split(check or fit_on)
    with counting_each("pictures") as progress:
        if check is not None and fitted is not None:
            found = check_calibration(loaded, dataset, fitted, progress=progress)
            out.print(_table(check, "fitted on " + fitted.split, len(dataset), fitted.threshold, found))
            return _result(check, len(dataset), fitted.threshold, found)
        chosen = THRESHOLD if threshold is None else threshold
        made = calibrate_run(
            loaded, dataset, fit_on, threshold=chosen, rerank=first(rerank), progress=progress
        )
    # what it is worth is printed before it is written, so that a full disk does not take the figures along
    out.print(_table(fit_on, "by cross-validation", len(dataset), made.threshold, made.reliability))
    _say_what_is_replaced(loaded)
    written = write_calibration(loaded.path.parent, made)
    out.print(f"written to {written}")
    return _result(fit_on, len(dataset), made.threshold, made.reliability, written)


def _result(
    split: str, gallery: int, threshold: float, measured: "Mapping[Kind, Reliability]", file: Any = None
) -> CalibrationReport:
    return CalibrationReport(
        split=split,
        pictures=gallery,
        threshold=threshold,
        # plain values: `schemas` is imported for help, and imports nothing of `limner.evaluation`
        reliability={kind: reliability.model_dump() for kind, reliability in measured.items()},
        file=file,
    )


def _say_what_is_replaced(run: "TrainedModel") -> None:
    """Name the calibration that is replaced: a run folder has only one."""
    from limner.inference.calibration import read_calibration

    try:
        before = read_calibration(run.path.parent)
    # a damaged file has nothing to say and is about to be replaced
    except CheckpointError:
        return
    if before is not None and before.fingerprint != run.fingerprint:
        err.print(
            f"replaces the calibration of {before.checkpoint}; a run has one, of {run.path.name} from now on"
        )


def _table(
    split: str, how: str, gallery: int, threshold: float, measured: "Mapping[Kind, Reliability]"
) -> "Table":
    """A column a kind of score; shares in percent, both errors from 0 to 1."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(f"first hits of {gallery:,} pictures · {split}, {how}"),
        caption=Text("* as first hits where the right pictures are taken out of the gallery"),
        caption_justify="left",
    )
    table.add_column("")
    for kind in measured:
        table.add_column(kind, justify="right")
    every = list(measured.values())
    shares = [reliability.good_right for reliability in every]
    for name, values in (
        ("sentences", [f"{reliability.queries:,}" for reliability in every]),
        ("right (R@1)", [f"{reliability.right:.1%}" for reliability in every]),
        ("mean probability", [f"{reliability.probability:.1%}" for reliability in every]),
        ("expected calibration error", [f"{reliability.ece:.3f}" for reliability in every]),
        ("Brier score", [f"{reliability.brier:.3f}" for reliability in every]),
        (f"of probability {threshold:g} or more", [f"{reliability.good:.1%}" for reliability in every]),
        # None where no first hit reaches the threshold: neither 0 % nor 100 %
        ("of these right", ["–" if share is None else f"{share:.1%}" for share in shares]),
        ("wrong ones that reach it*", [f"{reliability.good_astray:.1%}" for reliability in every]),
    ):
        table.add_row(name, *values)
    return table

"""`limner calibrate`: probabilities of a run's scores, fitted on validation or on a store."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from limner.cli.conflicts import Conflict
from limner.cli.console import counting_each, err, out, say_looks
from limner.cli.contract import command, group
from limner.cli.options import Arithmetic, Cpu, Rerank, RunFolder, Stage, device, store_folder
from limner.counted import counted
from limner.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from limner.evaluation.calibration import Reliability
    from limner.inference.calibration_file import CalibrationReport, Kind, RunCalibration
    from limner.inference.trained import TrainedModel
    from limner.store.files import StoreFiles

app = group("Calibrate.")

_THRESHOLD = 0.5
"""That of `limner.inference.calibration`, whose import takes torch; a test holds them equal."""


@command(
    app,
    "calibrate",
    # options that would do nothing are refused: a user believes that they did something
    Conflict(needs="--data --store"),
    Conflict(
        "--check",
        without="--split --threshold --rerank --question",
        why="measures a calibration and fits none",
    ),
    Conflict(
        "--store",
        without="--data --check --split --precision",
        why="has its own pictures, splits and arithmetic",
    ),
)
def calibrate_command(
    run: RunFolder,
    data: Annotated[str | None, "Fit on this dataset (docs/data-formats.md).", "FORMAT:PATH"] = None,
    store: Annotated[
        Any,
        "Fit on the pictures and sentences of this store instead, for its own searches.",
        "STORE",
        store_folder,
    ] = None,
    # None and not "val": --check has to tell a split that was given from the default
    split: Annotated[str | None, "Split of --data to fit on; never test; val if not given."] = None,
    stage: Stage = None,
    threshold: Annotated[
        float | None, f"Probability below which the first hit is no good match; {_THRESHOLD} if not given."
    ] = None,
    rerank: Rerank = None,
    question: Annotated[
        Literal["described", "fits"] | None,
        "What a probability answers: is a hit the very picture or identity that was described, or does it fit the "
        "text? 'described' if not given.",
    ] = None,
    check: Annotated[
        str | None, "Measure the calibration that the run has on this split, and fit nothing."
    ] = None,
    precision: Arithmetic = None,
    cpu: Cpu = False,
) -> "CalibrationReport":
    """Fit probabilities to a run's scores, on validation.

    Writes them into the run's folder, with what they are worth; with --store into the store's.
    """
    from limner.inference.calibration_file import THRESHOLD
    from limner.inference.load import load_model

    how: dict[str, Any] = {
        "threshold": THRESHOLD if threshold is None else threshold,
        "rerank": rerank,
        "question": question or "described",
    }
    if store is not None:
        from limner.store.files import StoreFiles

        # before the model: a store that is not there costs no loading
        files = StoreFiles.open(store)
        loaded = load_model(run, stage=stage, device=device(cpu), precision=files.manifest.precision)
        return _of_store(loaded, files, **how)
    assert data is not None
    loaded = load_model(run, stage=stage, device=device(cpu), precision=precision)
    if check is not None:
        return _check(loaded, run, data, check)
    return _of_dataset(loaded, data, split or "val", **how)


def _of_dataset(run: "TrainedModel", data: str, split: str, **how: Any) -> "CalibrationReport":
    from limner.data.readers import open_dataset
    from limner.inference.calibration import calibrate_run, write_calibration

    dataset = open_dataset(data).split(split)
    with counting_each("pictures") as progress:
        made = calibrate_run(run, dataset, split, progress=progress, **how)
    # what it is worth is printed before it is written, so that a full disk does not take the figures along
    out.print(_table(split, "by cross-validation", made.images, made, made.reliability))
    if made.remark is not None:
        err.print(made.remark)
    _say_what_is_replaced(run)
    written = write_calibration(run.path.parent, made)
    out.print(f"written to {written}")
    return _result(made, made.reliability, written)


def _of_store(run: "TrainedModel", store: "StoreFiles", **how: Any) -> "CalibrationReport":
    from limner.search.calibration import calibrate_store
    from limner.store.calibration import write_store_calibration

    with counting_each("pairs") as progress:
        found = calibrate_store(run, store, progress=progress, **how)
    made = found.calibration
    out.print(_table(str(store.folder), "by cross-validation", made.images, made, made.reliability))
    if found.left_out:
        err.print(f"{counted(found.left_out, 'sentences')} of the splits train and test took no part")
    if made.remark is not None:
        err.print(made.remark)
    write_store_calibration(store, made)
    out.print(f"written into {store.folder}")
    return _result(made, made.reliability, store.folder)


def _check(run: "TrainedModel", folder: object, data: str, split: str) -> "CalibrationReport":
    from limner.data.readers import open_dataset
    from limner.inference.calibration import check_calibration
    from limner.inference.calibration_file import FILE, read_calibration
    from limner.inference.evaluations import note_look

    # read_ and not load_calibration: of another model's file a user is told whose it is
    fitted = read_calibration(run.path.parent)
    if fitted is None:
        raise CheckpointError(f"{folder}: has no {FILE} to measure; fit it first, without --check")
    dataset = open_dataset(data).split(split)
    with counting_each("pictures") as progress:
        found = check_calibration(run, dataset, fitted, progress=progress)
    out.print(_table(split, "fitted on " + fitted.split, len(dataset), fitted, found))
    say_looks(*note_look(run, dataset.fingerprint, split, "calibration"), split)
    return _result(fitted, found, split=split, gallery=len(dataset))


def _result(
    calibration: "RunCalibration",
    measured: "Mapping[Kind, Reliability]",
    file: Any = None,
    *,
    split: str | None = None,
    gallery: int | None = None,
) -> "CalibrationReport":
    from limner.inference.calibration_file import CalibrationReport

    return CalibrationReport(
        split=split or calibration.split,
        pictures=gallery or calibration.images,
        question=calibration.question,
        threshold=calibration.threshold,
        reliability=dict(measured),
        unusable=calibration.unusable,
        file=None if file is None else str(file),
    )


def _say_what_is_replaced(run: "TrainedModel") -> None:
    """Name the calibration that is replaced: a run folder has only one."""
    from limner.inference.calibration_file import read_calibration

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
    split: str, how: str, gallery: int, made: "RunCalibration", measured: "Mapping[Kind, Reliability]"
) -> "Table":
    """A column a kind of score; shares in percent, both errors from 0 to 1."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(f"first hits of {counted(gallery, 'pictures')} · {split}, {how}"),
        caption=Text("* as first hits where the right pictures are taken out of the gallery"),
        caption_justify="left",
    )
    table.add_column("")
    for kind in measured:
        table.add_column(kind, justify="right")
    every = list(measured.values())
    shares, reaching = [one.good_right for one in every], [one.right_good for one in every]
    for name, values in (
        ("sentences", [f"{reliability.queries:,}" for reliability in every]),
        (
            "right (R@1)" if made.question == "described" else "fit the sentence",
            [f"{reliability.right:.1%}" for reliability in every],
        ),
        ("mean probability", [f"{reliability.probability:.1%}" for reliability in every]),
        ("expected calibration error", [f"{reliability.ece:.3f}" for reliability in every]),
        ("Brier score", [f"{reliability.brier:.3f}" for reliability in every]),
        (f"of probability {made.threshold:g} or more", [f"{reliability.good:.1%}" for reliability in every]),
        # None where no first hit reaches the threshold: neither 0 % nor 100 %
        ("of these right", ["–" if share is None else f"{share:.1%}" for share in shares]),
        ("right ones that reach it", ["–" if share is None else f"{share:.1%}" for share in reaching]),
        ("wrong ones that reach it*", [f"{reliability.good_astray:.1%}" for reliability in every]),
    ):
        table.add_row(name, *values)
    return table

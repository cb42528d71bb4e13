"""`limner compose`: teach a run to read a picture and a text as one query."""

from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource, RunFolder, Stage, device
from limner.errors import CheckpointError

if TYPE_CHECKING:
    from limner.inference.trained import TrainedModel
    from limner.training.inversion import ComposeReport, InversionEpoch

app = group("Compose.")


@command(app, "compose")
def compose_command(
    run: RunFolder,
    data: DataSource,
    triplets: Annotated[
        str | None,
        "Also learn from composed queries, on their splits train and val (`limner data triplets` draws some).",
        "cirr|fashioniq:DIR",
    ] = None,
    prompt: Annotated[
        str | None, "Beginning of each sentence, * for the picture; 'a photo of *' if not given."
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of the triplets, or of the pictures; 10 if not given.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=2, help="Queries of a step; 64 if not given.")] = None,
    rate: Annotated[float | None, "Learning rate; 0.001 if not given."] = None,
    temperature: Annotated[float | None, "Temperature of the losses; 0.05 if not given."] = None,
    seed: Annotated[int, "Another seed starts and draws otherwise."] = 0,
    stage: Stage = None,
    cpu: Cpu = False,
) -> "ComposeReport":
    """Teach a run to read a picture and a text as one query: "this, but with a red bag".

    A small network learns to turn a picture into a word for the text tower, which stands still. It is written into the
    run's folder, and searches with a picture and a text use it from then on.
    """
    from limner.data.readers import open_dataset
    from limner.data.readers.composed import open_composed
    from limner.inference.composing import write_inversion
    from limner.inference.load import load_model
    from limner.models.inversion import InversionSettings
    from limner.training.inversion import ComposeReport, InversionTraining, train_inversion

    settings = InversionSettings.parse({} if prompt is None else {"prompt": prompt})
    given = {"epochs": epochs, "batch": batch, "rate": rate, "temperature": temperature, "seed": seed}
    training = InversionTraining.parse({name: value for name, value in given.items() if value is not None})
    # before the model: a folder that is not there costs no loading
    dataset = open_dataset(data)
    pair = None if triplets is None else (open_composed(triplets, "train"), open_composed(triplets, "val"))
    loaded = load_model(run, stage=stage, device=device(cpu))
    _say_what_is_replaced(loaded)
    with counting_each("pictures of train") as progress:
        made, history = train_inversion(
            loaded, dataset, pair, settings, training, progress=progress, told=_tell
        )
    chosen = max(history, key=lambda one: one.score)
    written = write_inversion(loaded.path, made)
    out.print(
        f"epoch {chosen.epoch} of {len(history)}, validation score {chosen.score:.1f}; written to {written}"
    )
    if triplets is None:
        err.print("learnt from pictures alone, without --triplets")
    return ComposeReport(
        file=written,
        epoch=chosen.epoch,
        score=chosen.score,
        image_weight=chosen.image_weight,
        triplets=triplets,
        epochs=tuple(history),
    )


def _tell(epoch: "InversionEpoch") -> None:
    of_triplets = "" if epoch.triplets is None else f"  triplets {epoch.triplets:.3f}"
    err.print(
        f"epoch {epoch.epoch}  pictures {epoch.pictures:.3f}{of_triplets}  validation {epoch.score:.1f}"
    )


def _say_what_is_replaced(run: "TrainedModel") -> None:
    """Name the model whose inversion is replaced: a run folder has only one."""
    from limner.inference.composing import read_inversion

    try:
        before = read_inversion(run.path)
    # a damaged file has nothing to say and is about to be replaced
    except CheckpointError:
        return
    if before is not None and before.description.get("fingerprint") != run.fingerprint:
        err.print(
            f"replaces what was learnt for {before.description.get('checkpoint')}; a run has one, of {run.path.name} "
            "from now on"
        )

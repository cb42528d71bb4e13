"""`limner train`: a recipe, a dataset, a run folder."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource, SetOption
from limner.documented import Result
from limner.errors import SettingsError

if TYPE_CHECKING:
    from limner.training.recipe import Recipe

app = group("Train.")


class TrainedStage(Result):
    """A stage of a training run."""

    name: str
    """Its name in the recipe."""
    reason: str
    """Why it ended."""
    best_epoch: int
    """Epoch of its checkpoint."""
    best_score: float
    """Validation score of that epoch, higher is better."""


class Trained(Result):
    """A training run that ended."""

    run: Path
    """Folder of the run."""
    recipe: str
    """Name of the recipe."""
    stages: tuple[TrainedStage, ...]
    """The stages that this call trained; fewer after `--resume`."""
    reranks: bool
    """True if the checkpoint that validation chose re-ranks."""


@command(app, "train")
def train_command(
    recipe: Annotated[str, "Name of a recipe, see `limner recipes list`, or a .json file of one."],
    data: DataSource,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN|hf:ORG/NAME",
            help="Start from the network of this run, imported, trained or of the hub, in place of the recipe's; or "
            "import a pair of the hub, or of a folder, to OUT-start first.",
        ),
    ] = None,
    settings: SetOption = None,
    resume: Annotated[bool, "Go on with the run in this folder."] = False,
    cpu: Cpu = False,
    cuda_graphs: Annotated[
        bool, "On a CUDA GPU: record a step once and replay it, in stages of instance and ranking loss."
    ] = False,
) -> Trained | None:
    """Train a recipe on a dataset's training split.

    The checkpoint is chosen on the validation split. Stop the training at any moment and go on with --resume. On
    several processes: `torchrun -m limner train …`.
    """
    from limner.cli.training_progress import TrainingProgress
    from limner.data.readers import open_dataset
    from limner.inference.checkpoint import read_description
    from limner.inference.run_file import checkpoint_path, expect_free
    from limner.inference.source import STATE_FILE
    from limner.recipes.change import change, start_from
    from limner.recipes.registry import get_recipe
    from limner.training.log import Event, StageEnded
    from limner.training.loop import train

    # settings first: a misspelt key is found before a dataset is read, or a gigabyte fetched
    chosen = get_recipe(recipe)
    # before a pair is imported beside it
    if not (out_folder / STATE_FILE).exists():
        expect_free(out_folder, "the run", resume=resume)
    if start is not None:
        changed = change(chosen, settings or [])
        chosen = start_from(chosen, _imported(start, changed, out_folder) or start)
    chosen = change(chosen, settings or [])
    # `train` would meet this only when it makes the folder, after the dataset
    if out_folder.exists() and not out_folder.is_dir():
        raise SettingsError(f"{out_folder}: a folder for the run was expected, this is a file")
    dataset = open_dataset(data)
    stages: list[TrainedStage] = []
    # on stderr: stdout has the result
    with TrainingProgress(err.rich) as progress:

        def listen(event: Event) -> None:
            progress.listen(event)
            # gathered from the events, which tell of what this call has trained
            if isinstance(event, StageEnded):
                name, reason, epoch, score = event.stage, event.reason, event.best_epoch, event.best_score
                stages.append(TrainedStage(name=name, reason=reason, best_epoch=epoch, best_score=score))

        # training is given these two splits alone, so that no checkpoint can be chosen on test
        folder = train(
            chosen,
            dataset.split("train"),
            dataset.split("val"),
            out_folder,
            resume=resume,
            listener=listen,
            cpu=cpu,
            cuda_graphs=cuda_graphs,
        )
    # of several processes, the launcher's first one speaks
    if os.environ.get("RANK", "0") != "0":
        return None
    last = chosen.stages[-1]
    reranks = (
        last.reranker_pairs is not None
        # the header alone: it says what the checkpoint holds without reading a weight
        and read_description(checkpoint_path(folder, None))["cross_encoder"] is not None
    )
    if last.reranker_pairs is not None and not reranks:
        out.print(
            # without this line, users would wonder why `limner search` does not re-rank
            f"{folder}: validation prefers a stage before the cross-encoder's, so nothing will be re-ranked; "
            f"--stage {last.name} takes the cross-encoder"
        )
    out.print(f"{folder}: trained; next: limner evaluate {folder} --data {data} --split test")
    return Trained(run=folder, recipe=chosen.name, stages=tuple(stages), reranks=reranks)


def _imported(start: str, recipe: "Recipe", out_folder: Path) -> Path | None:
    """The run of a pair that `--from` names by its source, made beside the new one; None where it names a run.

    Images have the recipe's size where it has an exact one, such as that of persons, else the pair's own.
    """
    from limner.inference.checkpoint import read_description
    from limner.inference.hub_runs import run_of_name
    from limner.inference.import_model import import_model
    from limner.inference.import_pair import source_name
    from limner.inference.run_file import checkpoint_path
    from limner.inference.source import RUN_FILE, kind_of

    kind = kind_of(start)
    if kind not in ("hub", "pretrained"):
        return None
    folder = out_folder.with_name(f"{out_folder.name}-start")
    size = None if isinstance(recipe.images.resize, int) else recipe.images.resize
    if (folder / RUN_FILE).exists():
        # a training that goes on, or is begun again
        found = read_description(checkpoint_path(folder, None))
        if found["data"]["source"] != source_name(start) or (size and tuple(found["images"]["crop"]) != size):
            raise SettingsError(
                f"{folder}: it is of another pair or size of images; remove it, or give it by --from"
            )
        return folder
    if kind == "hub" and run_of_name(start) is not None:
        return None
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise SettingsError(
            f"--from {start}: several processes cannot import it at once; `limner import` it, and give that run"
        )
    err.print(f"importing {start} as {folder}")
    import_model(start, folder, size=size)
    return folder

"""`limner train`: a recipe, a dataset, a run folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource, SetOption
from limner.cli.schemas import Trained, TrainedStage
from limner.errors import SettingsError

app = group("Train.")


@command(app, "train")
def train_command(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe, see `limner recipes list`, or a .json file of one.")
    ],
    data: DataSource,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Start from the network of this run, imported or trained, in place of the recipe's.",
        ),
    ] = None,
    settings: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    cpu: Cpu = False,
) -> Trained | None:
    """Train a recipe on a dataset's training split.

    The checkpoint is chosen on the validation split. Stop the training at any moment and go on with --resume. On
    several processes: `torchrun -m limner train …`.
    """
    from limner.cli.training_progress import TrainingProgress
    from limner.data.readers import open_dataset
    from limner.inference.checkpoint import read_description
    from limner.inference.trained import checkpoint_path
    from limner.recipes.change import change, start_from
    from limner.recipes.registry import get_recipe
    from limner.training.log import Event, StageEnded
    from limner.training.loop import train

    # settings first: a misspelt key is found before a dataset is read
    chosen = get_recipe(recipe)
    if start is not None:
        chosen = start_from(chosen, start)
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
                stages.append(
                    TrainedStage(
                        name=event.stage,
                        reason=event.reason,
                        best_epoch=event.best_epoch,
                        best_score=event.best_score,
                    )
                )

        # training is given these two splits alone, so that no checkpoint can be chosen on test
        folder = train(
            chosen,
            dataset.split("train"),
            dataset.split("val"),
            out_folder,
            resume=resume,
            listener=listen,
            cpu=cpu,
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

"""`limner train`: a recipe, a dataset, a run folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import err, out
from limner.cli.options import Cpu
from limner.cli.training_progress import TrainingProgress
from limner.data.readers import open_dataset
from limner.errors import SettingsError
from limner.inference.checkpoint import read_description
from limner.inference.trained import checkpoint_path
from limner.recipes import change, get_recipe
from limner.training.loop import train


def train_command(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe, see `limner recipes list`, or a .json file of one.")
    ],
    data: Annotated[str, typer.Option("--data", help="FORMAT:PATH of the dataset.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, key=value; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    cpu: Cpu = False,
) -> None:
    """Train a recipe on a dataset's training split, choosing the checkpoint on its validation split.

    Stop it at any moment and go on with --resume. On several processes: `torchrun -m limner train …`.
    """
    chosen = change(get_recipe(recipe), settings or [])
    if out_folder.exists() and not out_folder.is_dir():
        raise SettingsError(f"{out_folder}: a folder for the run was expected, this is a file")
    dataset = open_dataset(data)
    with TrainingProgress(err) as progress:
        folder = train(
            chosen,
            dataset.split("train"),
            dataset.split("val"),
            out_folder,
            resume=resume,
            listener=progress.listen,
            cpu=cpu,
        )
    # of several processes, the launcher's first one speaks
    if os.environ.get("RANK", "0") == "0":
        last = chosen.stages[-1]
        if (
            last.matching is not None
            and read_description(checkpoint_path(folder, None)).get("matcher") is None
        ):
            out.print(
                f"{folder}: validation prefers a stage before the matcher's, so nothing will be re-ranked; "
                f"--stage {last.name} takes the matcher"
            )
        out.print(f"{folder}: trained; next: limner evaluate {folder} --data {data} --split test")

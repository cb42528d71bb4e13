"""Several runs from one common first stage: the first stage is trained once and each run goes on from it.

All that is random in a step depends on (seed, stage, epoch, step), so a run that was branched off ends in exactly the
weights of one that trained the first stage itself.
"""

import json
import shutil
from pathlib import Path

from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.trained import RUN_FILE
from limner.training.metrics_log import LOG_FILE
from limner.training.run_files import classifier_file, stage_file
from limner.training.settings import Recipe
from limner.training.state import STATE_FILE, first_difference, in_full


def branch(source: Path, recipe: Recipe, out: Path) -> None:
    """Make `out` a run of `recipe` that stands behind its first stage, taken from the finished run in `source`.

    `source` is a run of the same recipe without its later stages; resume `out` to train these. The state is
    written last, so that an interrupted branch counts as none. Raises `CheckpointError` when `source` is not
    finished or of another recipe.
    """
    tensors, description = read_checkpoint(source / STATE_FILE)
    state = description["state"]
    if not state["progress"]["finished"]:
        raise CheckpointError(f"{source}: this run is not finished; resume it before branching off")
    wanted = json.loads(recipe.model_dump_json())
    there = in_full(state["identity"]["recipe"])
    first_alone = {**wanted, "stages": wanted["stages"][:1]}
    if recipe.stages[0].matching is None:  # the matcher comes later, whatever it is
        first_alone |= {"matcher": there.get("matcher"), "rerank": there.get("rerank")}
    if (difference := first_difference({"recipe": there}, {"recipe": first_alone})) is not None:
        name, was, now = difference
        raise CheckpointError(
            f"{source}: cannot branch off, {name} is {was!r} there and {now!r} here; branch off a run of the same "
            "recipe with its first stage alone"
        )
    out.mkdir(parents=True, exist_ok=True)
    first = recipe.stages[0].name
    for file in (stage_file(first), classifier_file(first), RUN_FILE, LOG_FILE):
        shutil.copyfile(source / file, out / file)
    progress = {**state["progress"], "finished": False}
    identity = {**state["identity"], "recipe": wanted}
    write_checkpoint(
        out / STATE_FILE,
        tensors,
        {**description, "state": {**state, "progress": progress, "identity": identity}},
    )

"""The files of a run: a checkpoint a stage, and `run.json`, which names the best of them."""

from pathlib import Path
from typing import Any

from limner.inference.checkpoint import read_digest, tokenizer_tensors, write_checkpoint, write_text
from limner.inference.learnt_images import learnt_tensors
from limner.inference.provenance import versions
from limner.inference.trained import RUN_FILE
from limner.sealed_json import digest_of_values, sealed
from limner.training.prepare import Prepared
from limner.training.state import Progress


def stage_file(stage: str) -> str:
    """Name of the checkpoint of a stage's best epoch."""
    return f"{stage}.safetensors"


def handed_file(stage: str, part: str) -> str:
    """Name of the file with a loss's state from the same epoch, e.g. the shared classifier; only the next stage needs
    it."""
    return f"{stage}-{part}.safetensors"


def write_stage_checkpoint(
    out: Path, data: Prepared, stage: str, progress: Progress, row: dict[str, Any]
) -> None:
    """The current network, with everything needed to use it and to know where it comes from."""
    recipe = data.recipe
    # The identity holds the recipe as plain JSON values, so a checkpoint is read without this version's classes.
    identity = data.identity
    model = data.objective.model
    description: dict[str, Any] = {
        "system": recipe.model.system,
        "model": identity["recipe"]["model"],
        "images": identity["recipe"]["images"],
        # None in a stage before the cross-encoder's, though the recipe has one.
        "cross_encoder": None
        if model.cross_encoder is None
        else model.cross_encoder.settings.model_dump(mode="json"),
        "files": model.files(),
        "tokenizer": data.tokenizer.to_description(),
        "recipe": identity["recipe"],
        "selected": {
            "stage": stage,
            "epoch": progress.epoch,
            "split": "val",
            "by": recipe.select,
            "score": row["score"],
            "image_to_text": row["image_to_text"],
            "text_to_image": row["text_to_image"],
        },
        "data": identity["data"],
        "terms": data.terms,
        "learnt_images": "all" if data.learnt_whole else "part",
        "seed": recipe.seed,
        "versions": versions(),
    }
    # Before the network's file: whoever finds the stage's checkpoint finds what it hands on, too.
    for part, module in data.objective.handed_on().items():
        write_checkpoint(out / handed_file(stage, part), module.state_dict(), {})
    learnt = learnt_tensors(data.train_pictures.digests(), data.val_pictures.digests(), data.learnt_before)
    tensors = {**model.state_dict(), **tokenizer_tensors(data.tokenizer), **learnt}
    write_checkpoint(out / stage_file(stage), tensors, description)


def write_run_file(out: Path, data: Prepared, progress: Progress) -> None:
    """`run.json`: the stages that have a checkpoint, and the one with the best validation score (the later one at a
    tie)."""
    stages = [
        {"name": stage.name, "file": stage_file(stage.name), "epoch": best.epoch, "score": best.score}
        # `progress.best` has the stages begun so far, the recipe all of them.
        for stage, best in zip(data.recipe.stages, progress.best, strict=False)
        # A stage begun without a validation yet has no file.
        if best.epoch
    ]
    # Of equal scores the later stage: it started from the earlier one's weights and is at least as trained.
    best = max(range(len(stages)), key=lambda index: (stages[index]["score"], index))
    listing = {
        "recipe": data.recipe.name,
        "best": stages[best]["file"],
        "selected_on": "val",
        "select": data.recipe.select,
        "stages": stages,
        "digests": {str(stage["file"]): read_digest(out / str(stage["file"])) for stage in stages},
        # with it a reader knows a later checkpoint of this training, whose run.json is still to be written
        "recipe_digest": digest_of_values(data.identity["recipe"]),
        "seed": data.recipe.seed,
        "data": data.identity["data"],
        "terms": data.terms,
        "versions": versions(),
    }
    # Written last and atomically: it never names a file that is not there.
    write_text(out / RUN_FILE, sealed(listing))

"""The kind of a model by the name or path that a command or function is given, answered here for all of them."""

from pathlib import Path
from typing import Literal

RUN_FILE = "run.json"
"""Names the chosen checkpoint of a run folder and those of its stages."""

STATE_FILE = "last.safetensors"
"""The state of a training (`limner.training.state`); a run is used without it, too."""

EXPORT_FILE = "export.json"
"""Describes the folder of an export."""

HUB = "hf:"
"""Begins the name of a model on the Hugging Face hub."""

SENTENCE_TRANSFORMER = "st:"
"""Begins the name of a model of sentence-transformers: a folder, or a name on the hub."""

MODULES = "modules.json"
"""Describes a folder of sentence-transformers."""

OF_A_MODEL = ("config.json", "open_clip_config.json", MODULES)
"""Files of which a pretrained model's folder has one."""

STORE_FILE = "store.sqlite"
"""Holds the rows of a store (`limner.store.sqlite_file`)."""

SourceKind = Literal["hub", "sentence-transformers", "export", "run", "pretrained", "store"]
"""A name of the hub, of a run or a pretrained pair; a name of sentence-transformers; a folder that `limner export`
wrote; a run folder; a folder with the files of a pretrained model; the folder of a store, which is no model."""


def kind_of(source: str | Path) -> SourceKind | None:
    """The kind of a model by its name or folder; None for anything else: a checkpoint file, a path that is not there.

    Nothing is opened, and no network is asked.
    """
    # as_posix: on Windows a `Path` has turned the name's slash
    name, path = Path(source).as_posix(), Path(source)
    if name.startswith(HUB):
        return "hub"
    if name.startswith(SENTENCE_TRANSFORMER):
        return "sentence-transformers"
    if (path / EXPORT_FILE).is_file():
        return "export"
    if (path / RUN_FILE).exists():
        return "run"
    if any((path / file).is_file() for file in OF_A_MODEL):
        return "pretrained"
    return "store" if (path / STORE_FILE).exists() else None

"""A folder that `SentenceTransformer(FOLDER, trust_remote_code=True)` loads, with a model of limner's in it.

    FOLDER/modules.json                         the one module, by its file and class
    FOLDER/config_sentence_transformers.json    similarity: cosine
    FOLDER/limner_module.py                     that module, a copy of `limner.export.sentence_transformers_module`
    FOLDER/limner_module.json                   name of the checkpoint, and its precision
    FOLDER/limner.safetensors                   the checkpoint, which `limner.load` opens, too
    FOLDER/README.md                            how to load it

The module calls the limner that is installed where the folder is loaded. So flip average, sizes, hub correction,
tokenizer and preprocessing are limner's own and not a second version of them.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from limner.durable import write_text
from limner.errors import SettingsError
from limner.inference.checkpoint import tokenizer_tensors, write_checkpoint
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel

CHECKPOINT = "limner.safetensors"
"""The checkpoint in the folder."""

MODULE = "limner_module"
"""The file of the folder's own code, without its ending; its settings lie beside it in a JSON file of that name."""

_README = """# {name}

A picture and text encoder of limner for sentence-transformers: {dim} numbers for a picture or a sentence, compared by
cosine.

    pip install "limner[sentence-transformers]"

```python
from PIL import Image
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("THIS-FOLDER", trust_remote_code=True)
rows = model.encode([Image.open("picture.jpg"), "a woman in a green coat"])
model.similarity(rows[:1], rows[1:])
```

`trust_remote_code` is needed since `limner_module.py` of this folder is run: it opens `limner.safetensors` with the
limner that is installed. Every string is read as a sentence, also one that is a path or an address. Strings without a
word that the model knows have the embedding of an empty sentence. `limner.load("limner.safetensors")` opens the same
model without sentence-transformers.

Model {fingerprint}
"""


def write_sentence_transformers(model: TrainedModel, folder: Path) -> None:
    """Write the folder; it may exist, and must be empty.

    What it loads as gives the embeddings of `encode_images` and of `encode_texts(check=False)` in fp32. Nothing of
    sentence-transformers is needed to write it. Raises `SettingsError` for a folder that holds anything.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder}: it exists and is not empty; give a new folder for the export")
    # before the folder: a run of somebody else's encoder has no network, and says so
    _ = model.model
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint_of(model, folder / CHECKPOINT)
    code = files("limner.export").joinpath("sentence_transformers_module.py").read_text(encoding="utf-8")
    write_text(folder / f"{MODULE}.py", code)
    _write_json(folder / f"{MODULE}.json", {"checkpoint": CHECKPOINT, "precision": "fp32"})
    _write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    )
    said = _README.format(
        name=model.description["recipe"].get("name") or model.path.parent.name,
        dim=model.dim,
        fingerprint=model.fingerprint,
    )
    write_text(folder / "README.md", f"{said}Written by limner {versions()['limner']}.\n")
    # last: without it the folder is none of sentence-transformers'
    _write_json(
        folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": f"{MODULE}.LimnerModule"}]
    )


def write_checkpoint_of(model: TrainedModel, path: Path) -> None:
    """Write a loaded model as a checkpoint of the same fingerprint."""
    # from memory and not the run's file, which a training may have replaced since
    tensors = {**model.model.state_dict(), **tokenizer_tensors(model.tokenizer), **model.learnt}
    write_checkpoint(path, tensors, model.description)


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")

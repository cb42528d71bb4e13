"""Import a pretrained model as a run: a pair of towers as limner's own network, any other as sentence-transformers.

Of sentence-transformers a pair is plain if its folder is one CLIP, SigLIP or the like, whose features are compared as
they are or normalised. It becomes a run that trains, re-ranks and explains (`limner.inference.import_pair`). Every
other model of pictures and sentences becomes one that calls the library (`limner.inference.sentence_transformer`).
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from limner.arguments import PATH, expect
from limner.durable import read_json
from limner.errors import CheckpointError, LimnerError, SettingsError
from limner.inference.checkpoint import CALLED, write_checkpoint
from limner.inference.hub_runs import in_reach, split_name
from limner.inference.import_pair import FILE, import_pair, nothing_left, opened, source_name
from limner.inference.provenance import versions
from limner.inference.sentence_transformer import (
    SIDE,
    files_as_tensors,
    library,
    open_folder,
)
from limner.inference.source import HUB, SENTENCE_TRANSFORMER
from limner.inference.trained import TrainedModel
from limner.models.known import weight_terms
from limner.models.pretrained_source import (
    ADAPTER_FILE,
    expect_folder,
    expect_no_adapter,
    expect_sizes,
    is_pair,
    read_config,
    transformers_library,
    unusable,
)
from limner.models.weight_files import expect_finite

_LIMNER = "limner_module.json"
"""A file of the folders that limner itself exports."""

_OTHER_FORMS = ("onnx", "openvino")
"""Folders of a model with the same weights for other programs."""

_NOT_OF_THE_MODEL = frozenset(
    (".md", ".py", ".png", ".jpg", ".jpeg", ".gif", ".h5", ".ot", ".msgpack", ".onnx", ".tflite", ".gguf")
)
"""Endings of files that loading never reads."""


def import_model(
    source: str | Path, out: str | Path, *, size: tuple[int, int] | None = None, words: int | None = None
) -> TrainedModel:
    """Make a run of a pretrained pair: a folder, `hf:ORG/NAME` of the hub, or `st:FOLDER` of sentence-transformers.

    Its embeddings are those of transformers' `get_image_features` and `get_text_features` for what the pair's own
    processor gives. `size` is another (height, width) of images, for which positions are interpolated; `words` a
    shorter length of sentences in tokens; both are for pairs alone. The run needs its source no more.

    Raises `CheckpointError` for a source that cannot be read, is no pair, or has code of its own; `SettingsError` for
    its tokenizer, a `size` or `words` that cannot be had, and a folder `out` that is not empty.
    """
    expect(source, PATH, "import_model: a folder, hf:ORG/NAME or st:FOLDER")
    expect(out, PATH, "import_model: the folder of the run")
    source, folder = str(source), Path(out)
    # before minutes of reading and a gigabyte of downloads
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder}: it exists and is not empty; give a new folder for the run")
    # a name that is none costs no question
    if source.startswith(HUB) and split_name(source)[1] is not None:
        raise SettingsError(
            f"{source[:120]}: a pair is imported as it is now, without a revision (@…); leave it out"
        )
    name = source.removeprefix(SENTENCE_TRANSFORMER).removeprefix(HUB)
    try:
        expect_folder(name)
        # a folder asks no network
        with nullcontext() if Path(name).is_dir() else in_reach(source):
            if source.startswith(SENTENCE_TRANSFORMER):
                return _import_sentence_transformer(source, folder, size=size, words=words)
            return import_pair(name, folder, described=source_name(source), size=size, words=words)
    except LimnerError:
        raise
    # the files are somebody else's, and the libraries that read them let through what they meet
    except Exception as error:
        raise unusable(source, "its files do not fit each other", error) from error


def _import_sentence_transformer(
    source: str, out: Path, *, size: tuple[int, int] | None, words: int | None
) -> TrainedModel:
    name = source.removeprefix(SENTENCE_TRANSFORMER)
    folder = _folder(name)
    described = SENTENCE_TRANSFORMER + (Path(name).resolve().name if Path(name).is_dir() else name)
    if (folder / _LIMNER).is_file():
        checkpoint = (_read(folder / _LIMNER, name) or {}).get("checkpoint")
        raise CheckpointError(
            f"model '{name}': limner itself exported this folder; use its checkpoint {checkpoint} in place of a run"
        )
    for adapter in folder.rglob(ADAPTER_FILE):
        expect_no_adapter(adapter, name)
    for path in folder.rglob("config.json"):
        expect_sizes(_read(path, name), name)
    modules = _read(folder / "modules.json", name)
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules) or not modules:
        raise CheckpointError(
            f"model '{name}': no model of sentence-transformers (modules.json is missing or empty); a plain pair of "
            "transformers is imported without st:"
        )
    kinds = [str(one.get("type", "")) for one in modules]
    if own := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise CheckpointError(
            f"model '{name}': it has code of its own ({own[0]}), and limner runs no code of a model; use it through "
            "sentence-transformers, and index its vectors (limner index --vectors)"
        )
    pair = _plain_pair(folder, modules, kinds, name)
    if pair is not None:
        return import_pair(
            str(pair), out, described=described, size=size, words=words or _shorter(pair, name)
        )
    if size is not None or words is not None:
        raise SettingsError(
            "--size and --words: sentence-transformers prepares the input of this model by itself"
        )
    return _import_as_it_is(folder, name, described, out)


def _folder(name: str) -> Path:
    """The folder of a source; a model of the hub is fetched, or found in its cache."""
    if Path(name).is_dir():
        return Path(name)
    expect_folder(name)
    transformers_library(f"model '{name}'")
    from huggingface_hub import snapshot_download

    try:
        skipped = [f"*{ending}" for ending in sorted(_NOT_OF_THE_MODEL)]
        return Path(
            snapshot_download(name, ignore_patterns=[*skipped, *(f"{other}/*" for other in _OTHER_FORMS)])
        )
    # its errors are of several libraries: no network, no such model, offline and not in the cache
    except Exception as error:
        raise unusable(
            name, "it cannot be fetched", error if isinstance(error, OSError) else OSError(str(error))
        ) from None


def _read(path: Path, name: str) -> Any:
    """A JSON file's content; None without the file. Raises `CheckpointError`."""
    if not path.is_file():
        return None
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise unusable(name, f"its {path.name} cannot be used", error) from None


def _plain_pair(folder: Path, modules: list[dict[str, Any]], kinds: list[str], name: str) -> Path | None:
    """The folder of the pair, where nothing but the pair's own features makes an embedding."""
    classes = [kind.rpartition(".")[2] for kind in kinds]
    if classes[0] not in ("CLIPModel", "Transformer") or set(classes[1:]) - {"Normalize"}:
        return None
    inside = Path(str(modules[0].get("path", "")))
    if inside.is_absolute() or ".." in inside.parts:  # which sentence-transformers refuses
        return None
    inner = folder / inside
    above = _read(folder / "config_sentence_transformers.json", name) or {}
    prompt = (above.get("prompts") or {}).get(above.get("default_prompt_name"))
    settings = _read(inner / "sentence_bert_config.json", name) or {}
    methods = {
        side: way.get("method")
        for side, way in (settings.get("modality_config") or {}).items()
        if side != "message"
    }
    if (
        prompt
        or settings.get("processing_kwargs")
        or settings.get("do_lower_case")
        or methods not in ({}, {"text": "get_text_features", "image": "get_image_features"})
        or not (inner / "config.json").is_file()
    ):
        return None
    try:
        return inner if is_pair(read_config(str(inner))) else None
    # a kind that transformers does not know; sentence-transformers will say so, or knows it
    except CheckpointError:
        return None


def _shorter(pair: Path, name: str) -> int | None:
    """The length of sentences that sentence-transformers has been told to cut at; None for the tower's own."""
    longest = (_read(pair / "sentence_bert_config.json", name) or {}).get("max_seq_length")
    config = read_config(str(pair))
    # sentences of SigLIP are filled to the length that it was trained with
    if config.model_type.startswith("siglip") or not isinstance(longest, int):
        return None
    return longest if longest < getattr(config.text_config, "max_position_embeddings", longest) else None


def _import_as_it_is(folder: Path, name: str, described: str, out: Path) -> TrainedModel:
    # before gigabytes are written: not every model of sentence-transformers takes pictures
    encoder = open_folder(folder, name, "cpu")
    expect_finite(encoder.state_dict(), name)
    dim = len(encoder.encode("a picture", show_progress_bar=False))
    del encoder
    # without its own folder, which may have settings of its own: the hub's cache has links and locks beside the files
    tensors = files_as_tensors(folder, _files(folder))
    found = versions() | {"sentence-transformers": str(library().__version__)}
    description = {
        "system": CALLED,
        "model": {"system": CALLED, "dim": dim},
        "images": {"side": SIDE},
        "cross_encoder": None,
        "files": {},
        "tokenizer": {},
        "recipe": {"name": f"import of {described}", "rerank": 0},
        "selected": None,
        "data": {"source": described, "train": None, "val": None},
        "terms": [weight_terms(described.removeprefix(SENTENCE_TRANSFORMER)).model_dump(mode="json")],
        "seed": None,
        "versions": found,
    }
    with nothing_left(out):
        write_checkpoint(out / FILE, tensors, description)
        # before the run is opened, which holds all files once more
        del tensors
        return opened(out, description)


def _files(folder: Path) -> list[str]:
    """The files that loading may read, by their names in the folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") or part in _OTHER_FORMS for part in inside.parts)
        if hidden or not path.is_file() or path.suffix.lower() in _NOT_OF_THE_MODEL:
            continue
        # the same weights once more
        if path.suffix == ".bin" and (path.parent / "model.safetensors").is_file():
            continue
        found.append(inside.as_posix())
    return found

"""Pretrained models of the transformers library as sources of towers: their configuration, weights and files.

A source is a folder, or a name on the Hugging Face hub. No code of a source is ever run. Weights are read from
safetensors, or from a pickle of tensors alone.
"""

import copy
import importlib
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from limner.durable import from_json
from limner.errors import CheckpointError, install_hint
from limner.models import open_clip
from limner.models.weight_files import expect_finite

Side = Literal["image", "text"]
"""A tower of a pair."""

_PREFIXES: dict[Side, tuple[str, ...]] = {"image": ("vision", "visual", "image"), "text": ("text",)}
"""How the names of a side's modules begin in the pairs of transformers."""

ADAPTER_FILE = "adapter_config.json"
"""Describes an adapter of peft, such as LoRA."""

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Files of weights, in transformers' order; an index names parts."""

# without these, checkpoints of one network are equal on all machines, and tell nobody the folders of one
_OF_A_MACHINE = ("_name_or_path", "transformers_version")


@dataclass(frozen=True)
class Half:
    """One tower of a pair: `tower` ends below the projection into the shared space, `projection` is that layer."""

    tower: nn.Module
    projection: nn.Module
    config: Any


def transformers_library(what: str = "a pretrained model") -> ModuleType:
    """The library. Raises `CheckpointError` that names the extra where it is not installed."""
    try:
        # imported here, since transformers is an optional extra and the papers' networks do without it
        return importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointError(
            f"{what} needs the transformers library; install it with: {install_hint('transformers')}"
        ) from error


def read_config(source: str) -> Any:
    """The configuration of a source, made from open_clip's file where it has only that. Raises `CheckpointError`."""
    expect_folder(source)
    transformers = transformers_library(f"model '{source}'")
    expect_no_adapter(find_file(source, ADAPTER_FILE), source)
    described = open_clip.read_description(find_file(source, open_clip.CONFIG_FILE), source)
    content = (
        read_json(source, "config.json") if described is None else open_clip.to_config(described, source)
    )
    if content is None and Path(source).is_dir():
        raise CheckpointError(
            f"model '{source}': its config.json is missing; give a folder with config.json, model.safetensors and "
            "tokenizer.json, or a hub name while there is a network"
        )
    expect_sizes(content, source)
    kind = (content or {}).get("model_type")
    if kind is not None and kind not in list(transformers.CONFIG_MAPPING):
        # never with the model's own code, whatever its files ask for
        raise CheckpointError(
            f"model '{source}': its config.json is of the kind {kind!r:.60}, which transformers "
            f"{transformers.__version__} does not know; choose another, or one that has no code of its own"
        )
    # transformers lets through what its own libraries raise: OSError, ValueError, KeyError, SafetensorError …
    try:
        # it warns of the defaults that a small vocabulary leaves as they are
        with quiet(transformers):
            if described is not None:
                return transformers.CLIPConfig.from_dict(content)
            return transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        raise unusable(source, "its config.json cannot be read", error) from None


def expect_no_adapter(path: Path | None, source: str) -> None:
    """Raise `CheckpointError` for an adapter of peft, alone or beside its base, whose weights are a change of others.

    transformers adds one to its base if peft happens to be installed, and leaves it out otherwise.
    """
    if path is None:
        return
    try:
        base = from_json(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        base = None
    raise CheckpointError(
        f"model '{source}': it holds an adapter of peft ({ADAPTER_FILE}) for {base or 'another model'!s:.120}; merge "
        "it into that, PeftModel.from_pretrained(AutoModel.from_pretrained(BASE), ADAPTER).merge_and_unload()"
        ".save_pretrained(FOLDER), copy the base's tokenizer and preprocessor files into FOLDER, and give that"
    )


_SIZE = re.compile(
    r"(hidden|intermediate|embedding|embed|image|patch|vocab|projection|input)_(sizes?|dims?)|depths?|width|layers|heads"
    r"|max_position_embeddings|num_(hidden_layers|attention_heads|key_value_heads|heads|layers|patches|channels)"
)
"""Names of sizes in configurations, of towers and of backbones."""

_LAYERS = 1_000
_LARGEST = 2**24

_SMALL = 2**28
"""Numbers of a network that every machine holds: 1 GiB."""


def expect_sizes(values: Any, source: str) -> None:
    """Raise `CheckpointError` for a size in a configuration that no network has.

    Before anything is built: a network of a billion layers would be built for hours.
    """
    for name, value in values.items() if isinstance(values, dict) else ():
        expect_sizes(value, source)
        if isinstance(value, dict) or value is None or _SIZE.fullmatch(name) is None:
            continue
        most = _LAYERS if "layers" in name or "depth" in name else _LARGEST
        for one in value if isinstance(value, list | tuple) else [value]:
            # stages of some networks have pairs
            if isinstance(one, list) or (isinstance(one, int) and 1 <= one <= most):
                continue
            raise CheckpointError(
                f"model '{source}': {name} of its configuration is {one!r:.60}, expected a whole number from 1 to "
                f"{most:,}; fetch the model again"
            )


def expect_buildable(
    source: str, network: Any, config: Any, *, files: Sequence[str] = _WEIGHTS, **options: Any
) -> None:
    """Raise `CheckpointError` for a configuration of which transformers builds no network, or a far too large one.

    It is built without memory. Filling a network of more numbers than the files have bytes could take all of the
    machine's; of a small one the first tensor of another shape is told later.
    """
    try:
        with quiet(transformers_library()), torch.device("meta"):
            count = sum(weight.numel() for weight in network(copy.deepcopy(config), **options).parameters())
    except Exception as error:
        raise unusable(source, "its config.json describes no network", error) from None
    if (there := _weight_bytes(source, files)) is not None and count > max(there, _SMALL):
        raise CheckpointError(
            f"model '{source}': its weights do not fit its config.json, which describes {count:,} numbers, while the "
            f"files have {there:,} bytes; fetch the model again"
        )


def _weight_bytes(source: str, files: Sequence[str]) -> int | None:
    """Bytes of a source's weights; None where they lie in parts that were not fetched yet."""
    for name in files:
        if (path := find_file(source, name)) is None:
            continue
        if path.suffix != ".json":
            return path.stat().st_size
        parts = set(((read_json(source, name) or {}).get("weight_map") or {}).values())
        found = [path.parent / str(part) for part in parts]
        return sum(part.stat().st_size for part in found) if all(map(Path.is_file, found)) else None
    raise CheckpointError(
        f"model '{source}': its weights cannot be read ({files[0]} is missing); fetch the whole model again"
    )


def is_pair(config: Any) -> bool:
    """True for the configuration of two towers with `get_text_features` and `get_image_features`."""
    model = _model_class(config)
    return model is not None and hasattr(model, "get_text_features") and hasattr(model, "get_image_features")


def read_half(source: str, side: Side, *, load_weights: bool = True) -> Half:
    """One tower of a pair and its projection.

    Without `load_weights` the values are undefined, for a checkpoint to fill. Raises `CheckpointError` for a source
    that cannot be read, is no pair, or lacks weights.
    """
    config = read_config(source)
    if not is_pair(config):
        raise CheckpointError(
            f"model '{source}': '{config.model_type}' is no pair of an image and a text encoder; choose one such as "
            "clip, siglip, siglip2, altclip or chinese_clip"
        )
    pair = _pair(source, config, load_weights)
    # the pair's own method runs the tower, so pooling, end of text and padding are transformers' own; a shallow copy
    # with one side's modules alone keeps the other side out of the checkpoint and out of memory
    half = copy.copy(pair)
    half.__dict__ = {**pair.__dict__, "_parameters": {}, "_buffers": {}}
    half.__dict__["_modules"] = {
        name: module for name, module in pair.named_children() if name.startswith(_PREFIXES[side])
    }
    found = [name for name in half._modules if name.endswith("_projection")]
    if not half._modules or len(found) > 1:
        raise CheckpointError(
            f"model '{source}': the towers of a '{config.model_type}' are not recognised; choose another"
        )
    projection: nn.Module = nn.Identity()
    if found:
        projection = getattr(half, found[0])
        setattr(half, found[0], nn.Identity())
    return Half(half, projection, config)


@contextmanager
def read_once() -> Iterator[None]:
    """Within it, `read_half` reads a pair once for both of its sides.

    A vocabulary of 256,000 pieces makes up most of a pair, and reading the image tower alone would read it, too.
    """
    token = _READ.set([])
    try:
        yield
    finally:
        _READ.reset(token)


_READ: ContextVar[list[tuple[Any, Any]] | None] = ContextVar("pairs read", default=None)
"""The pairs that were read within `read_once`, each behind the key that tells it from others."""


def _pair(source: str, config: Any, load_weights: bool) -> Any:
    """A whole pair."""
    # without weights the configuration is all; of one checkpoint it lies in a folder for each side
    key = source if load_weights else portable(config)
    read = _READ.get()
    for before, pair in read or ():
        if before == key:
            return pair
    pair = read_weights(source, config) if load_weights else empty(config)
    if read is not None:
        read.append((key, pair))
    return pair


def empty(config: Any, **options: Any) -> Any:
    """The network of a configuration with undefined values, which a checkpoint fills next."""
    from transformers.initialization import no_init_weights

    # random values of a tower of 100 million parameters take seconds, and would be overwritten
    try:
        with quiet(transformers_library()), no_init_weights():
            model: Any = _expected_class(config)(config, **_accepted(config, options))
    except Exception as error:
        raise unusable(str(config.model_type), "its config.json describes no network", error) from None
    return model.float()


def read_weights(source: str, config: Any, **options: Any) -> Any:
    """The network of a source with its weights in float32. Raises `CheckpointError` for missing or misshapen ones."""
    described = open_clip.read_description(find_file(source, open_clip.CONFIG_FILE), source)
    if described is not None:
        expect_buildable(source, _expected_class(config), config, files=open_clip.WEIGHT_FILES)
        model = empty(config)
        open_clip.load_into(model, _open_clip_weights(source), source)
        expect_finite(model.state_dict(), source)
        return model
    transformers = transformers_library()
    expect_buildable(source, _expected_class(config), config, **_accepted(config, options))
    try:
        with quiet(transformers):
            model, report = _expected_class(config).from_pretrained(
                source,
                config=config,
                # half-precision files would give embeddings that are rounded; the library's default keeps their type
                dtype=torch.float32,
                output_loading_info=True,
                # off, transformers raises a page of its own; on, it reports the names, which make one line below
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                **_accepted(config, options),
            )
    except Exception as error:
        raise unusable(source, "its weights cannot be read", error) from None
    # transformers fills what a file lacks with random values and only logs it
    missing = sorted(report["missing_keys"])
    misshapen = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing or misshapen:
        what = f"'{missing[0]}' is missing" if missing else f"'{misshapen[0]}' has another shape"
        raise CheckpointError(
            f"model '{source}': its weights do not fit its config.json: {what}; fetch the model again"
        )
    expect_finite(model.state_dict(), source)
    return model


def find_file(source: str, name: str) -> Path | None:
    """A file of a source: in the folder, in the hub's cache, or fetched; None if the source has none."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    expect_folder(source)
    found = transformers_library().utils.cached_file(
        source,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return None if found is None else Path(found)


def read_json(source: str, name: str) -> dict[str, Any] | None:
    """A JSON file of a source; None if it has none. Raises `CheckpointError` for a damaged one."""
    path = find_file(source, name)
    if path is None:
        return None
    try:
        content = from_json(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
    except OSError as error:
        raise unusable(source, f"its {name} cannot be used", error) from None
    except ValueError as error:
        raise CheckpointError(
            f"model '{source}': its {name} cannot be used ({error}); fetch it again"
        ) from None
    return content


def expect_folder(source: str) -> None:
    """Raise `CheckpointError` for what is neither a folder nor a name that the hub could have."""
    if Path(source).is_dir():
        return
    transformers_library(f"model '{source}'")
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(source)
    except HFValidationError:
        raise CheckpointError(
            f"model {source!r:.120}: no such folder, and no name of the hub (ORG/NAME of letters, digits, '.', '_' and "
            "'-', at most 96); give one of both, a folder with config.json and model.safetensors"
        ) from None


def portable(config: Any) -> dict[str, Any]:
    """A configuration of transformers without the folder it came from and the version of the library."""
    values: dict[str, Any] = config.to_dict()
    return {name: value for name, value in values.items() if name not in _OF_A_MACHINE}


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Silence transformers' progress bar, and its table of a file's other entries."""
    logging: Any = transformers.logging
    before = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        # transformers' settings are those of the whole process, and the caller may have chosen them
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()


def unusable(source: str, what: str, error: BaseException) -> CheckpointError:
    """The one line for a source that cannot be read, with the next step."""
    if (blocked := _torchvision_trouble(error)) is not None:
        return CheckpointError(f"model '{source}': {blocked}")
    if not Path(source).is_dir() and isinstance(error, OSError):
        # the library's own text is a paragraph with links
        offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
        way = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached, or has no such public model"
        return CheckpointError(
            f"model '{source}': it is not in the local cache and {way}; fetch it once where there is a network "
            f"(hf download {source}), or give a folder with config.json, model.safetensors and tokenizer.json"
        )
    # the text of other libraries is of several lines, of links, and of advice to run a file's code
    reason = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    elif (field := re.search(r"[Vv]alidation error for field '(\w{1,60})'", str(error))) is not None:
        reason = f"'{field[1]}' is not of its type"
    elif str(error).startswith("Weights only load failed"):
        reason = "its file holds more than plain tensors, which could run code"
    return CheckpointError(
        f"model '{source}': {what} ({reason}); give a folder with config.json, model.safetensors and tokenizer.json, "
        "or a hub name while there is a network"
    )


def _torchvision_trouble(error: BaseException | None) -> str | None:
    """A torchvision that does not fit torch keeps transformers from importing any model."""
    while error is not None:
        if "torchvision" in str(error):
            return (
                "the torchvision that is installed does not fit this torch, and transformers fails on it; "
                "remove it (pip uninstall torchvision), limner does not need it"
            )
        error = error.__cause__ or error.__context__
    return None


def _open_clip_weights(source: str) -> dict[str, torch.Tensor]:
    # one is there: `expect_buildable`
    path = next(path for name in open_clip.WEIGHT_FILES if (path := find_file(source, name)) is not None)
    return open_clip.read_weights(path)


def _model_class(config: Any) -> Any:
    transformers = transformers_library()
    try:
        mapping = transformers.MODEL_MAPPING
        return mapping.get(type(config), None)
    except Exception as error:
        # the import of the model's file, which a broken torchvision stops
        if (blocked := _torchvision_trouble(error)) is not None:
            raise CheckpointError(f"a '{config.model_type}' cannot be loaded: {blocked}") from None
        raise


def _expected_class(config: Any) -> Any:
    model = _model_class(config)
    if model is None:
        raise CheckpointError(
            f"'{config.model_type}' is no model that AutoModel of transformers knows; choose another"
        )
    # some configurations have a tuple of classes; the first is the plain one
    return model[0] if isinstance(model, tuple) else model


def _accepted(config: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that the model's class takes, such as `add_pooling_layer`."""
    takes = inspect.signature(_expected_class(config).__init__).parameters
    return {name: value for name, value in options.items() if name in takes}

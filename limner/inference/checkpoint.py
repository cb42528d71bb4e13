"""Checkpoints: one safetensors file whose header holds a JSON description, written atomically.

Weights and description travel in one file, so that no crash can separate them. Beside the description stands a digest
of both, which is checked when the weights are read. Nothing in it is pickled, and reading it runs no code. The
description:

    format        4
    system        e.g. "dual-path"
    model         settings of the network
    cross_encoder settings of the network that re-ranks; null without one
    files         by part ("backbone", "text") and file name, the files of transformers that build it; {} without any
    images        settings of decoding, crops and flips
    tokenizer     the tokenizer (`limner.types.Tokenizer.to_description`)
    recipe        the whole recipe that trained it
    selected      stage, epoch, and the validation scores that chose it
    data          source, fingerprint and counts of the training and validation splits
    origin        digest of what the training started from: pretrained files, tokenizer, another run
    terms         terms of everything that the weights have learnt from, a list
    learnt_images "all", or "part" if training started from a run that does not name its images
    packages      of other packages: by "encoder NAME" and "loss NAME", the package; absent without any
    seed, versions

A tokenizer.json lies among the tensors, as the bytes of `TOKENIZER`. In the header 256,000 pieces of Gemma's kind would
be 23 MB, which every reader of a description would parse, and a header ends at 100 MB. The images that the weights have
learnt from lie there too, as `TRAINED_ON` and `SELECTED_ON` (`limner.inference.learnt_images`).
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from limner.durable import from_json, part_of, sync
from limner.errors import CheckpointError
from limner.types import Tokenizer

FORMAT = 4
"""Increased when an older version of limner could not read a file; 1 to 3 were never released."""

_READ = 1 << 22
"""Numbers that are read at once for the digest alone: 16 MB."""

CALLED = "sentence-transformers"
"""System of a checkpoint that carries a SentenceTransformer (`limner.inference.sentence_transformer`)."""

TOKENIZER = "tokenizer.json"
"""Name of the tensor that holds a tokenizer's file; no module has a dot in its name, so no weight is called so."""

TRAINED_ON = "trained-on"
"""Name of the tensor with the images that trained the weights, int64: eight bytes of each one's digest, sorted."""

SELECTED_ON = "selected-on"
"""Name of the same of the validation images, by which the epoch was chosen."""

NOT_WEIGHTS = frozenset({TOKENIZER, TRAINED_ON, SELECTED_ON})
"""Tensors that belong to no module: none has a dot or a hyphen in its name."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    """Write the file beside its final place, flush it to disk and move it there; return its digest.

    A reader sees the old file or the new one, never a part. Equal tensors and descriptions are equal bytes. Raises
    `CheckpointError` when the disk refuses.
    """
    # a folder: safetensors writes to a file of its own beside the one it is told, and a killed process leaves that one
    # under a name that nobody knows
    beside = part_of(path)
    part = beside / path.name
    # safetensors refuses tensors in another memory order, such as channels-last filters
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # a header of safetensors maps text to text, so the description is one JSON text in it
    text = json.dumps({"format": FORMAT, **description})
    digest = _digest(text, plain)
    try:
        # safetensors makes files that their owner alone may read (0600 from 0.8 on): a server of another user could not
        # open the run. A file made as any other says what the user wants
        discard_part(path)
        beside.mkdir()
        part.touch()
        mode = part.stat().st_mode
        save_file(plain, part, metadata={"limner": text, "digest": digest})
        _order_header(part)
        part.chmod(mode)
        sync(part)
        part.replace(path)
        beside.rmdir()
        sync(path.parent)
    # safetensors reports a full disk by an error of its own
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); check the disk's space and rights"
        ) from None
    return digest


def _order_header(path: Path) -> None:
    """Write the header's texts in one order: safetensors has that of a hash table, another one each time."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = from_json(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        # as it was written, so that it is as long; blanks at its end align the tensors
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size))


def discard_part(path: Path) -> None:
    """Remove what a `write_checkpoint` of this file that was killed has left beside it."""
    shutil.rmtree(part_of(path), ignore_errors=True)


def read_description(path: Path) -> dict[str, Any]:
    """The JSON description alone, which takes no time, and without a comparison of the digest.

    Raises `CheckpointError`.
    """
    with _opened(path) as handle:
        metadata = handle.metadata() or {}
    try:
        description: Any = from_json(metadata["limner"])
    # the header may be damaged or somebody else's
    except (KeyError, ValueError):
        description = None
    if not isinstance(description, dict):
        raise CheckpointError(f"{path}: not a limner checkpoint (no description in its header)")
    version = description.get("format")
    if version != FORMAT:
        raise CheckpointError(
            f"{path}: checkpoint format {version!r}, this limner reads {FORMAT}; train the run again, or use the "
            "version that wrote it"
        )
    return description


def read_digest(path: Path) -> str | None:
    """The digest in the header, of the description and all tensors; None in a foreign file. It is not compared.

    Raises `CheckpointError`.
    """
    with _opened(path) as handle:
        found: str | None = (handle.metadata() or {}).get("digest")
    return found


def read_checkpoint(
    path: Path, only: Collection[str] | None = None, *, rows: Callable[[str], slice | None] = lambda _: None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU and the description; with `only` the tensors of these names, as far as the file has them.

    `rows` says which rows of a tensor are wanted, by its name; None = all. Beside them no more than some others are in
    memory at once. The digest of the whole file is compared in any case. Raises `CheckpointError`.
    """
    description = read_description(path)
    # opened again for the tensors: a foreign file is refused by its header, before gigabytes are read
    # read and not mapped: a run that is copied over the file would change the weights of a server, or end it
    with _opened(path, backend="pread") as handle:
        metadata = handle.metadata()
        tensors, digest = {}, hashlib.sha256(metadata["limner"].encode())
        # one after the other: what is not asked for is in memory only while the digest takes it
        for name in sorted(handle.keys()):
            held, shape = rows(name), tuple(handle.get_slice(name).get_shape())
            # a tensor without such rows is read whole: whoever asked tells what is wrong with it
            if held is None or not shape or held.stop > shape[0]:
                held = slice(None)
            # opening the file again takes longer than to read a small one
            if held != slice(None) and math.prod(shape) > _READ:
                tensor = _take_rows(digest, name, path, held)
            else:
                tensor = handle.get_tensor(name)
                _take(digest, name, tensor)
                tensor = tensor if held == slice(None) else tensor[held].clone()
            if only is None or name in only:
                tensors[name] = tensor
    # 0.1 s for each 100 MB, as the fingerprint takes, which does not cover the whole description
    if metadata.get("digest") != digest.hexdigest():
        raise CheckpointError(
            f"{path}: damaged checkpoint, its digest is another; take a copy of the run, or train again"
        )
    return tensors, description


def _digest(description: str, tensors: Mapping[str, Tensor]) -> str:
    """Digest of a description and of all tensors with their names, types and shapes."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        _take(digest, name, tensor)
    return digest.hexdigest()


def _take(digest: Any, name: str, tensor: Tensor) -> None:
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(_bytes(tensor))


def _take_rows(digest: Any, name: str, path: Path, held: slice) -> Tensor:
    """The same of a tensor of a file, which is never in memory as a whole, and some of its rows."""
    # mapped: what reads reads all of a tensor for each of its slices
    with _opened(path) as handle:
        part = handle.get_slice(name)
        count, *row = part.get_shape()
        # a slice of none is none of safetensors'
        digest.update(f"{name} {part[:1].dtype} {(count, *row)}".encode())
        step = max(1, _READ // math.prod(row))
        for start in range(0, count, step):
            digest.update(_bytes(part[start : min(start + step, count)]))
        # a copy: the mapped file may be exchanged
        found: Tensor = part[held].clone() if held.start < held.stop else part[:1][:0].clone()
        return found


def _bytes(tensor: Tensor) -> memoryview:
    # as bytes: numpy has no bfloat16
    return tensor.flatten().view(torch.uint8).numpy().data


def _opened(path: Path, backend: str = "mmap") -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint; train one with `limner train`")
    try:
        return safe_open(path, framework="pt", backend=backend)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged checkpoint ({error})") from None


def tokenizer_tensors(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The tokenizer's file as a tensor to be written among the weights; {} if its description is all of it."""
    content = tokenizer.content()
    # a copy, since torch has no tensors that must not be written to
    return {} if content is None else {TOKENIZER: torch.frombuffer(bytearray(content), dtype=torch.uint8)}


def load_into(
    module: torch.nn.Module, tensors: Mapping[str, Tensor], path: Path, *, assign: bool = False
) -> None:
    """Load strictly. Raises `CheckpointError` naming the first key that does not fit.

    With `assign` the module takes the tensors themselves, which saves the memory of a second copy; its parameters are
    other objects then, of which an optimiser that was made before knows nothing.
    """
    expected = module.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            raise CheckpointError(f"{path}: tensor '{name}' is missing; the checkpoint is of another model")
        if tensor.shape != tensors[name].shape:
            raise CheckpointError(
                f"{path}: tensor '{name}' has shape {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
            )
    # sorted: the order of a set of strings changes from process to process
    # a stage begins from the checkpoint of the one before it, in which these lie
    unknown = sorted(set(tensors) - set(expected) - NOT_WEIGHTS)
    if unknown:
        raise CheckpointError(f"{path}: unknown tensor '{unknown[0]}'; the checkpoint is of another model")
    # names and shapes were checked above, since torch's own error is a paragraph that lists every key
    module.load_state_dict(
        {
            name: _laid_out_as(tensor, tensors[name]) if assign else tensors[name]
            for name, tensor in expected.items()
        },
        assign=assign,
    )


def _laid_out_as(expected: Tensor, tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy of it if its type or memory order is another, such as channels-last filters."""
    if tensor.dtype == expected.dtype and tensor.stride() == expected.stride():
        return tensor
    return torch.empty_like(expected).copy_(tensor)

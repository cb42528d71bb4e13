"""A trained model, ready to encode images and sentences: what `limner.load` returns."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8

from limner.data.tokenizers import tokenizer_from_description
from limner.data.transforms import ImageSettings
from limner.durable import digest_of_values, opened, read_json
from limner.errors import CheckpointError, DataError, SettingsError
from limner.evaluation.reranking import First
from limner.inference.checkpoint import (
    CALLED,
    NOT_WEIGHTS,
    SELECTED_ON,
    TOKENIZER,
    TRAINED_ON,
    load_into,
    read_checkpoint,
    read_description,
    read_digest,
)
from limner.inference.encoder_base import EncoderBase, several
from limner.inference.encoding import SENTENCES, Encoding
from limner.inference.hub_runs import local_run
from limner.inference.openvino_library import require_openvino
from limner.inference.precision import (
    Arithmetic,
    InferenceEngine,
    Precision,
    default_device,
    measuring_precision,
)
from limner.inference.rerankers import reranker_of
from limner.inference.source import RUN_FILE, SourceKind, kind_of
from limner.models.co_attention import CoAttentionSettings
from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.registry import ModelSettings, build_network
from limner.settings import Settings
from limner.types import ImageSource, RegionFeatures, Reranker, TokenBatch, Tokenizer


class _Model(Settings):
    """The setting that says which network a checkpoint holds."""

    model: ModelSettings
    """The network."""


_NO_RUN: dict[SourceKind | None, str] = {
    "export": "an export, which indexes and searches only; give the run that it was made of",
    "pretrained": "a pretrained model and no run; a pair is made one by `limner import`",
    "sentence-transformers": "a name of sentence-transformers and no run; it is made one by `limner import`",
    None: f"no trained run here ({RUN_FILE} is missing); train one with `limner train`",
}

STATE_FILE = "last.safetensors"
"""The state of a training (`limner.training.state`); a run is used without it, too."""


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedModel(EncoderBase):
    """A network with its vocabulary and its transform of images; a `limner.types.Encoder`.

    - `path`: the checkpoint file it came from.
    - `description`: the checkpoint's JSON (`limner.inference.checkpoint`).
    - `learnt`: the tensors that name the images it has learnt from (`limner.inference.learnt_images`); empty for a run
      that was trained before format 4, and for an imported one.
    """

    path: Path
    description: dict[str, Any]
    model: DualEncoder
    tokenizer: Tokenizer
    images: ImageSettings
    encoding: Encoding
    learnt: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: the description alone has a hundred thousand characters, most of them the vocabulary."""
        return (
            f"TrainedModel({str(self.path)!r}, system={self.model.settings.system!r}, dim={self.dim}, "
            f"tokens={self.tokenizer.size}, device={str(self.encoding.device)!r}, "
            f"precision={self.encoding.precision!r})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of weights, tokenizer and test transform: embeddings of equal fingerprints can be compared."""
        digest = hashlib.sha256()
        # where weights once came from, and how training cropped, change no embedding; files say what was built of them
        parts = (
            *(self.model.settings.identity(), self.model.files()),
            *(*self.images.identity(), self.tokenizer.to_description()),
        )
        # keys sorted: a setting that moves within its class must not make stores foreign
        digest.update(json.dumps(parts, sort_keys=True).encode())
        # the weights below are of both networks, the settings above of the first alone
        if self.model.cross_encoder is not None:
            digest.update(self.model.cross_encoder.settings.model_dump_json().encode())
        # by name, and with the names: modules may be registered in another order one day
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            # a view of its bytes: a copy of a table of 256,000 pieces would be 800 MB
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return self.model.embedding_dim

    @property
    def precision(self) -> Arithmetic:
        """Arithmetic of the embeddings."""
        return self.encoding.precision

    def in_precision(self, precision: Arithmetic) -> "TrainedModel":
        """The same network in another arithmetic; itself if it has that one already."""
        if precision == self.precision:
            return self
        old = self.encoding
        new = Encoding(self.model, precision, flip=old.flip, scales=old.scales, engine=old.engine)
        return dataclasses.replace(self, encoding=new)

    @property
    def batch(self) -> int:
        """Images encoded at once."""
        return self.encoding.batch

    def holds(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """True if a checkpoint's tensors are the weights that were loaded."""
        # the description has the tokenizer's digest; the images that were learnt from change no answer
        weights = {name: one for name, one in tensors.items() if name not in NOT_WEIGHTS}
        loaded = self.model.state_dict()
        return weights.keys() == loaded.keys() and all(
            torch.equal(weights[name].to(one.dtype), one.cpu()) for name, one in loaded.items()
        )

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (batch, dim), of pictures that `prepare_image` gave."""
        return self.encoding.pixels(pixels).numpy()

    def encode_texts(
        self,
        sentences: str | Sequence[str],
        *,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (sentences, dim), of one sentence or several; unknown words are dropped.

        Raises `DataError` for a sentence without a known word, as `check_query` does. With `check` off such
        a sentence has the embedding of an empty one, the same for all of them: evaluation needs that, since a dataset
        is measured with every sentence it has. `progress` is called after each batch with the sentences done and their
        total.
        """
        token_ids = self._token_ids(sentences, check=check)
        rows: list[np.ndarray] = []
        for start in range(0, len(token_ids), SENTENCES):
            rows.append(self.encoding.token_ids(token_ids[start : start + SENTENCES]).numpy())
            if progress is not None:
                progress(start + len(rows[-1]), len(token_ids))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def encode_queries(self, sentences: str | Sequence[str]) -> Float[np.ndarray, "batch dim"]:
        """The same in fp32, whatever the model's precision. Raises `DataError` as `check_query` does.

        In bf16 the rows of a product depend on how many there are, in the third decimal: who else asks a server at
        the same time would change an answer.
        """
        # it costs 4.5 ms a text in a batch of 64, where bf16 takes 0.6; in bf16 one of 256 sentences had another
        # order beside 63 others than alone (docs/log/2026-11-22.md)
        encoding = Encoding(self.model, "fp32", flip=self.images.flip)
        return encoding.token_ids(self._token_ids(sentences, check=True)).numpy()

    def _token_ids(
        self, sentences: str | Sequence[str], *, check: bool
    ) -> Int64[np.ndarray, "sentences words"]:
        # a string is a sequence of strings: each letter would be a sentence
        several = [sentences] if isinstance(sentences, str) else sentences
        if check:
            for sentence in several:
                self.check_query(sentence)
        return self.tokenize(several).token_ids

    def tokenize(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them, with the alignment of words where asked for."""
        return self.model.tokenize(sentences, self.tokenizer, words=words)

    def rows_read(self, sentences: Sequence[str]) -> Int64[np.ndarray, "sentences words"]:
        """A row a sentence: equal for sentences that the model cannot tell apart."""
        return self.tokenize(sentences).token_ids

    @cached_property
    def reranker(self) -> Reranker | None:
        """The reranker of the first of the embedding's ranking; None = the embedding ranks alone."""
        precision, engine = self.encoding.precision, self.encoding.engine
        return reranker_of(self.model, self.tokenizer, self.images, precision, engine)

    @property
    def rerank(self) -> First:
        """How many of the first hits the recipe re-ranks; 0 without a reranker that changes the order."""
        first: First = self.description["recipe"].get("rerank", 20) if self.model.reorders else 0
        return first

    def encode_regions(
        self,
        images: ImageSource | Sequence[ImageSource],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> RegionFeatures:
        """Region features of images for the reranker, float16 (images, rows, columns, channels).

        Raises `SettingsError` where nothing re-ranks, otherwise as `encode_images`.
        """
        reranker = self.expect_reranker()
        rows = [reranker.region_features(pixels) for pixels in self._decoded(several(images), progress)]
        if not rows:
            raise DataError("no picture was given to encode")
        return np.concatenate(rows)

    def expect_reranker(self) -> Reranker:
        """The reranker. Raises `SettingsError` for a model that has none."""
        if self.reranker is None:
            raise SettingsError(
                f"{self.path}: this checkpoint has no reranker, its embedding ranks alone; take one of a stage that "
                "learns a cross-encoder, of HGAN or a pair with words or phrases, or of one with late interaction"
            )
        return self.reranker


def load_model(
    folder: str | Path,
    *,
    stage: str | None = None,
    device: str | None = None,
    precision: Precision | None = None,
    engine: InferenceEngine = "torch",
) -> TrainedModel:
    """Load a run folder's chosen checkpoint, that of one `stage`, or a checkpoint file itself.

    `hf:ORG/NAME` is a run of the Hugging Face hub, `hf:ORG/NAME@REVISION` one of its revisions
    (`limner.inference.hub_runs`).
    `precision` None computes in fp32 on a CPU, so that a run has the same figures on every processor, and elsewhere in
    what its recipe trains with; "auto" takes bf16 where the device multiplies it natively.
    `engine` "openvino" runs the image backbone with OpenVINO on the CPU (`limner.inference.image_engine`). Raises
    `CheckpointError` when there is no checkpoint or it is damaged, `SettingsError` for an engine that cannot be had. A
    run of a SentenceTransformer (`limner.inference.sentence_transformer`) computes in fp32, whatever `precision` is.
    """
    path = checkpoint_path(Path(folder), stage)
    tensors, description = read_checkpoint(path)
    if description.get("system") == CALLED:
        # here, since that module imports this one
        from limner.inference.sentence_transformer import SentenceTransformerRun

        if engine == "openvino":
            raise SettingsError(f"{path}: a SentenceTransformer runs with torch; leave out the engine")
        return SentenceTransformerRun(path, description, tensors, device)
    learnt = {name: tensors.pop(name) for name in (TRAINED_ON, SELECTED_ON) if name in tensors}
    try:
        content = tensors.pop(TOKENIZER, None)
        tokenizer = tokenizer_from_description(
            dict(description["tokenizer"]), None if content is None else content.numpy().tobytes()
        )
        settings = _Model.parse({"model": description["model"]}).model
        images = ImageSettings.parse(dict(description["images"]))
        above = description["cross_encoder"]
        cross_encoder = None if above is None else CoAttentionSettings.parse(above)
        files = {part: dict(content) for part, content in dict(description["files"]).items()}
    # apart from what does not fit: a training state is written alike and lacks these keys
    except KeyError as error:
        raise CheckpointError(
            f"{path}: not the checkpoint of a model (its description lacks {error}); give the run's folder"
        ) from None
    except (SettingsError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: its description does not fit this limner ({error}); use the version that wrote it"
        ) from None
    # without weights of its own: nothing is downloaded, and the files it was made from may be gone
    model = _network(settings, tokenizer.size, files)
    if cross_encoder is not None:
        model.add_cross_encoder(cross_encoder)
    load_into(model, tensors, path, assign=True)
    if engine == "openvino":
        # refused here and not at the first picture
        require_openvino()
        # OpenVINO computes on the CPU, so an accelerator is not what "no device given" means
        device = device or "cpu"
    # eval: a new module is in training mode, and dropout would make each embedding another
    model.to(torch.device(device) if device else default_device()).eval()
    where = next(model.parameters()).device
    # imported runs have no recipe that was trained by
    arithmetic = measuring_precision(precision, where, description["recipe"].get("precision", "auto"))
    encoding = Encoding(model, arithmetic, flip=images.flip, scales=images.test_scales, engine=engine)
    return TrainedModel(path, description, model, tokenizer, images, encoding, learnt)


def _network(
    settings: DualEncoderSettings, vocabulary_size: int, files: dict[str, dict[str, Any]]
) -> DualEncoder:
    """The network without its weights, from the files that its checkpoint carries (`DualEncoder.files`)."""
    with TemporaryDirectory() as above:
        folders = {part: Path(above) / Path(part).name for part in files}
        for part, folder in folders.items():
            folder.mkdir()
            for name, content in files[part].items():
                # the name alone: a checkpoint of somebody else must not write elsewhere
                (folder / Path(name).name).write_text(json.dumps(content), encoding="utf-8")
        return build_network(settings.with_folders(folders), vocabulary_size, load_weights=False)


def checkpoint_path(folder: Path, stage: str | None) -> Path:
    """The checkpoint file that a run folder's `run.json` names; a run `hf:ORG/NAME` of the hub is fetched.

    Raises `CheckpointError` if another is in its place.
    """
    folder = local_run(folder)
    if folder.is_file():
        return folder
    try:
        listing = read_listing(folder)
        stages = {str(entry["name"]): str(entry["file"]) for entry in listing["stages"]}
        best = str(listing["best"])
        # older runs have none
        digests = dict(listing.get("digests", {}))
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: {_NO_RUN.get(kind_of(folder), _NO_RUN[None])}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(f"{folder / RUN_FILE}: damaged ({error}); resume the run to mend it") from None
    finished = bool(listing.get("finished")) | _compared_with_state(folder, listing)
    if stage is not None and stage not in stages:
        raise CheckpointError(f"{folder}: no checkpoint of stage '{stage}'; there are: {', '.join(stages)}")
    path = folder / (best if stage is None else stages[stage])
    listed = digests.get(path.name)
    if listed is not None and read_digest(path) != listed and (finished or not _is_later(path, listing)):
        raise CheckpointError(
            f"{path}: is not the checkpoint that {RUN_FILE} names, but one of another run, stage or epoch; put that "
            "back, or give this file itself to load it all the same"
        )
    return path


def read_listing(folder: Path) -> dict[str, Any]:
    """The content of a run folder's `run.json`.

    Raises `OSError` where it cannot be read, and `ValueError` where it is damaged.
    """
    path = folder / RUN_FILE
    if path.exists() and not path.is_file():
        # a pipe or a device, which would keep the reader waiting
        raise OSError("it is no file")
    values = read_json(path)
    # the oldest runs have no digest of any kind in it
    return opened(values, required="digests" in values)


def _compared_with_state(folder: Path, listing: Mapping[str, Any]) -> bool:
    """True if a state lies beside `run.json` that says that the training is finished.

    Raises `CheckpointError` if the state has a better epoch than `run.json`, which training writes before it.
    """
    try:
        # its header alone, which takes no time; nothing else of a state is needed to use a run
        state = read_description(folder / STATE_FILE)["state"]
        trained = [str(stage["name"]) for stage in state["identity"]["recipe"]["stages"]]
        chosen = dict(zip(trained, (int(best["epoch"]) for best in state["progress"]["best"]), strict=False))
        finished = state["progress"]["finished"] is True
    # gone, damaged, or written by another program: a run is used without it
    except (CheckpointError, KeyError, TypeError, ValueError):
        return False
    listed = {str(entry["name"]): entry.get("epoch") for entry in listing["stages"]}
    # epoch 0 is a stage without a validation yet; a listing without epochs cannot be compared
    if None not in listed.values() and any(epoch > listed.get(name, 0) for name, epoch in chosen.items()):
        raise CheckpointError(
            f"{folder / RUN_FILE}: is older than {STATE_FILE} beside it, or of another run; resume the run to mend "
            "it, or give a checkpoint file itself"
        )
    return finished


def _is_later(path: Path, listing: Mapping[str, Any]) -> bool:
    """True for a later epoch of the same training, which goes on or was killed before it wrote `run.json`."""
    description = read_description(path)
    chosen = description.get("selected") or {}
    found = (
        digest_of_values(description.get("recipe") or {}),
        description.get("seed"),
        description.get("data"),
        # earlier runs have none
        description.get("origin") if "origin" in listing else None,
    )
    return found == tuple(map(listing.get, ("recipe_digest", "seed", "data", "origin"))) and any(
        entry["name"] == chosen.get("stage") and entry.get("epoch", 0) < chosen.get("epoch", 0)
        for entry in listing["stages"]
        if entry["file"] == path.name
    )

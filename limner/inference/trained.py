"""A trained run, ready to encode pictures and sentences: what `limner.load` returns."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from limner.data.tokenizers import tokenizer_from_description
from limner.data.transforms import ImageSettings, centre_crop, load
from limner.errors import CheckpointError, DataError, SettingsError
from limner.evaluation.reranking import First
from limner.inference.checkpoint import load_into, read_checkpoint
from limner.inference.encoding import SENTENCES, Encoding
from limner.inference.judge import RunJudge
from limner.inference.level_judge import LevelJudge
from limner.inference.level_matching import LevelMatching
from limner.inference.matching import Matching
from limner.inference.openvino_module import require_openvino
from limner.inference.precision import InferenceEngine, Precision, default_device
from limner.models.co_attention import CoAttentionSettings
from limner.models.hgan import HGAN, HGANSettings
from limner.models.registry import ModelSettings, Network, build_network
from limner.settings import Settings
from limner.types import Maps, Pixels, TokenBatch, Tokenizer


class _Model(Settings):
    """The one setting that says what network a checkpoint is of."""

    model: ModelSettings
    """The network."""


RUN_FILE = "run.json"
"""Names the chosen checkpoint of a run folder and those of its stages."""


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A network with its tokenizer and transform; a `limner.types.Encoder`.

    - `path`: the checkpoint file it came from.
    - `description`: the checkpoint's JSON (`limner.inference.checkpoint`).
    """

    path: Path
    description: dict[str, Any]
    model: Network
    tokenizer: Tokenizer
    images: ImageSettings
    encoding: Encoding

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of weights, tokenizer and test transform: embeddings of equal fingerprints can be compared."""
        digest = hashlib.sha256()
        # where the backbone once came from, and how training cropped, change no embedding
        named = {**self.description["model"].get("backbone", {}), "weights": None, "auto_model": None}
        model = {**self.description["model"], "backbone": (named, self.description.get("backbone"))}
        if (bert := self.description.get("bert")) is not None:
            text = self.description["model"]["text"]
            model["text"] = {**text, "bert": ({**text["bert"], "model": None}, bert)}
        parts = (
            model,
            self.images.resize,
            self.images.crop,
            self.images.flip,
            self.tokenizer.to_description(),
        )
        digest.update(json.dumps(parts, sort_keys=True).encode())
        if (judge := self.description.get("matcher")) is not None:
            digest.update(json.dumps(judge, sort_keys=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return self.model.dim

    def prepare_image(self, source: str | Path | bytes) -> Pixels:
        """Decode, resize and centre-crop one picture, a file or the bytes of one. Raises `ImageError`."""
        return centre_crop(load(source, self.images), self.images)

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (batch, dim), of pictures that `prepare_image` gave."""
        return self.encoding.pixels(pixels).numpy()

    def encode_images(
        self, paths: Sequence[str | Path], *, progress: Callable[[int, int], None] | None = None
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (len(paths), dim), of picture files.

        Pictures are decoded in threads beside the network, a few batches at a time. The first unreadable one
        raises `ImageError`. `progress` is called after each batch with the pictures done and their total.
        """
        rows = [self.encode_pixels(pixels) for pixels in self._decoded(paths, progress)]
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def _decoded(
        self, paths: Sequence[str | Path], progress: Callable[[int, int], None] | None
    ) -> Iterator[UInt8[np.ndarray, "batch height width 3"]]:
        """Batches of pictures, the next four decoded meanwhile; progress of one is told when the next is asked for."""
        batch = self.encoding.batch
        done = 0
        with ThreadPoolExecutor() as threads:
            meanwhile = threads.map(self.prepare_image, paths[: 4 * batch])
            for start in range(0, len(paths), 4 * batch):
                pixels = list(meanwhile)
                after = start + 4 * batch
                meanwhile = threads.map(self.prepare_image, paths[after : after + 4 * batch])
                for first in range(0, len(pixels), batch):
                    yield np.stack(pixels[first : first + batch])
                    done += len(pixels[first : first + batch])
                    if progress is not None:
                        progress(done, len(paths))

    def encode_texts(
        self, sentences: Sequence[str], *, progress: Callable[[int, int], None] | None = None
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (len(sentences), dim), of sentences; unknown words are dropped (section 3.2).

        `progress` is called after each batch with the sentences done and their total.
        """
        numbers = self.tokenize(sentences).token_ids
        rows: list[np.ndarray] = []
        for start in range(0, len(numbers), SENTENCES):
            rows.append(self.encoding.numbers(numbers[start : start + SENTENCES]).numpy())
            if progress is not None:
                progress(start + len(rows[-1]), len(numbers))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def encode_queries(self, sentences: Sequence[str]) -> Float[np.ndarray, "batch dim"]:
        """The same in fp32, whatever the run's precision.

        In bf16 the rows of a product depend on how many there are, in the third decimal: who else asks a server at
        the same time would change an answer.
        """
        encoding = Encoding(self.model, "fp32", flip=self.images.flip)
        return encoding.numbers(self.tokenize(sentences).token_ids).numpy()

    @cached_property
    def matching(self) -> Matching | LevelMatching | None:
        """Matches pairs, by a matcher or HGAN's words and phrases; None = the embedding ranks alone."""
        if isinstance(self.model, HGAN) and self.model.settings.levels:
            return LevelMatching(self.model, self.encoding.precision, self.encoding.engine)
        if self.model.cross_encoder is None:
            return None
        return Matching(self.model.cross_encoder, self.encoding.precision, self.encoding.engine)

    @cached_property
    def judge(self) -> RunJudge | LevelJudge | None:
        """The matcher as search sees it."""
        if self.matching is None:
            return None
        if isinstance(self.matching, LevelMatching):
            return LevelJudge(self.matching, self.tokenizer)
        return RunJudge(self.matching, self.tokenizer, self.model.settings.text.words, self.images)

    @property
    def rerank(self) -> First:
        """How many of the first the recipe has the matcher re-rank; 0 where there is none."""
        first: First = self.description["recipe"].get("rerank", 20) if self.matching is not None else 0
        return first

    def tokenize(self, sentences: Sequence[str], *, phrases: bool = False, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them, with noun phrases and the alignment of words where asked for."""
        length = self.model.settings.text.words
        return self.tokenizer.encode(sentences, length, phrases=phrases, words=words)

    def tokenize_for_reranking(self, sentences: Sequence[str]) -> TokenBatch:
        """Sentences with all that re-ranking needs of them."""
        return self.tokenize(sentences, phrases="phrases" in self.model.needs_of_text)

    def encode_maps(
        self, paths: Sequence[str | Path], *, progress: Callable[[int, int], None] | None = None
    ) -> Maps:
        """The matcher's last maps, float16 (len(paths), height, width, channels), of picture files.

        Raises `SettingsError` where the run has no matcher, otherwise as `encode_images`.
        """
        matching = self.expect_matching()
        rows = [matching.maps(pixels) for pixels in self._decoded(paths, progress)]
        if not rows:
            raise DataError("no picture was given to encode")
        return np.concatenate(rows)

    def expect_matching(self) -> Matching | LevelMatching:
        """The matcher's `Matching`. Raises `SettingsError` where the run has none."""
        if self.matching is None:
            raise SettingsError(
                f"{self.path}: this checkpoint has no matcher, its embedding ranks alone; take one of a matching "
                "stage, or of HGAN with levels"
            )
        return self.matching

    def check_query(self, sentence: str) -> None:
        """Raise `DataError` for a query without a meaning to the model, since its answer would be arbitrary."""
        self.tokenizer.check(sentence)

    def known_words(self, sentence: str) -> list[str]:
        """The words of a sentence that the model reads, in order and in its spelling."""
        known = set(self.tokenizer.known_words(sentence))
        aligned = self.tokenize([sentence], words=True).words
        assert aligned is not None
        return [word.text for word in aligned[0] if word.tokens and word.text in known]

    def unknown_words(self, sentence: str) -> list[str]:
        """The words of a sentence that the model does not know and leaves out, each once and in order."""
        return self.tokenizer.unknown_words(sentence)


def load_model(
    folder: str | Path,
    *,
    stage: str | None = None,
    device: str | None = None,
    precision: Precision = "auto",
    engine: InferenceEngine = "torch",
) -> TrainedModel:
    """Load a run folder's chosen checkpoint, that of one `stage`, or a checkpoint file itself.

    `engine` "openvino" has OpenVINO run the image backbone, on the CPU (`limner.inference.openvino_module`). Raises
    `CheckpointError` when there is no checkpoint or it is damaged, `SettingsError` for an engine that cannot be had.
    """
    path = checkpoint_path(Path(folder), stage)
    tensors, description = read_checkpoint(path)
    try:
        tokenizer = tokenizer_from_description(dict(description["tokenizer"]))
        settings = _Model.parse({"model": description["model"]}).model
        images = ImageSettings.parse(dict(description["images"]))
        judge = description.get("matcher")
        matcher = None if judge is None else CoAttentionSettings.parse(judge)
    except KeyError as error:
        raise CheckpointError(
            f"{path}: not the checkpoint of a model (its description lacks {error}); give the run's folder"
        ) from None
    except (SettingsError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: its description does not fit this limner ({error}); use the version that wrote it"
        ) from None
    model = _network(settings, tokenizer.size, description)
    if matcher is not None:
        model.add_cross_encoder(matcher)
    load_into(model, tensors, path)
    if engine == "openvino":
        require_openvino()
        device = device or "cpu"
    model.to(torch.device(device) if device else default_device()).eval()
    encoding = Encoding(model, precision, flip=images.flip, engine=engine)
    return TrainedModel(path, description, model, tokenizer, images, encoding)


def _network(settings: ModelSettings, vocabulary_size: int, description: dict[str, Any]) -> Network:
    """The network without its weights; what backbone and BERT were once made from need not exist any more."""
    with TemporaryDirectory() as above:
        for part in ("backbone", "bert"):
            (folder := Path(above) / part).mkdir()
            for name, content in description.get(part, {}).items():
                (folder / Path(name).name).write_text(json.dumps(content), encoding="utf-8")
        if "backbone" in description:
            folder = Path(above) / "backbone"
            settings = settings.replace(backbone=settings.backbone.replace(auto_model=str(folder)))
        if isinstance(settings, HGANSettings) and "bert" in description:
            assert settings.text.bert is not None
            bert = settings.text.bert.replace(model=str(Path(above) / "bert"))
            settings = settings.replace(text=settings.text.replace(bert=bert))
        return build_network(settings, vocabulary_size, load_weights=False)


def checkpoint_path(folder: Path, stage: str | None) -> Path:
    """The checkpoint file that a run folder's `run.json` names."""
    if folder.is_file():
        return folder
    try:
        listing = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        stages = {str(entry["name"]): str(entry["file"]) for entry in listing["stages"]}
        best = str(listing["best"])
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder}: no trained run here ({RUN_FILE} is missing); train one with `limner train`"
        ) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(f"{folder / RUN_FILE}: damaged ({error}); resume the run to mend it") from None
    if stage is None:
        return folder / best
    if stage not in stages:
        raise CheckpointError(f"{folder}: no checkpoint of stage '{stage}'; there are: {', '.join(stages)}")
    return folder / stages[stage]

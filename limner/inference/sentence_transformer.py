"""A run whose encoder is a SentenceTransformer of somebody else: limner calls it, and has no network of it.

The checkpoint carries the model's folder, a tensor of bytes for each file, and a store keeps it like any other. Opening
the run writes the folder out, loads it with sentence-transformers, and removes it. No code of the folder is ever run.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from PIL import Image

from limner.arguments import expect_call
from limner.data.images import open_rgb
from limner.errors import CheckpointError, DataError, SettingsError, install_hint
from limner.inference.checkpoint import CALLED
from limner.inference.encoder_base import sentences_of
from limner.inference.precision import Arithmetic, default_device, without_tf32
from limner.inference.trained import TrainedModel
from limner.models.pretrained_source import quiet, transformers_library
from limner.types import ImageSource, Pixels

SIDE = 512
"""The longer side of a picture as it is handed over; a larger one is made smaller first.

A batch of pictures is one array, so each lies in a square of this side. 512 is above what such encoders read, and four
batches of 64 are 200 MB.
"""

_FILE = "file:"
"""Begins the name of a tensor that holds a file of the folder."""

_WORD = re.compile(r"\w+")


class SentenceTransformerRun(TrainedModel):
    """A run that offers `limner.types.Encoder` by calling `SentenceTransformer.encode`.

    It is a `TrainedModel` to whoever indexes, searches, serves, evaluates or calibrates with it. What needs limner's
    own network, tokenizer or transform (training, re-ranking, exports) is refused by one `SettingsError`.
    """

    def __init__(
        self, path: Path, description: dict[str, Any], tensors: Mapping[str, torch.Tensor], device: str | None
    ) -> None:
        # the class above is frozen, and its other fields are refused below
        for name, value in {"path": path, "description": description, "learnt": {}}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_digest", digest_of_files(tensors))
        object.__setattr__(self, "_encoder", _opened(tensors, path, device))

    _digest: str
    _encoder: Any

    def __repr__(self) -> str:
        """One line."""
        return f"SentenceTransformerRun({str(self.path)!r}, dim={self.dim}, device={str(self._encoder.device)!r})"

    def _refuse(self) -> NoReturn:
        raise refusal(self.path)

    # properties, where the class above has fields: whoever asks for one gets the error and not an AttributeError.
    # sentence-transformers has network and tokenizer, prepares pictures, pads and batches
    model = property(_refuse)
    tokenizer = property(_refuse)
    images = property(_refuse)
    encoding = property(_refuse)

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the folder's files and of how pictures are handed over."""
        return hashlib.sha256(f"{CALLED} {SIDE} {self._digest}".encode()).hexdigest()

    @property
    def dim(self) -> int:
        """Width of the embedding."""
        return int(self.description["model"]["dim"])

    @property
    def precision(self) -> Arithmetic:
        """Always fp32."""
        return "fp32"

    def in_precision(self, precision: Arithmetic) -> TrainedModel:
        """Itself: it has one arithmetic."""
        return self

    def holds(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """True if a checkpoint's tensors are the files that were loaded."""
        return digest_of_files(tensors) == self._digest

    def prepare_image(self, source: ImageSource) -> Pixels:
        """Decode an image, make its longer side at most `SIDE`, and lay it into the square that `encode_pixels` takes.

        Behind the square stands one more row, with the image's height and width. Raises `ImageError`.
        """
        image = open_rgb(source)
        if max(image.size) > SIDE:
            image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
        width, height = image.size
        pixels = np.zeros((SIDE + 1, SIDE, 3), np.uint8)
        pixels[:height, :width] = np.asarray(image)
        for column, length in enumerate((height, width)):
            pixels[SIDE, column, :2] = divmod(length, 256)
        return pixels

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings of pictures that `prepare_image` gave."""
        return self._encode([_taken_out(one) for one in pixels])

    @property
    def batch(self) -> int:
        """Images that are encoded at once."""
        return 32

    def encode_texts(
        self,
        sentences: str | Iterable[str],
        *,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings of one sentence or several. Raises `DataError` for an empty one, unless `check` is off."""
        expect_call(progress)
        several = sentences_of(sentences)
        if check:
            for sentence in several:
                self.check_query(sentence)
        rows = []
        for start in range(0, len(several), 256):
            # a dict, since it takes a string that is an address or a path for a picture: it would fetch that, and a
            # query of a server may come from anybody
            rows.append(self._encode([{"text": sentence} for sentence in several[start : start + 256]]))
            if progress is not None:
                progress(start + len(rows[-1]), len(several))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def encode_queries(self, sentences: str | Iterable[str]) -> Float[np.ndarray, "batch dim"]:
        """The same as `encode_texts`: it computes in fp32 in any case."""
        return self.encode_texts(sentences)

    def _encode(self, inputs: Sequence[Any]) -> Float[np.ndarray, "batch dim"]:
        if not inputs:
            return np.empty((0, self.dim), np.float32)
        try:
            found = self._encoder.encode(
                list(inputs), batch_size=self.batch, normalize_embeddings=True, show_progress_bar=False
            )
        # the code is somebody else's and may raise anything
        except Exception as error:
            raise CheckpointError(f"{self.path}: the SentenceTransformer failed ({_line(error)})") from error
        return np.ascontiguousarray(found, dtype=np.float32)

    def rows_read(self, sentences: Sequence[str]) -> Int64[np.ndarray, "sentences words"]:
        """A row a sentence: equal for equal ones, since nobody knows what else the encoder takes for the same."""
        # as texts, and not as numpy's: its fixed width would drop a \0 at the end
        numbers = {text: number for number, text in enumerate(dict.fromkeys(sentences))}
        return np.array([[numbers[text]] for text in sentences], np.int64).reshape(-1, 1)

    @property
    def reranker(self) -> None:
        """None: the embedding ranks alone."""
        return

    @property
    def rerank(self) -> int:
        """None of the hits is re-ranked."""
        return 0

    def check_query(self, sentence: str) -> None:
        """Raise `DataError` for a sentence without a letter or digit."""
        if not _WORD.search(sentence):
            raise DataError(f"the sentence {sentence[:40]!r} has no word")

    def known_words(self, sentence: str) -> list[str]:
        """The words of a sentence; which of them the encoder knows, it does not say."""
        return _WORD.findall(sentence)

    def unread_words(self, sentence: str) -> list[str]:
        """None: where the encoder cuts a sentence, it does not say."""
        return []

    def count_truncated(self, sentences: Sequence[str]) -> int:
        """0, likewise."""
        return 0

    def unknown_words(self, sentence: str) -> list[str]:
        """None: such encoders spell unknown words by their pieces."""
        return []


def refusal(path: str | Path) -> SettingsError:
    """The one error for what needs a network of limner's."""
    return SettingsError(
        f"{path}: this run is a SentenceTransformer, whose network limner only calls; it can be indexed, searched, "
        "served, evaluated and calibrated. For training, re-ranking, explanations by patches and exports import a pair "
        "that limner reads itself, such as CLIP or SigLIP (docs/models.md)"
    )


def library() -> Any:
    """The sentence-transformers library. Raises `CheckpointError` that names the extra where it is not installed."""
    try:
        # here, since it is an optional extra that takes seconds to import
        import sentence_transformers
    except ImportError as error:
        raise CheckpointError(
            "a model of sentence-transformers needs that library; install it with: "
            f"{install_hint('sentence-transformers')}"
        ) from error
    return sentence_transformers


def open_folder(folder: Path, name: str, device: str | None) -> Any:
    """The SentenceTransformer in a folder, in fp32. Raises `CheckpointError` if it cannot be read or takes one kind."""
    try:
        # transformers' bars would be drawn between limner's own lines
        with quiet(transformers_library()):
            found = library().SentenceTransformer(
                str(folder),
                # never: a model is data
                trust_remote_code=False,
                local_files_only=True,
                device=device or str(default_device()),
                model_kwargs={"dtype": torch.float32},
            )
        # what a module leaves in half precision would make an embedding depend on the batch
        found = found.float().eval()
        without_tf32(found.device)
        kinds = found.modalities
    except CheckpointError:
        raise
    # it lets through what its own libraries raise: OSError, ValueError, KeyError, ImportError …
    except Exception as error:
        raise CheckpointError(
            f"model '{name}': sentence-transformers cannot load it ({_line(error)})"
        ) from None
    if not {"text", "image"} <= set(kinds):
        raise CheckpointError(
            f"model '{name}': it takes {', '.join(map(str, kinds))}; a search of pictures needs text and image"
        )
    return found


def files_as_tensors(folder: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The bytes of a folder's files, by their names in it."""
    found = {}
    for name in names:
        content = np.fromfile(folder / name, dtype=np.uint8)
        found[_FILE + name] = torch.from_numpy(content)
    return found


def digest_of_files(tensors: Mapping[str, torch.Tensor]) -> str:
    """Hex digest of all files by name and content."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if name.startswith(_FILE):
            digest.update(f"{name}\0{len(tensor)}\0".encode())
            digest.update(tensor.numpy().data)
    return digest.hexdigest()


def _opened(tensors: Mapping[str, torch.Tensor], path: Path, device: str | None) -> Any:
    # Windows keeps mapped weights open for as long as the model lives
    with TemporaryDirectory(ignore_cleanup_errors=True) as above:
        folder = Path(above) / "model"
        for name, tensor in tensors.items():
            place = PurePosixPath(name.removeprefix(_FILE))
            # a checkpoint of somebody else must not write elsewhere
            if not name.startswith(_FILE) or place.is_absolute() or ".." in place.parts or "\\" in name:
                raise CheckpointError(f"{path}: damaged checkpoint, it holds a file called {name[:64]!a}")
            target = folder.joinpath(*place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            tensor.numpy().tofile(target)
        return open_folder(folder, str(path), device)


def _taken_out(pixels: Pixels) -> Image.Image:
    """The picture that lies in a square of `prepare_image`."""
    height, width = (int(high) * 256 + int(low) for high, low, _ in pixels[SIDE, :2])
    return Image.fromarray(np.ascontiguousarray(pixels[:height, :width]))


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""A small encoder for the tests: the mean colours of a picture's quarters, the hashed words of a text."""

import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from limner.errors import DataError, ImageError
from limner.evaluation.calibration import Calibration
from limner.inference.calibration_file import RunCalibration
from limner.store.files import StoreFiles
from limner.types import ImageSource, Pixels, Reranker
from limner.wire import Answer, Hit

Rows = npt.NDArray[np.float32]

DIM = 12


class FakeEncoder:
    """Deterministic; `encoded` counts the pictures that passed through it."""

    def __init__(self, fingerprint: str = "a" * 64, dim: int = DIM) -> None:
        self.fingerprint = fingerprint
        self.dim = dim
        self.encoded = 0
        self.reranker: Reranker | None = None
        self.rerank: int | Literal["all"] = 0

    def prepare_image(self, source: ImageSource) -> Pixels:
        if isinstance(source, np.ndarray):
            source = Image.fromarray(source)
        if isinstance(source, Image.Image):
            return np.array(source.convert("RGB").resize((8, 8)))
        try:
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                return np.array(image.convert("RGB").resize((8, 8)))
        except OSError as error:
            raise ImageError(f"{source!s}: not a picture ({type(error).__name__})") from None

    def encode_pixels(self, pixels: np.ndarray) -> Rows:
        self.encoded += len(pixels)
        quarters = pixels.reshape(len(pixels), 2, 4, 2, 4, 3).mean(axis=(2, 4))
        rows = quarters.reshape(len(pixels), -1)[:, : self.dim] + 1
        return unit(rows)

    def encode_images(self, images: ImageSource | Iterable[ImageSource]) -> Rows:
        assert isinstance(images, list)
        return self.encode_pixels(np.stack([self.prepare_image(image) for image in images]))

    def check_query(self, sentence: str) -> None:
        if not sentence.split():
            raise DataError("the query is empty")

    def known_words(self, sentence: str) -> list[str]:
        return sentence.split()

    def unknown_words(self, sentence: str) -> list[str]:
        return [word for word in sentence.split() if word.startswith("zx")]

    def encode_queries(self, sentences: str | Iterable[str]) -> Rows:
        return self.encode_texts(sentences)

    def encode_texts(self, sentences: str | Iterable[str], *, check: bool = True) -> Rows:
        sentences = [sentences] if isinstance(sentences, str) else list(sentences)
        rows = np.zeros((len(sentences), self.dim), np.float32)
        for row, sentence in zip(rows, sentences, strict=True):
            for word in sentence.split():
                row[hashlib.sha256(word.encode()).digest()[0] % self.dim] += 1
        return unit(rows)


def hit_of(path: Path, rank: int = 1, **values: Any) -> Hit:
    """A hit of a file, with nothing else known of it unless given."""
    plain: dict[str, Any] = dict.fromkeys(("identity", "taken", "confidence", "probability", "group"))
    plain |= {"score": 0.5, "id": f"{rank:032x}", "name": path.name, "path": path, "metadata": {}}
    return Hit(**{**plain, "rank": rank, **values})


def answer_of(hits: Sequence[Hit] = (), total: int = 0, matching: int = 0) -> Answer:
    """An answer of a model without calibration."""
    return Answer(hits=tuple(hits), total=total, matching=matching, threshold=None, good=None, unknown=())


def calibration(fingerprint: str = "a" * 64, **values: Any) -> RunCalibration:
    """A calibration of the embedding's scores unless another one is given."""
    plain: dict[str, Any] = {"checkpoint": "stage-1.safetensors", "data": "folder:x", "split": "val"}
    plain |= {"split_fingerprint": "s", "images": 9, "sentences": 9, "reranked": 0}
    plain |= {"reliability": {}, "versions": {}}
    plain |= {"embedding": Calibration(of_score=2, of_lead=5, offset=-1, floor=0.1, right=9, wrong=9)}
    return RunCalibration(**{**plain, "fingerprint": fingerprint, **values})


def unit(rows: npt.NDArray[np.floating]) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def draw(path: Path, seed: int) -> Path:
    """A small picture of its own colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def nearest(files: StoreFiles, query: Rows, k: int = 10) -> list[Hit]:
    """The k images of a store nearest to a vector."""
    return files.snapshot().search(query, k)


def vectors_of(files: StoreFiles, ids: Sequence[str]) -> Rows:
    """The vectors of images by their keys, in order."""
    snapshot = files.snapshot()
    return snapshot.vectors[[snapshot.expect_row(key) for key in ids]]

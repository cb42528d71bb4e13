"""The part of an encoder around its network: decoding in threads, and the words of a sentence. It needs no torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import numpy as np
from jaxtyping import Float, UInt8

from limner.arguments import expect_call, several
from limner.data.transforms import ImageSettings, centre_crop, load
from limner.types import ImageSource, Pixels, TokenBatch, Tokenizer


class EncoderBase(ABC):
    """Decoding and words: the parts of `limner.types.Encoder` beside the network itself.

    - `images`: how an image becomes what the network reads; `tokenizer`: how a sentence does.
    """

    images: ImageSettings
    tokenizer: Tokenizer

    @property
    @abstractmethod
    def dim(self) -> int:
        """Width of the embedding."""

    @property
    @abstractmethod
    def batch(self) -> int:
        """Images encoded at once."""

    @abstractmethod
    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (batch, dim), of pictures that `prepare_image` gave."""

    @abstractmethod
    def tokenize(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them, with the alignment of words where asked for."""

    def prepare_image(self, source: ImageSource) -> Pixels:
        """Decode, resize and centre-crop one image. Raises `ImageError`."""
        return centre_crop(load(source, self.images), self.images)

    def encode_images(
        self,
        images: ImageSource | Iterable[ImageSource],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Float[np.ndarray, "batch dim"]:
        """Unit embeddings, float32 (images, dim), of one image or several: files, bytes, Pillow images, pixels.

        Images are decoded in threads beside the network, a few batches at a time. The first unreadable one raises
        `ImageError`. `progress` is called after each batch with the images done and their total.
        """
        expect_call(progress)
        rows = [self.encode_pixels(pixels) for pixels in self._decoded(pictures_of(images), progress)]
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def _decoded(
        self, images: Sequence[ImageSource], progress: Callable[[int, int], None] | None
    ) -> Iterator[UInt8[np.ndarray, "batch height width 3"]]:
        """Batches of images, the next four decoded meanwhile; progress of one is told when the next is asked for."""
        # `map` hands all of its items to the threads at once: unbounded, a large folder would be decoded into memory
        batch = self.batch
        done = 0
        # threads, not processes: Pillow's decoding leaves the interpreter free, and pixels need no pickling
        with ThreadPoolExecutor() as threads:
            # four batches of 64 crops of 224 pixels are 39 MB, held twice: those at work and those that come
            meanwhile = threads.map(self.prepare_image, images[: 4 * batch])
            for start in range(0, len(images), 4 * batch):
                pixels = list(meanwhile)
                after = start + 4 * batch
                meanwhile = threads.map(self.prepare_image, images[after : after + 4 * batch])
                for first in range(0, len(pixels), batch):
                    yield np.stack(pixels[first : first + batch])
                    done += len(pixels[first : first + batch])
                    if progress is not None:
                        progress(done, len(images))

    def check_query(self, sentence: str) -> None:
        """Raise `DataError` for a query without a meaning to the model, since its answer would be arbitrary."""
        self.tokenizer.check(sentence)

    def known_words(self, sentence: str) -> list[str]:
        """The words of a sentence that the model reads, in order and in its spelling."""
        known = set(self.tokenizer.known_words(sentence))
        aligned = self.tokenize([sentence], words=True).words
        assert aligned is not None
        return [word.text for word in aligned[0] if word.tokens and word.text in known]

    def unread_words(self, sentence: str) -> list[str]:
        """The known words of a sentence behind the most that the model reads, in order."""
        known = set(self.tokenizer.known_words(sentence))
        aligned = self.tokenize([sentence], words=True).words
        assert aligned is not None
        return [word.text for word in aligned[0] if not word.tokens and word.text in known]

    def count_truncated(self, sentences: Sequence[str]) -> int:
        """How many sentences are longer than the model reads, and lose their end."""
        return int(self.tokenize(sentences).truncated.sum())

    def unknown_words(self, sentence: str) -> list[str]:
        """The words of a sentence that the model does not know and leaves out, each once and in order."""
        return self.tokenizer.unknown_words(sentence)


def pictures_of(images: ImageSource | Iterable[ImageSource]) -> list[ImageSource]:
    """A list of images; a single image becomes a list of one. Raises `DataError` for what is none."""
    if isinstance(images, np.ndarray) and images.ndim == 4:
        return list(images)
    return several(images, get_args(ImageSource), "a picture (path, bytes, Pillow image, pixels)")


def sentences_of(given: str | Iterable[str]) -> list[str]:
    """A list of sentences; a single one becomes a list of one. Raises `DataError` for what is no text."""
    return several(given, (str,), "a sentence")

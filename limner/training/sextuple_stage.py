"""One stage of learning a joint embedding from sextuples: relevant samples beside each batch, then violators.

Source: MNiL, MM 2017, section 3.2, "Sextuple sampling".
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from jaxtyping import Int64
from torch import Tensor

from limner.inference.encoding import evaluating
from limner.inference.precision import Arithmetic, autocast
from limner.training.embedding_stage import EmbeddingStage
from limner.training.events import Listener, Preparing
from limner.training.pairs import Batch, generator
from limner.training.pictures import ahead
from limner.training.relevant import Relevant
from limner.training.setup import Prepared
from limner.training.violators import RecentBank, Violators, find_violators

_DECODED = 16
"""Pictures that a thread decodes."""


class SextupleStage(EmbeddingStage):
    """A stage of learning the embedding with the sextuple loss.

    A picture's violator is also what its sentence is held apart from, and the reverse: three pictures and three
    sentences a pair. Violators are found in the bank by the network as it stands, in eval mode, and encoded anew; what
    the batch was found by goes into the bank.
    """

    def __init__(
        self,
        data: Prepared,
        index: int,
        classes: Int64[np.ndarray, " images"],
        accelerator: Accelerator,
        precision: Arithmetic,
        listener: Listener,
    ) -> None:
        super().__init__(data, index, classes, accelerator, precision, listener)
        if self.stage.by_label:
            assert data.train_labels is not None
            self._relevant = Relevant.by_label(data.pairs, data.train_labels)
        else:
            self._relevant = Relevant.by_class(data.pairs, classes)
        self._found: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def bank(self) -> RecentBank:
        """The pairs seen last."""
        assert self.objective.bank is not None
        return self.objective.bank

    def start(self) -> None:
        """What a stage that begins, and is not resumed, takes from the network: a bank of random pairs."""
        super().start()
        pairs, encoding = self.data.pairs, self._encoding()
        rng = generator(self.data.recipe.seed, self.index, 0, 0, 0, 2)
        there = len(pairs.sentences)
        drawn = rng.choice(there, self.bank.slots, replace=self.bank.slots > there)
        for begin in range(0, len(drawn), encoding.batch):
            self.listener(Preparing("pairs for the bank", begin, len(drawn)))
            sentences = drawn[begin : begin + encoding.batch]
            pictures = pairs.sentence_image[sentences]
            if self.train_cached is not None:
                images = encoding.cached(self.train_cached[pictures, 0][:, None])
            else:
                images = encoding.pixels(self.data.train_pictures.centred(pictures))
            numbers = pairs.layout(sentences, self.data.recipe.model.text.words, None)
            pushed = (
                *(images, encoding.numbers(numbers)),
                *(torch.from_numpy(pictures), torch.from_numpy(sentences)),
            )
            self.bank.push(*(part.to(self.bank.images.device) for part in pushed))

    def inputs(self, epoch: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches of an epoch, each with the violators that are found when its step comes."""
        for step, (count, inputs) in enumerate(super().inputs(epoch)):
            where = (self.index, epoch, step, self.accelerator.process_index, 1)
            rng = generator(self.data.recipe.seed, *where)
            to_text, to_image = self._violators(count, inputs, rng)
            pictures = self.bank.image_numbers[to_image.places].cpu().numpy()
            sentences = self.bank.sentence_numbers[to_text.places].cpu().numpy()
            more = {
                "pictures": self._violating_pictures(pictures, epoch, step, rng),
                "numbers": torch.from_numpy(self._laid_out(sentences, rng)),
            }
            joined = {
                name: torch.cat([inputs[name], rows.to(inputs[name].device)]) for name, rows in more.items()
            }
            draws = torch.stack([to_image.draws, to_text.draws], dim=1)
            shares = torch.stack([to_image.share, to_text.share], dim=1)
            yield count, {**inputs, **joined, "draws": draws, "shares": shares.float()}

    def after_step(self) -> None:
        """Put the batch into the bank, the same on all processes."""
        super().after_step()
        assert self._found is not None
        images, texts, numbered = (self.accelerator.gather(part) for part in self._found)
        self.bank.push(images, texts, *numbered.unbind(1))

    def _violating_pictures(
        self, pictures: Int64[np.ndarray, " batch"], epoch: int, step: int, rng: np.random.Generator
    ) -> Tensor:
        """Cached features, or pixels that several threads decode."""
        if self.train_cached is not None:
            return self._pictures(pictures, epoch, step, rng)
        parts = np.array_split(pictures, max(1, len(pictures) // _DECODED))
        return torch.cat(list(ahead(parts, lambda part: self._pictures(part, epoch, step, rng))))

    def _beside(
        self, batch: Batch, rng: np.random.Generator
    ) -> tuple[Int64[np.ndarray, " images"], Int64[np.ndarray, " texts"], dict[str, Any]]:
        image_rows, images = _rows(batch.images, self._relevant.images(batch.images, rng))
        text_rows, texts = _rows(batch.sentences, self._relevant.sentences(batch.sentences, rng))
        inputs = {
            "positives": torch.from_numpy(np.stack([image_rows, text_rows], axis=1)),
            "numbered": torch.from_numpy(np.stack([batch.images, batch.sentences], axis=1)),
        }
        return images, texts, inputs

    def _violators(
        self, count: int, inputs: dict[str, Any], rng: np.random.Generator
    ) -> tuple[Violators, Violators]:
        """Violating sentences for the pictures of a batch (image→text), and violating pictures for its sentences."""
        with torch.no_grad(), evaluating(self.model), autocast(self.precision, self.accelerator.device):
            rows = self.objective.embed(inputs["pictures"], inputs["numbers"])
        images, texts = (F.normalize(part.float(), dim=1) for part in rows)
        own, of_batch = inputs["positives"], inputs.pop("numbered")
        self._found = images[:count], texts[:count], of_batch
        numbered = of_batch.cpu().numpy()
        kept = self.bank.image_numbers.cpu().numpy(), self.bank.sentence_numbers.cpu().numpy()
        of_sentence = self.data.pairs.sentence_image
        uniform = torch.from_numpy(rng.random((2, count, 2))).to(images.device)

        def found(
            queries: Tensor, positives: Tensor, gallery: Tensor, mask: np.ndarray, way: int
        ) -> Violators:
            similarity = (queries * positives).sum(dim=1)
            relevant = torch.from_numpy(mask).to(queries.device)
            return find_violators(queries, similarity, gallery, relevant, self.stage.losses.rho, uniform[way])

        relevant_texts = self._relevant.mask(numbered[:, 0], of_sentence[kept[1]])
        relevant_images = self._relevant.mask(of_sentence[numbered[:, 1]], kept[0])
        return (
            found(images[:count], texts[own[:, 1]], self.bank.texts, relevant_texts, 0),
            found(texts[:count], images[own[:, 0]], self.bank.images, relevant_images, 1),
        )


def _rows(
    own: Int64[np.ndarray, " batch"], others: Int64[np.ndarray, " batch"]
) -> tuple[Int64[np.ndarray, " batch"], Int64[np.ndarray, " more"]]:
    """The row of each one's other, and what to put behind the batch: an item that is its own other stays in its row."""
    rows = np.arange(len(own))
    differs = own != others
    rows[differs] = len(own) + np.arange(np.count_nonzero(differs))
    return rows, others[differs]

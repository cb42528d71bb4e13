"""The samples beside each batch of pairs, as the losses of a stage need them: none, mined negatives, or sextuples.

A sampler is chosen by needs alone (`sampler_for`), never by the network or the system.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from jaxtyping import Float, Int64
from torch import Tensor

from limner.data.kept_rows import KeptRows
from limner.inference.encoding import Encoding, evaluating
from limner.inference.precision import Arithmetic, autocast
from limner.losses.loss import Mined, Sextuples
from limner.losses.ranking import Ranking
from limner.losses.sextuple import EmbeddingQueue, Sextuple, SextupleLoss
from limner.training.hard_negatives import EmbeddingBank, HardNegatives, find_hard_negatives
from limner.training.log import Listener, Preparing
from limner.training.objective import Objective, TrainingBatch, rows_shown
from limner.training.pairs import Batch, generator
from limner.training.pictures import ahead, encode_all
from limner.training.positives import PositiveSampler
from limner.training.prepare import Prepared
from limner.training.recipe import StageSettings
from limner.training.sentence_features import SentenceFeatures

# Hard negatives are known only when their step comes, so nothing decodes them ahead; threads share them instead.
_DECODED = 16
"""Images that a thread decodes."""

_NONE = np.empty(0, np.int64)


class BatchSource:
    """The training split as a stage reads it.

    `cached` is what is cached of the images while the backbone is frozen, all or in part; None = new pixels each time.
    `words_below` is what a text layer that is held fixed gives for the sentences, where there is one.
    """

    def __init__(
        self, data: Prepared, index: int, accelerator: Accelerator, precision: Arithmetic, listener: Listener
    ) -> None:
        self.data = data
        self.index = index
        self.stage = data.recipe.stages[index]
        self.accelerator = accelerator
        self.precision = precision
        self.listener = listener
        self.words = data.recipe.model.text.words
        self.cached: KeptRows | None = None
        self.words_below: SentenceFeatures | None = None

    def random(self, *where: int) -> np.random.Generator:
        """The random numbers of one place in this stage, e.g. (epoch, step, process)."""
        return generator(self.data.recipe.seed, self.index, *where)

    def images(
        self, numbers: Int64[np.ndarray, " rows"], epoch: int, step: int, rng: np.random.Generator
    ) -> Tensor:
        """One view of each image: cached, or new pixels."""
        if self.cached is not None:
            drawn = self.cached[numbers, rng.integers(self.cached.shape[1], size=len(numbers))]
            return torch.from_numpy(np.asarray(drawn))
        # with every sentence in an epoch, an image comes several times and should look different
        where = (self.index, epoch) if self.stage.sentences == "one" else (self.index, epoch, step)
        pixels = self.data.train_pictures.random(numbers, self.data.recipe.seed, *where)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def token_ids(
        self, sentences: Int64[np.ndarray, " rows"], rng: np.random.Generator
    ) -> Int64[np.ndarray, "rows words"]:
        """Sentences as a step reads them."""
        # The shift is dual-path's; other systems read from the left.
        return self.data.pairs.layout(sentences, self.words, rng if self.stage.position_shift else None)

    def encoding(self, *, places: int | None = None) -> Encoding:
        """The embedding as it stands now, at test, but for the hub correction, which is made of these."""
        model, flip = self.data.objective.model, self.data.recipe.images.flip
        return Encoding(model, self.precision, flip=flip, corrected=False, places=places)

    def bank(self) -> EmbeddingBank:
        """Embeddings of the training split as the network stands now; of sentences at the left of their rows alone."""
        # A negative is hard wherever it stands; all its places would cost twenty times the work.
        pairs, encoding, cached = self.data.pairs, self.encoding(places=1), self.cached
        if cached is not None:
            # the first cached view is the centre crop, that of testing
            images = encoding.cached(cached[:, :1])
        else:
            images = encode_all(self.data.train_pictures, encoding)
        texts = self.embedded(encoding, np.arange(len(pairs.sentences)))
        return EmbeddingBank(images, pairs.groups, texts, pairs.groups[pairs.sentence_image])

    def spread(self, most: int) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "sentences dim"]]:
        """Embeddings of at most so many training images, and sentences, evenly over the split, as `bank` has them."""
        pairs, encoding = self.data.pairs, self.encoding()
        images, sentences = (
            np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
            for count in (len(pairs.groups), len(pairs.sentences))
        )
        if self.cached is not None:
            seen = encoding.cached(self.cached[images, :1])
        else:
            blocks = np.array_split(images, -(-len(images) // encoding.batch))
            seen = torch.cat([encoding.pixels(self.data.train_pictures.centred(block)) for block in blocks])
        return seen, self.embedded(encoding, sentences)

    def embedded(
        self, encoding: Encoding, sentences: Int64[np.ndarray, " rows"]
    ) -> Float[Tensor, "rows dim"]:
        """Sentences left-aligned, as at testing; what a fixed layer gave for them is not computed again."""
        below = self.words_below
        return encoding.token_ids(
            self.data.pairs.layout(sentences, self.words, None),
            None if below is None else lambda rows: below.rows(sentences[rows.start : rows.stop], self.words),
        )


@dataclass(frozen=True)
class Beside:
    """Images and sentences beside a batch by number, and what is known of them."""

    images: Int64[np.ndarray, " images"]
    sentences: Int64[np.ndarray, " sentences"]
    mined: Mined | None = None
    positives: Int64[Tensor, "batch 2"] | None = None


class Sampler:
    """Nothing beside a batch; the base of those that have something."""

    def __init__(self, source: BatchSource) -> None:
        self.source = source

    def start(self) -> None:
        """Called before the first step of a stage that is not resumed."""

    def begin_epoch(self) -> None:
        """Called before the batches of an epoch are made."""

    def beside(self, batch: Batch, rng: np.random.Generator) -> Beside:
        """The samples beside a batch; called in a thread, ahead of its step."""
        # The base has nothing: most losses compare within the batch.
        return Beside(_NONE, _NONE)

    def complete(
        self, batch: Batch, beside: Beside, made: TrainingBatch, epoch: int, step: int
    ) -> TrainingBatch:
        """The samples that depend on the network's current weights; called when the step comes."""
        return made

    def after_step(self) -> None:
        """Update the memory after the step."""


class MinedSampler(Sampler):
    """Beside each batch the hardest of some random candidates for each anchor, by a bank made before each epoch."""

    def __init__(self, source: BatchSource, settings: Ranking) -> None:
        super().__init__(source)
        self._candidates = settings.candidates
        self._bank: EmbeddingBank | None = None

    def begin_epoch(self) -> None:
        """Embed the training split by the network as it stands."""
        self._bank = self.source.bank()

    def beside(self, batch: Batch, rng: np.random.Generator) -> Beside:
        """A sentence for each image and an image for each sentence."""
        assert self._bank is not None
        pairs = self.source.data.pairs
        # both modalities are mined, where the released code mines sentences alone
        texts = self._bank.hard_texts(batch.images, self._candidates, rng)
        images = self._bank.hard_images(batch.sentences, self._candidates, rng)
        # Their groups go along, since a mined item is compared with every anchor of the batch, not only with its own.
        mined = Mined(
            torch.from_numpy(pairs.groups[images]),
            torch.from_numpy(pairs.groups[pairs.sentence_image[texts]]),
        )
        return Beside(images, texts, mined)


class SextupleSampler(Sampler):
    """Beside each batch positives of its samples, then hard negatives: three images and three sentences a pair.

    An image's hard negative is also what its sentence is held apart from, and the reverse. They are found in the loss's
    queue by the network as it stands, in eval mode, and encoded anew; what the batch was found by goes into the queue.

    Source: MNiL, MM 2017, section 3.2, "Sextuple sampling".
    """

    def __init__(
        self,
        source: BatchSource,
        settings: Sextuple,
        objective: Objective,
        classes: Int64[np.ndarray, " images"],
    ) -> None:
        super().__init__(source)
        self._margin = settings.rho
        self._objective = objective
        self._kind = settings.kind
        data = source.data
        # By category label a relevant pair is one of many (MSCOCO); by class it is the identity, or the pair itself.
        if settings.relevant == "label":
            assert data.train_labels is not None
            self._positives = PositiveSampler.by_label(data.pairs, data.train_labels)
        else:
            self._positives = PositiveSampler.by_class(data.pairs, classes)
        # Kept from `complete` to `after_step`: what the batch was searched by, which is what the queue holds.
        self._found: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def queue(self) -> EmbeddingQueue:
        """The pairs seen last."""
        loss = self._objective.loss(self._kind)
        assert isinstance(loss, SextupleLoss)
        # `use` makes the queue when the stage begins.
        assert loss.queue is not None
        return loss.queue

    def start(self) -> None:
        """Fill the queue with random pairs."""
        source, pairs, encoding = self.source, self.source.data.pairs, self.source.encoding()
        sentence_count = len(pairs.sentences)
        # a place of its own among the random numbers: (…, 0) is a batch's, (…, 1) its hard negatives'
        # With replacement only where the split has fewer sentences than the queue has slots.
        drawn = source.random(0, 0, 0, 2).choice(
            sentence_count, self.queue.slots, replace=self.queue.slots > sentence_count
        )
        # In blocks of the encoder, so that memory does not grow with the queue.
        for begin in range(0, len(drawn), encoding.batch):
            source.listener(Preparing("pairs for the queue", begin, len(drawn)))
            sentences = drawn[begin : begin + encoding.batch]
            images = pairs.sentence_image[sentences]
            if source.cached is not None:
                # The first cached view is the centre crop, without its mirror image.
                embedded = encoding.cached(source.cached[images, 0][:, None])
            else:
                embedded = encoding.pixels(source.data.train_pictures.centred(images))
            texts = source.embedded(encoding, sentences)
            pushed = embedded, texts, torch.from_numpy(images), torch.from_numpy(sentences)
            # The buffers were moved with the objective; embeddings come back on the CPU.
            self.queue.push(*(part.to(self.queue.images.device) for part in pushed))

    def beside(self, batch: Batch, rng: np.random.Generator) -> Beside:
        """The positives, as far as they are not the samples themselves."""
        # What stands in the batch already is not encoded twice.
        within = self.source.stage.sentences == "together"
        image_rows, images = _rows(batch.images, self._positives.images(batch.images, rng), within=within)
        text_rows, texts = _rows(
            batch.sentences, self._positives.sentences(batch.sentences, rng), within=within
        )
        return Beside(images, texts, positives=torch.from_numpy(np.stack([image_rows, text_rows], axis=1)))

    def complete(
        self, batch: Batch, beside: Beside, made: TrainingBatch, epoch: int, step: int
    ) -> TrainingBatch:
        """Put hard negatives into the last rows of a batch."""
        source, device = self.source, made.groups.device
        assert beside.positives is not None
        positives = beside.positives.to(device)
        # The last number keeps these draws apart from those of `beside`, which ran in a thread before.
        rng = source.random(epoch, step, source.accelerator.process_index, 1)
        # By the network as it stands now: this is why `complete` cannot run ahead.
        to_text, to_image = self._hard_negatives(batch, made, positives, rng)
        images = self.queue.image_numbers[to_image.places].cpu().numpy()
        sentences = self.queue.sentence_numbers[to_text.places].cpu().numpy()
        shown = made.shown
        if shown is not None:
            # several queries may have found the same picture, which then passes the network once for them
            images, row = np.unique(images, return_inverse=True)
            shown = torch.cat([shown, len(made.images) + torch.from_numpy(row).to(device)])
        # images before sentences: both draw from the one generator
        more_images = self._images(images, epoch, step, rng).to(device)
        more_ids = torch.from_numpy(source.token_ids(sentences, rng)).to(device)
        words_below = made.words_below
        if words_below is not None and source.words_below is not None:
            more_below = torch.from_numpy(source.words_below.rows(sentences, source.words)).to(device)
            words_below = torch.cat([words_below, more_below])
        return replace(
            made,
            # Behind the positives: `Sextuples` counts its rows from the end.
            images=torch.cat([made.images, more_images]),
            token_ids=torch.cat([made.token_ids, more_ids]),
            shown=shown,
            words_below=words_below,
            sextuples=Sextuples(
                positives,
                torch.stack([to_image.draws, to_text.draws], dim=1),
                torch.stack([to_image.share, to_text.share], dim=1).float(),
            ),
        )

    def after_step(self) -> None:
        """Put the batch into the queue, the same on all processes."""
        # `complete` of the same step has set it.
        assert self._found is not None
        # Gathered in the order of the processes, so that every process pushes the same rows to the same places.
        images, texts, numbered = (self.source.accelerator.gather(part) for part in self._found)
        self.queue.push(images, texts, *numbered.unbind(1))

    def _images(
        self, numbers: Int64[np.ndarray, " batch"], epoch: int, step: int, rng: np.random.Generator
    ) -> Tensor:
        """Cached features, or pixels that several threads decode."""
        source = self.source
        if source.cached is not None:
            return source.images(numbers, epoch, step, rng)
        # At least one part, since `array_split` refuses none.
        parts = np.array_split(numbers, max(1, len(numbers) // _DECODED))
        return torch.cat(list(ahead(parts, lambda part: source.images(part, epoch, step, rng))))

    def _hard_negatives(
        self, batch: Batch, made: TrainingBatch, positives: Tensor, rng: np.random.Generator
    ) -> tuple[HardNegatives, HardNegatives]:
        """Sentences for the images of a batch (image→text), and images for its sentences."""
        model, source, pairs = self._objective.model, self.source, len(batch.images)
        # Eval mode: dropout and batch statistics would make the queue's embeddings differ from those of the search.
        with (
            torch.no_grad(),
            evaluating(model),
            autocast(source.precision, source.accelerator.device),
        ):
            # The positives lie behind the batch's own rows, so one pass embeds both.
            of_pictures, of_texts, _ = model.embed_pairs(
                made.images, made.token_ids, words_below=made.words_below
            )
        rows = rows_shown(of_pictures, made.shown), of_texts
        # In fp32 and of length 1: the margin compares cosines, and bf16 keeps 8 bits of them.
        images, texts = (F.normalize(part.float(), dim=1) for part in rows)
        numbered = np.stack([batch.images, batch.sentences], axis=1)
        self._found = images[:pairs], texts[:pairs], torch.from_numpy(numbered).to(images.device)
        # numbers, not embeddings, go back to the CPU: what is relevant is looked up in arrays of the whole set
        kept = self.queue.image_numbers.cpu().numpy(), self.queue.sentence_numbers.cpu().numpy()
        of_sentence = source.data.pairs.sentence_image
        # Two numbers a query and direction: for the draw, and for which of the violating items it finds.
        uniform = torch.from_numpy(rng.random((2, pairs, 2))).to(images.device)

        def found(
            queries: Tensor, others: Tensor, gallery: Tensor, relevant: np.ndarray, way: int
        ) -> HardNegatives:
            similarity = (queries * others).sum(dim=1)
            mask = torch.from_numpy(relevant).to(queries.device)
            return find_hard_negatives(queries, similarity, gallery, mask, self._margin, uniform[way])

        # Relevance is between images; a sentence counts as its image.
        relevant_texts = self._positives.mask(batch.images, of_sentence[kept[1]])
        relevant_images = self._positives.mask(of_sentence[batch.sentences], kept[0])
        return (
            # The positive of an image is a sentence and the reverse: column 1 is the sentences' positives.
            found(images[:pairs], texts[positives[:, 1]], self.queue.texts, relevant_texts, 0),
            found(texts[:pairs], images[positives[:, 0]], self.queue.images, relevant_images, 1),
        )


def sampler_for(
    stage: StageSettings, source: BatchSource, objective: Objective, classes: Int64[np.ndarray, " images"]
) -> Sampler:
    """The sampler that a stage's losses need."""
    for settings in stage.losses:
        if "sextuples" in settings.needs:
            # isinstance and not a cast: a loss of another package may claim this need.
            assert isinstance(settings, Sextuple), "a loss that needs sextuples has the settings of Sextuple"
            return SextupleSampler(source, settings, objective, classes)
        if "mined" in settings.needs:
            assert isinstance(settings, Ranking), "a loss that needs mined rows has the settings of Ranking"
            return MinedSampler(source, settings)
    return Sampler(source)


def _rows(
    items: Int64[np.ndarray, " batch"], others: Int64[np.ndarray, " batch"], *, within: bool
) -> tuple[Int64[np.ndarray, " batch"], Int64[np.ndarray, " more"]]:
    """The row of each one's other, and what to put behind the batch: an item that is its own other stays in its row.

    With `within` an other that stands anywhere in the batch, such as another sentence of a picture, is read there.
    """
    rows = np.arange(len(items))
    differs = items != others
    if within:
        order = np.argsort(items, kind="stable")
        place = order[np.minimum(np.searchsorted(items, others, sorter=order), len(items) - 1)]
        found = differs & (items[place] == others)
        rows[found] = place[found]
        differs &= ~found
    # Places behind the batch, in the order in which the others are put there.
    rows[differs] = len(items) + np.arange(np.count_nonzero(differs))
    return rows, others[differs]

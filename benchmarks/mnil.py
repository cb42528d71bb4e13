"""MNiL's step: memory as the set grows, and speed against drawing and encoding one negative at a time.

The claims (MNiL, docs/mnil.md): what a step needs is the same for 10⁴ and 10⁷ training pairs, and one product with the
bank takes the place of the paper's loop, which encodes each sample that it draws until one violates, and learns from
one sextuple at a time. Pictures are features of 1,280 numbers, as a frozen backbone's cache gives them; sentences have
20 words; the LSTM has two layers of 512. How many draws the loop takes depends on how well the network is trained: each
query has the margin that a tenth, a hundredth or a thousandth of the samples violate. "search" is the violators alone,
for limner with relevant samples drawn and the violators' inputs fetched; "step" is all of it, learning included.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from benchmarks.measuring import memory_above, publish, sized, speeds, taking_turns
from limner.data.records import Dataset
from limner.data.tokenizers import WordTokenizer
from limner.losses import Sextuple
from limner.losses.loss import Sextuples
from limner.models.image import BackboneSettings
from limner.models.mnil import MNiLSettings
from limner.models.registry import build_network
from limner.training.log import silent
from limner.training.objective import Objective, TrainingBatch
from limner.training.pairs import TrainingPairs
from limner.training.pictures import Pictures
from limner.training.prepare import Prepared
from limner.training.recipe import Recipe, StageSettings
from limner.training.samplers import SextupleSampler
from limner.training.stage import EmbeddingStage
from limner.types import TokenBatch

SIZES = sized((10_000, 100_000, 1_000_000, 10_000_000), (10_000,))
SHARES = sized((0.1, 0.01, 0.001), (0.1,))
BATCH, WORDS, VOCABULARY, CHANNELS = 64, 20, 8_000, 1_280
ONE = "one draw at a time"


class _Sentences(Sequence[tuple[int, ...]]):
    """Sentences that are made when they are asked for."""

    def __init__(self, there: int) -> None:
        self.there = there

    def __len__(self) -> int:
        return self.there

    def __getitem__(self, number: Any) -> Any:
        return tuple(1 + (int(number) * 7919 + place * 104_729) % VOCABULARY for place in range(WORDS))


@dataclass(frozen=True)
class _Features:
    """The cached features of `count` pictures, of which 10,000 differ."""

    table: np.ndarray
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.count, 1, CHANNELS

    def __getitem__(self, chosen: tuple[Any, Any]) -> np.ndarray:
        return np.asarray(self.table[chosen[0] % len(self.table)])


class Trainer:
    """Steps of a set of `count` pairs, each its own class, by limner and one draw at a time."""

    def __init__(self, count: int, table: np.ndarray) -> None:
        torch.manual_seed(0)
        # none of the backbone is run, but its last width is the features'
        backbone = BackboneSettings(name="mobilenet-v2", weights=None)
        model = MNiLSettings(backbone=backbone)
        stage = StageSettings(
            name="stage-1",
            batch=BATCH,
            sentences="all",
            position_shift=False,
            frozen=("backbone",),
            views=1,
            losses=(Sextuple(),),
        )
        recipe = Recipe(name="benchmark", model=model, stages=(stage,))
        each = np.arange(count)
        pairs = TrainingPairs(each, count, _Sentences(count), each, _Sentences(count), _Sentences(count))  # type: ignore[arg-type]
        self.objective = Objective(build_network(model, VOCABULARY), [stage.losses])
        nothing = Dataset("", "image", ())
        pictures = Pictures([Path()], recipe.images)
        few = np.arange(1)
        prepared = Prepared(
            *(recipe, nothing, nothing, WordTokenizer(()), pairs, self.objective, pictures, pictures),
            *(TokenBatch(few[None], few > 0), few, few),
        )
        self.stage = EmbeddingStage(prepared, 0, each, Accelerator(cpu=True), "fp32", silent)
        self.stage.source.cached = _Features(table, count)  # type: ignore[assignment]
        self.count, self.pairs = count, pairs
        self.optimiser = torch.optim.SGD(
            [one for one in self.objective.parameters() if one.requires_grad], lr=1e-6
        )
        self.stage.start()
        self.batches: Iterator[tuple[int, dict[str, Any]]] = self.stage.inputs(0)
        self.chance = random.Random(0)
        self.next = 0

    def step(self) -> None:
        """One step of a batch, as the training loop has it."""
        batch = self.search()
        self.stage.train_mode()
        self._learn(self.objective(batch)["loss"])
        self.stage.after_step()

    def search(self) -> TrainingBatch:
        """A batch with its hard negatives."""
        found: TrainingBatch = next(self.batches)[1]["batch"]
        return found

    def loop_step(self, share: float, pairs: int) -> None:
        """The paper's procedure for some pairs, one after the other."""
        for _ in range(pairs):
            number, (image, sentence) = self.next, self.loop_search(share, 1)
            own = torch.tensor([number])
            sextuples = Sextuples(
                torch.zeros((1, 2), dtype=torch.long),
                torch.tensor([[image[1], sentence[1]]]),
                torch.zeros(1, 2),
            )
            images, words = self._features([number, image[0]]), self._words([number, sentence[0]])
            losses = self.objective(TrainingBatch(images, words, own, own, sextuples=sextuples))
            self._learn(losses["loss"])

    @torch.no_grad()
    def loop_search(self, share: float, pairs: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """A violating picture and a violating sentence of each pair: drawn, encoded and compared until one violates."""
        sampler = self.stage.sampler
        assert isinstance(sampler, SextupleSampler)
        bank = sampler.queue
        for _ in range(pairs):
            number, self.next = self.next, self.next + 1
            image, text = (
                F.normalize(rows, dim=1)[0]
                for rows in self.objective.model.embed_pairs(self._features([number]), self._words([number]))[
                    :2
                ]
            )
            # what a query has to exceed, ρ and its positive taken together
            image_least = torch.quantile(bank.images @ text, 1 - share)
            text_least = torch.quantile(bank.texts @ image, 1 - share)
            found = (
                self._first(number, self._image, text, float(image_least), share),
                self._first(number, self._text, image, float(text_least), share),
            )
        return found

    def _first(
        self, number: int, encode: Callable[[int], Tensor], query: Tensor, least: float, share: float
    ) -> tuple[int, int]:
        """The first violator and its draw; twenty times the expected number of draws are the most."""
        most = round(20 / share)
        for draw in range(1, most + 1):
            drawn = (number + 1 + self.chance.randrange(self.count - 1)) % self.count
            if draw == most or float(encode(drawn)[0] @ query) > least:
                return drawn, draw
        raise AssertionError("unreachable")

    def _features(self, numbers: list[int]) -> Tensor:
        return torch.from_numpy(self.stage.source.cached[np.array(numbers), 0])  # type: ignore[index]

    def _words(self, numbers: list[int]) -> Tensor:
        return torch.from_numpy(self.pairs.layout(np.array(numbers), WORDS, None))

    def _text(self, number: int) -> Tensor:
        return F.normalize(self.objective.model.encode_texts(self._words([number])), dim=1)

    def _image(self, number: int) -> Tensor:
        return F.normalize(self.objective.model.embed_images(self._features([number])), dim=1)

    def _learn(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--draws", type=int, default=sized(160, 4), help="about how many draws a turn of the loop makes"
    )
    wanted: int = parser.parse_args().draws
    table = np.random.default_rng(0).standard_normal((10_000, CHANNELS), np.float32)
    above = {}
    for count in SIZES:
        trainer = Trainer(count, table)
        for _ in range(2):
            trainer.step()
        above[count] = memory_above(trainer.step)
        print(f"{count:,} pairs: a step takes {above[count] / 1e6:,.0f} MB above what is there")
        del trainer
    trainer = Trainer(100_000, table)
    groups = {}
    for share in SHARES:
        pairs = max(1, round(wanted * share))
        for what, loop, ours in (
            ("search", trainer.loop_search, trainer.search),
            ("step", trainer.loop_step, trainer.step),
        ):
            seconds = taking_turns({ONE: partial(loop, share, pairs), "limner": ours}, 5)
            seconds[ONE] *= BATCH / pairs
            groups[f"{what}, {share:.1%} of the samples violate"] = speeds(seconds, BATCH, reference=ONE)
    publish(
        "mnil",
        unit="pairs",
        groups=groups,
        about={
            "reference": ONE,
            "batch": BATCH,
            "bytes_of_a_step": {str(count): size for count, size in above.items()},
        },
    )


if __name__ == "__main__":
    main()

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.losses import CMCE, Instance, Levels, Pair, Ranking, Sextuple
from limner.losses.loss import Examples, LossSettings
from limner.losses.sdm import SDM
from limner.models.dual_encoder import DualEncoder
from limner.models.pretrained import PretrainedSettings
from limner.models.text_tower import TextTowerSettings
from limner.training.log import Event, Stepped
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.recipe import Recipe, VocabularySettings
from tests.toy import toy_recipe, toy_reranking
from tests.training.interrupted import same_run, stopped_and_resumed

pytest.importorskip("transformers")

PAIRS, DIM, CLASSES = 14, 6, 5


class Towers(DualEncoder):
    """Two small encoders in double precision, with or without dropout; `rows` counts those of each pass."""

    def __init__(self, dropout: float) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(1)
        self.dim = DIM
        self.image = nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Dropout(dropout), nn.Linear(9, DIM))
        self.sentence = nn.Sequential(
            nn.Embedding(12, 8), nn.Flatten(), nn.Tanh(), nn.Dropout(dropout), nn.Linear(32, DIM)
        )
        self.rows: list[int] = []
        self.double()

    def embed_pairs(self, images: Tensor, token_ids: Tensor, *_: Any, **__: Any) -> Any:
        self.rows.append(len(images))
        return self.image(images), self.sentence(token_ids), {}


def objective(losses: tuple[LossSettings, ...], *, dropout: float = 0.0) -> Objective:
    made = Objective(Towers(dropout), [losses], CLASSES).train().double()
    made.use(losses, 20)
    chance = torch.Generator().manual_seed(5)
    rows = nn.functional.normalize(torch.randn(2, CLASSES, DIM, generator=chance).double(), dim=2)
    each = torch.arange(CLASSES)
    made.start(lambda: Examples(rows[0], each, rows[1], each), lambda _: True)
    return made


def batch(pairs: int = PAIRS) -> TrainingBatch:
    chance = torch.Generator().manual_seed(3)
    groups = torch.randint(0, CLASSES, (pairs,), generator=chance)
    images = torch.randn(pairs, 7, generator=chance).double()
    return TrainingBatch(images, torch.randint(0, 12, (pairs, 4), generator=chance), groups, groups)


def step(made: Objective, chunk: int | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values and gradients of one step, with the random numbers of that step."""
    made.chunk = chunk
    made.zero_grad()
    torch.manual_seed(11)
    values = made(batch())
    torch.autograd.backward(values["loss"])
    gradients = {name: weight.grad for name, weight in made.named_parameters() if weight.grad is not None}
    return {name: value.detach() for name, value in values.items()}, gradients


LOSSES: dict[str, tuple[LossSettings, ...]] = {
    # the dropout before the classifier is drawn for the whole batch in either case
    "instance": (Instance(dropout=0.4, joint=0.5, bias=True, scale=4.0, smoothing=0.1),),
    "ranking": (Ranking(margin=0.5),),
    "ranking, sum": (Ranking(margin=0.5, negatives="sum"),),
    "cmce": (CMCE(sigma_images=0.3, sigma_texts=0.2),),
    "pair": (Pair(),),
    "sdm": (SDM(temperature=0.1),),
    "several": (SDM(), Instance(dropout=0.3), Ranking(margin=0.3)),
}


@pytest.mark.parametrize("chunk", [1, 4, 7, 13])
@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_are_those_of_the_whole_batch(kind: str, chunk: int) -> None:
    whole, whole_gradients = step(objective(LOSSES[kind]), None)
    values, gradients = step(objective(LOSSES[kind]), chunk)
    assert values.keys() == whole.keys()
    assert gradients.keys() == whole_gradients.keys()
    for name, value in whole.items():
        torch.testing.assert_close(values[name], value, rtol=1e-10, atol=1e-10)
    for name, gradient in whole_gradients.items():
        assert float(gradient.abs().max()) > 1e-6, name
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-10, atol=1e-10)


def in_one_graph(function: Any, *rows: Any, **_: Any) -> Any:
    """A chunk whose activations are kept: what is spared, with the same random numbers in the same order."""
    return function(*rows)


@pytest.mark.parametrize("kind", LOSSES)
def test_dropout_drops_the_same_in_both_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, gradients = step(objective(LOSSES[kind], dropout=0.5), 4)
    monkeypatch.setattr("limner.training.chunks.checkpoint", in_one_graph)
    expected, expected_gradients = step(objective(LOSSES[kind], dropout=0.5), 4)
    for name, value in expected.items():
        torch.testing.assert_close(values[name], value, rtol=1e-10, atol=1e-10)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-10, atol=1e-10)


def test_no_more_than_a_chunk_passes_at_once_and_each_passes_twice() -> None:
    made = objective(LOSSES["sdm"])
    step(made, 4)
    assert isinstance(made.model, Towers)
    assert made.model.rows == [4, 4, 4, 2, 2, 4, 4, 4]
    made.model.rows.clear()
    step(made, PAIRS)
    assert made.model.rows == [PAIRS]


def with_pieces(**changes: Any) -> Recipe:
    """A CNN with fixed statistics and a small BERT with dropout."""
    recipe = toy_recipe()
    model = PretrainedSettings(
        backbone=recipe.model.backbone,
        text=TextTowerSettings(words=16, feature="mean", width=16, layers=2, heads=2),
        dim=16,
        projection="new",
    )
    stages = tuple(
        stage.replace(
            batch=12,
            chunk=5,
            position_shift=False,
            backbone_statistics="fixed",
            losses=(SDM(temperature=0.1), Instance(dropout=0.2)),
            **changes,
        )
        for stage in recipe.stages
    )
    return recipe.replace(
        model=model, vocabulary=VocabularySettings(pieces=300), stages=stages, rerank=0, name="pieces"
    )


@pytest.fixture(scope="module")
def whole(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chunks") / "run"
    return train(with_pieces(average={"decay": 0.5}), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("kill_at", [2, 5, 7])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, whole: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, with_pieces(average={"decay": 0.5}), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", whole)


def test_steps_and_log_are_those_of_the_batch(toys: Dataset, tmp_path: Path) -> None:
    """Chunks change no number but by rounding: without dropout in the network the log is that of the whole batch."""
    rows, steps = [], []
    for chunk in (None, 5):
        recipe = with_pieces(frozen=("backbone", "words", "text"))
        stages = tuple(stage.replace(chunk=chunk) for stage in recipe.stages)
        seen: list[tuple[int, int]] = []

        def listen(event: Event, seen: list[tuple[int, int]] = seen) -> None:
            if isinstance(event, Stepped):
                seen.append((event.step, event.steps))

        out = tmp_path / str(chunk)
        arguments = (recipe.replace(stages=stages), toys.split("train"), toys.split("val"), out)
        train(*arguments, listener=listen, cpu=True)
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows.append([json.loads(line) for line in lines])
        steps.append(seen)
    assert steps[0] == steps[1]
    for one, other in zip(*rows, strict=True):
        assert one.keys() == other.keys()
        for name in ("loss", "sdm", "visual", "textual", "visual_error", "rate"):
            assert one[name] == pytest.approx(other[name], rel=1e-4)


def test_what_needs_a_whole_batch_is_refused(toys: Dataset, tmp_path: Path) -> None:
    stage = toy_recipe().stages[0]
    for loss, need in ((Ranking(candidates=4), "mined"), (Sextuple(), "sextuples"), (Levels(), "levels")):
        with pytest.raises(SettingsError, match=rf"chunk: losses\.{loss.kind} needs {need}"):
            stage.replace(losses=(Instance(), loss), chunk=4)
    with pytest.raises(SettingsError, match="lower its batch, not chunk"):
        toy_reranking().stages[1].replace(chunk=4)
    # the second stage's batch norm is found before the first stage begins
    first, second = toy_recipe().stages
    recipe = toy_recipe().replace(stages=(first, second.without_losses(Ranking).replace(chunk=4)))
    with pytest.raises(SettingsError, match=r"stages\.stage-2\.chunk': the batch norm 'backbone\.bn1'"):
        train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()

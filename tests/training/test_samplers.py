"""MNiL in the training loop: sextuples, and a queue that lives in the state."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.losses import Sextuple
from limner.losses.sextuple import Direction
from limner.models.text_bert import BertSettings, BertWords
from limner.training.log import silent
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.prepare import prepare
from limner.training.recipe import Recipe
from limner.training.samplers import BatchSource
from limner.training.sentence_features import sentence_features
from tests.toy import toy_mnil, toy_recipe
from tests.training.interrupted import (
    STATE,
    killed_and_resumed,
    left_by,
    same_run,
    stopped_and_resumed,
    trained_together,
)


def labelled(dataset: Dataset) -> Dataset:
    """The toys with their colour, shape and ground as labels."""
    return replace(dataset, records=tuple(replace(r, labels=tuple(r.group.split())) for r in dataset.records))


@pytest.fixture(scope="module")
def run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mnil") / "run"
    return train(toy_mnil(), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("kill_at", [2, 4, 5, 9, 11])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_mnil(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", run)


def test_stopped_and_resumed_with_the_sentences_of_a_picture_together(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_mnil()
    recipe = recipe.replace(
        stages=tuple(stage.replace(sentences="together", pairing="image") for stage in recipe.stages)
    )
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=5)
    same_run(tmp_path / "run", tmp_path / "whole")


def above_bert() -> Recipe:
    """Sextuples of an LSTM above a BERT of random weights."""
    recipe = toy_mnil()
    bert = BertSettings(model=None, layers=1, hidden="last", width=8, heads=2)
    return recipe.replace(
        model=recipe.model.replace(text=recipe.model.text.replace(bert=bert, word_dim=8)),
        stages=tuple(stage.replace(frozen=(*stage.frozen, "bert"), views=2) for stage in recipe.stages),
    )


def test_stopped_and_resumed_above_a_bert_and_every_row_has_its_words(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Objective.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        # of the pairs, of their positives and of their hard negatives
        assert batch.words_below is not None
        with torch.no_grad():
            expected = self.model.text.bert(batch.token_ids)  # type: ignore[operator]
        torch.testing.assert_close(batch.words_below.float(), expected.float(), atol=2e-2, rtol=2e-2)
        return plain(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    recipe = above_bert()
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=5)
    same_run(tmp_path / "run", tmp_path / "whole")
    assert limner.load(tmp_path / "run", device="cpu").encode_texts(["a red bar"]).shape == (1, 16)


def test_sentences_whose_words_are_cached_are_embedded_without_the_bert(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepare(above_bert(), toys.split("train"), toys.split("val"))
    source = BatchSource(data, 0, Accelerator(cpu=True), "fp32", silent)
    chosen = np.array([3, 0, 7])
    expected = source.embedded(source.encoding(), chosen)
    layer = data.objective.model.kept_words({"bert"})
    assert isinstance(layer, BertWords)
    source.words_below = sentence_features(
        layer, data.pairs.sentences, source.words, precision="fp32", folder=tmp_path
    )

    def forbidden(*given: object) -> None:
        raise AssertionError("the BERT was asked again")

    monkeypatch.setattr(BertWords, "forward", forbidden)
    found = source.embedded(source.encoding(), chosen)
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    assert not torch.allclose(found, found.roll(1, 0), atol=2e-3)


@pytest.mark.parametrize("places", [0, 1, 3])
def test_a_bank_has_sentences_at_the_left_wherever_testing_puts_them(toys: Dataset, places: int) -> None:
    recipe = toy_recipe()
    recipe = recipe.replace(model=recipe.model.replace(text=recipe.model.text.replace(test_positions=places)))
    data = prepare(recipe, toys.split("train"), toys.split("val"))
    source = BatchSource(data, 1, Accelerator(cpu=True), "fp32", silent)
    ids = data.pairs.layout(np.arange(len(data.pairs.sentences)), source.words, None)
    left = source.encoding(places=1).token_ids(ids)
    torch.testing.assert_close(source.bank().texts, left)
    # what the network is tested by, and what the hub correction is filled with, keeps its places
    tested = source.encoding().token_ids(ids)
    assert torch.allclose(tested, left, atol=1e-6) == (places == 1)
    spread = source.spread(len(ids))[1]
    torch.testing.assert_close(spread, tested)


def test_kill_9_keeps_the_queue(toys: Dataset, run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_mnil(), tmp_path / "run", "stage-2 1 2")
    same_run(tmp_path / "run", run)
    state = load_file(run / STATE)
    assert state["objective.losses.sextuple.queue.images"].shape == (9, 16)
    torch.testing.assert_close(state["objective.losses.sextuple.queue.texts"].norm(dim=1), torch.ones(9))
    pictures = len(toys.split("train"))
    assert (state["objective.losses.sextuple.queue.image_numbers"] < pictures).all()


def test_the_run_encodes_and_says_its_system(toys: Dataset, run: Path) -> None:
    loaded = limner.load(run, device="cpu")
    assert loaded.description["system"] == "mnil"
    assert loaded.encode_texts(["a red bar", "a yellow circle"]).shape == (2, 16)
    pictures = loaded.encode_images([record.image for record in toys.records[:3]])
    np.testing.assert_allclose(np.linalg.norm(pictures, axis=1), 1, atol=1e-5)
    head = loaded.model.state_dict()["image_projection.linear.weight"]
    torch.testing.assert_close(head @ head.T, torch.eye(16), atol=1e-5, rtol=0)


@pytest.mark.parametrize("sentences", [None, "together"])
def test_relevant_samples_and_violators_are_what_they_are_called(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: str | None
) -> None:
    steps: list[TrainingBatch] = []
    plain = Objective.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        steps.append(copy.deepcopy(batch))
        return plain(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    data = labelled(toys)
    recipe = toy_mnil(by_label=True)
    recipe = recipe.replace(
        images=recipe.images.replace(resize=(32, 32)),  # so that a view is the picture or its mirror image
        stages=tuple(
            stage.replace(views=0, sentences=sentences or stage.sentences) for stage in recipe.stages
        ),
    )
    train(recipe, data.split("train"), data.split("val"), tmp_path / "run", cpu=True)
    records = data.split("train").records
    loaded = limner.load(tmp_path / "run", device="cpu")
    said = {
        tuple(row): set(record.labels)
        for record in records
        for row in loaded.tokenizer.encode(record.sentences, 10).token_ids.tolist()
    }
    shown = {
        view.tobytes(): set(record.labels)
        for record in records
        for pixels in (loaded.prepare_image(record.image),)
        for view in (pixels, pixels[:, ::-1])
    }
    found = 0
    for step in steps:
        batch = len(step.groups)
        assert step.sextuples is not None
        of_sentences = [said[tuple(row)] for row in step.token_ids.tolist()]
        of_pictures = [shown[row.permute(1, 2, 0).numpy().tobytes()] for row in step.images]
        if sentences == "together":
            # a picture once for all of its sentences, and once for all queries that found it
            assert step.shown is not None
            assert len(of_pictures) < len(step.shown)
            of_pictures = [of_pictures[row] for row in step.shown.tolist()]
        for row in range(batch):
            assert of_pictures[row] == of_sentences[row]
            for column, labels in enumerate((of_pictures, of_sentences)):
                assert labels[row] & labels[step.sextuples.positives[row, column]]
                if step.sextuples.draws[row, column]:
                    found += 1
                    assert not labels[row] & labels[len(labels) - batch + row]
    assert found > 100


def test_the_queue_is_in_eval_mode(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_mnil()
    optimiser = recipe.stages[1].optimiser.replace(rate=1e-12, multipliers={})
    recipe = recipe.replace(
        stages=(recipe.stages[1].replace(epochs=1, optimiser=optimiser),),
        images=recipe.images.replace(resize=(32, 32)),
    )
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    state = load_file(out / STATE)
    records = toys.split("train").records
    loaded = limner.load(out, device="cpu")
    numbers = state["objective.losses.sextuple.queue.image_numbers"].tolist()
    pictures = torch.from_numpy(loaded.encode_images([records[number].image for number in numbers]))
    # nothing was learnt but the statistics of the batch norm; by those of the batch, cosines are 0.7 to 0.8
    assert ((pictures * state["objective.losses.sextuple.queue.images"]).sum(dim=1) > 0.85).all()


def test_labels_choose_the_checkpoint_and_lead_the_learning(toys: Dataset, tmp_path: Path) -> None:
    data = labelled(toys)
    recipe = toy_mnil(by_label=True)
    out = train(recipe, data.split("train"), data.split("val"), tmp_path / "run", cpu=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        both = [row[direction]["mAP"] for direction in ("image_to_text", "text_to_image")]
        assert row["score"] == pytest.approx(sum(both) / 2)


def test_pictures_without_a_label_are_refused(toys: Dataset, tmp_path: Path) -> None:
    data = labelled(toys)
    records = data.split("train").records
    short = replace(data, records=(*records[1:], replace(records[0], labels=())))
    with pytest.raises(DataError, match="1 training pictures have no label"):
        train(toy_mnil(by_label=True), short, data.split("val"), tmp_path / "run", cpu=True)
    with pytest.raises(DataError, match="pictures of split 'train' have no labels"):
        train(toy_mnil(by_label=True), toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)


@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_one_direction_trains_too(toys: Dataset, tmp_path: Path, direction: Direction) -> None:
    recipe = toy_mnil()
    stage = recipe.stages[0]
    losses = Sextuple(queue=12, direction=direction)
    train(
        recipe.replace(stages=(stage.with_losses(losses),)),
        *(toys.split("train"), toys.split("val"), tmp_path / "run"),
        cpu=True,
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(row["loss"]) for row in rows)


def test_pairs_that_may_be_irrelevant_are_refused(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_mnil(by_label=True)
    stage = recipe.stages[0].replace(pairing="group")
    with pytest.raises(SettingsError, match="with pairing=group a picture may meet"):
        recipe.replace(stages=(stage,))
    with pytest.raises(SettingsError, match="with pairing=group a picture may meet"):
        toy_mnil().replace(stages=(toy_mnil().stages[0].replace(pairing="group"),), classes="images")
    data = labelled(toys)
    records = data.split("train").records
    silent = replace(records[0], image=records[0].image.with_name("other.png"), sentences=())
    short = replace(data, records=(*records, silent))
    with pytest.raises(DataError, match=r"1 training pictures have no sentence, e\.g\. other\.png"):
        train(recipe, short, data.split("val"), tmp_path / "run", cpu=True)


_PUSHES = """
from limner.losses.sextuple import EmbeddingQueue

plain, seen = EmbeddingQueue.push, []


def push(self, images, texts, pictures, sentences):
    plain(self, images, texts, pictures, sentences)
    seen.append(len(pictures))
    saved((self.state_dict(), seen))


EmbeddingQueue.push = push
"""


def test_two_processes_hold_the_same_queue(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_mnil()
    recipe = recipe.replace(stages=recipe.stages[:1])
    trained_together(2, toys, recipe, tmp_path / "run", watched=_PUSHES)
    one, other = left_by(tmp_path / "run")
    for name, tensor in one[0].items():
        assert torch.equal(tensor, other[0][name]), name
    assert one[1][-1] == 8  # the whole batch, not a process's half

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.records import Dataset, Record
from limner.data.tokenizers import WordTokenizer
from limner.errors import SettingsError
from limner.training.loop import train
from limner.training.pairs import TrainingPairs, epoch_batches, generator, steps_per_epoch
from limner.training.recipe import Recipe, StageSettings
from tests.toy import toy_mnil, toy_recipe, toy_reranking
from tests.training.interrupted import same_run, stopped_and_resumed

Sentences = Literal["one", "all", "together"]


def numbered(counts: list[int], groups: list[str]) -> TrainingPairs:
    records = tuple(
        Record(Path(f"{number}.png"), ("a",) * count, group)
        for number, (count, group) in enumerate(zip(counts, groups, strict=True))
    )
    return TrainingPairs.of(Dataset("folder:x", "identity", records), WordTokenizer(("a",)), 4)


@given(
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=20),
    sentences=st.sampled_from(("one", "all", "together")),
    pairing=st.sampled_from(("image", "group")),
    size=st.integers(2, 9),
    seed=st.integers(0, 99),
)
def test_an_epoch_draws_what_is_kept_and_all_of_it(
    counts: list[int], sentences: Sentences, pairing: Literal["image", "group"], size: int, seed: int
) -> None:
    groups = [str(number // 2) for number in range(len(counts))]
    pairs = numbered(counts, groups)
    kept = generator(seed).random(len(pairs.sentences)) < 0.6
    stage = StageSettings(
        name="s", batch=size, sentences=sentences, pairing="image" if sentences != "one" else pairing
    )
    divided = pairs.keeping(kept)
    batches = list(epoch_batches(divided, stage, 4, generator(seed, 1)))
    drawn = [int(number) for batch in batches for number in batch.sentences]
    assert all(kept[number] for number in drawn)
    if sentences == "one":
        shown = [int(number) for batch in batches for number in batch.images]
        assert len(set(shown)) == len(shown)
        there = sum(any(kept[one] for one in pairs.of_group[group]) for group in pairs.groups)
    else:
        assert len(set(drawn)) == len(drawn)
        there = int(kept.sum())
    assert len(drawn) == (there // size * size or there)
    if drawn:
        assert len(batches) == steps_per_epoch(divided, stage)


@pytest.mark.parametrize("sentences", ["one", "all", "together"])
def test_keeping_everything_changes_no_batch(sentences: Sentences) -> None:
    pairs = numbered([1, 2, 3, 1, 2, 4], ["a", "a", "b", "c", "c", "d"])
    stage = StageSettings(name="s", batch=3, sentences=sentences)
    every = pairs.keeping(np.ones(len(pairs.sentences), bool))
    for one, other in zip(
        epoch_batches(pairs, stage, 4, generator(1)),
        epoch_batches(every, stage, 4, generator(1)),
        strict=True,
    ):
        assert (one.images == other.images).all()
        assert (one.sentences == other.sentences).all()


def divided(recipe: Recipe, **values: Any) -> Recipe:
    first, *rest = recipe.stages
    return recipe.replace(stages=(first.replace(division={"start": 1, **values}), *rest))


@pytest.mark.parametrize("recipe", [toy_recipe, toy_mnil, toy_reranking])
def test_stopped_and_resumed_is_the_uninterrupted_run(
    recipe: Callable[[], Recipe], toys: Dataset, tmp_path: Path
) -> None:
    chosen = divided(recipe())
    splits = toys.split("train"), toys.split("val")
    train(chosen, *splits, tmp_path / "whole", cpu=True)
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    first = [row for row in rows if row["stage"] == chosen.stages[0].name]
    # the whole split in the first epoch, and what was found right in those that follow
    assert ["pairs_kept" in row for row in first] == [False] + [True] * (len(first) - 1)
    assert all(0 < row["pairs_kept"] <= 100 for row in first[1:])
    stopped_and_resumed(toys, chosen, tmp_path / "run", kill_at=len(first) + 2)
    same_run(tmp_path / "run", tmp_path / "whole")


def test_settings_that_do_not_fit_are_refused() -> None:
    stage = toy_recipe().stages[0]
    with pytest.raises(SettingsError, match=r"division\.start=9"):
        stage.replace(epochs=9, division={"start": 9})
    rerank = toy_reranking().stages[-1]
    with pytest.raises(SettingsError, match="division is for stages of the embedding"):
        rerank.replace(division={"start": 0})

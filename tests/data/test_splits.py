import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.records import Dataset, Record
from limner.data.splits import assign_counts, assign_fold, assign_splits, draw_splits, hold_out, split_source
from limner.errors import DataError


def dataset(groups: list[str], split: str | None = None) -> Dataset:
    records = tuple(Record(Path(f"{group}-{n}.jpg"), (), group, split) for group in groups for n in range(2))
    return Dataset("folder:x", "identity", records)


def splits(data: Dataset) -> dict[str, str | None]:
    return {record.group: record.split for record in data.records}


def test_a_group_stays_together() -> None:
    data = assign_splits(dataset([f"p{n}" for n in range(200)]), seed=3)
    assert len({(record.group, record.split) for record in data.records}) == 200


def test_adding_pictures_never_moves_others() -> None:
    before = splits(assign_splits(dataset([f"p{n}" for n in range(300)]), seed=1))
    after = splits(assign_splits(dataset([f"p{n}" for n in reversed(range(-50, 400))]), seed=1))
    assert {group: after[group] for group in before} == before


def test_the_shares_are_those_asked_for() -> None:
    # Four standard deviations of a binomial share.
    count = 4000
    got = list(
        splits(assign_splits(dataset([f"p{n}" for n in range(count)]), seed=0, val=0.2, test=0.05)).values()
    )
    for name, share in (("train", 0.75), ("val", 0.2), ("test", 0.05)):
        assert abs(got.count(name) / count - share) < 4 * math.sqrt(share * (1 - share) / count)


def test_another_seed_is_another_split() -> None:
    data = dataset([f"p{n}" for n in range(100)])
    assert splits(assign_splits(data, seed=0)) != splits(assign_splits(data, seed=1))
    assert splits(assign_splits(data, seed=5)) == splits(assign_splits(data, seed=5))


@given(st.integers(3, 60), st.integers(0, 99), st.data())
def test_a_draw_has_the_numbers_asked_for(count: int, seed: int, data: st.DataObject) -> None:
    val = data.draw(st.integers(1, count - 2))
    test = data.draw(st.integers(1, count - 1 - val))
    whole = dataset([f"p{n}" for n in range(count)], split="train")
    drawn = assign_counts(whole, seed, val, test)
    found = splits(drawn)
    assert len({(record.group, record.split) for record in drawn.records}) == count
    names = list(found.values())
    assert {name: names.count(name) for name in ("train", "val", "test")} == {
        "train": count - val - test,
        "val": val,
        "test": test,
    }
    # the order of the records is not asked, and the source says the same
    turned = replace(whole, records=whole.records[::-1])
    assert splits(assign_counts(turned, seed, val, test)) == found
    source = f"folder:x#draw={seed}/{val}/{test}"
    assert splits(draw_splits(replace(whole, source=source))) == found
    assert split_source(source) == ("folder:x", f"draw={seed}/{val}/{test}")


def test_draws_differ_and_cover_a_set_evenly() -> None:
    whole = dataset([f"p{n}" for n in range(20)])
    tested = [
        {group for group, split in splits(assign_counts(whole, seed, 5, 5)).items() if split == "test"}
        for seed in range(200)
    ]
    assert len({frozenset(one) for one in tested}) > 190
    # 200 draws of a quarter: each group is tested in 50 of them, with a deviation of 6
    times = [sum(group in one for one in tested) for group in splits(whole)]
    assert min(times) > 50 - 4 * 6.2
    assert max(times) < 50 + 4 * 6.2


@pytest.mark.parametrize(("val", "test"), [(0, 1), (1, 0), (1, 2), (5, 5)])
def test_draws_that_leave_a_split_empty_are_refused(val: int, test: int) -> None:
    with pytest.raises(
        DataError, match=r"folder:x: . groups for validation and . for testing .* of 3 groups"
    ):
        assign_counts(dataset(["a", "b", "c"]), 0, val, test)


def test_all_or_nothing() -> None:
    data = dataset(["a", "b", "c"], split="val")
    assert set(splits(assign_splits(data, seed=0, val=0.0, test=0.0)).values()) == {"train"}
    assert set(splits(assign_splits(data, seed=0, val=0.0, test=1.0)).values()) == {"test"}


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0.1), (0.1, -0.1), (0.6, 0.6), (math.nan, 0.1)])
def test_impossible_shares_are_refused(val: float, test: float) -> None:
    with pytest.raises(DataError, match="shares of val and test"):
        assign_splits(dataset(["a"]), seed=0, val=val, test=test)


def test_a_twentieth_of_the_training_groups_is_held_out_where_there_is_no_validation_split() -> None:
    names = [f"id-{n}" for n in range(4000)]
    published = Dataset("x", "identity", (*dataset(names, "train").records, *dataset(["t"], "test").records))
    got = splits(hold_out(published))
    held = [name for name, split in got.items() if split == "val"]
    assert abs(len(held) / 4000 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 4000)
    assert got["t"] == "test"
    assert splits(hold_out(dataset(names[:100], "train"))).items() <= got.items()
    assert hold_out(hold_out(published)) == hold_out(published)


def test_every_group_is_tested_in_one_fold_and_validated_in_another() -> None:
    data = dataset([f"p{n}" for n in range(23)])
    folds = [splits(assign_fold(data, fold, 5)) for fold in range(1, 6)]
    for group in folds[0]:
        assert sorted(str(fold[group]) for fold in folds) == ["test", "train", "train", "train", "val"]
    for fold in folds:
        assert list(fold.values()).count("test") in (4, 5)


@pytest.mark.parametrize(("fold", "folds"), [(0, 5), (6, 5), (1, 2), (1, 24)])
def test_impossible_folds_are_refused(fold: int, folds: int) -> None:
    with pytest.raises(DataError, match="of 23 groups there can be 3 to 23 folds"):
        assign_fold(dataset([f"p{n}" for n in range(23)]), fold, folds)


def test_a_split_that_limner_drew_says_so() -> None:
    data = dataset([f"p{n}" for n in range(90)])
    assert data.how_drawn == ""
    assert assign_splits(data, 3).how_drawn == assign_splits(data, 3).split("test").how_drawn
    assert assign_splits(data, 3).how_drawn == "drawn splits, seed=3"
    assert assign_fold(data, 2, 5).split("val").how_drawn == "drawn splits, fold=2/5"
    assert assign_counts(data, 4, 10, 20).split("test").how_drawn == "drawn splits, draw=4/10/20"
    # what is drawn anew is named, and not what was drawn before
    assert assign_fold(assign_splits(data, 3), 2, 5).how_drawn == "drawn splits, fold=2/5"
    published = replace(
        data,
        records=tuple(
            replace(record, split="test" if place < 20 else "train")
            for place, record in enumerate(data.records)
        ),
    )
    held = hold_out(published, 0.2)
    assert held.split("test").how_drawn == ""
    assert held.split("val").how_drawn == "drawn splits, val=0.2 of train"


def test_a_split_knows_the_training_images_of_its_set_and_never_the_test_images() -> None:
    whole = assign_splits(dataset([f"p{n}" for n in range(90)]), 3)
    images = {
        name: [record.image for record in whole.split(name).records] for name in ("train", "val", "test")
    }
    for name in ("train", "val", "test"):
        known = whole.split(name).split(name).training_images
        assert {split: list(paths) for split, paths in known.items()} == {
            split: images[split] for split in ("train", "val")
        }

from pathlib import Path

import pytest

from limner.data.check import check_dataset, render
from limner.data.published import EDITIONS, Counts, nearest_edition
from limner.data.readers import FORMATS
from limner.data.records import Dataset, GroupKind, Record


def published(source: str, kind: GroupKind, **splits: Counts) -> Dataset:
    """A set of these counts: a picture of each group in turn, sentences as evenly spread."""
    records = []
    for split, counts in splits.items():
        pictures, sentences = counts.pictures or 0, counts.sentences or 0
        for number in range(pictures):
            upto = [sentences * place // pictures for place in (number, number + 1)]
            group = f"{split}-{number % (counts.groups or pictures)}"
            records.append(
                Record(Path(f"{split}{number}.jpg"), ("a dog",) * (upto[1] - upto[0]), group, split)
            )
    return Dataset(source, kind, tuple(records))


CUHK = {
    "train": Counts(34054, 68126, 11003),
    "val": Counts(3078, 6158, 1000),
    "test": Counts(3074, 6156, 1000),
}


def test_a_complete_set_is_recognised_and_a_smaller_one_named() -> None:
    whole = published("cuhk-pedes:x", "identity", **CUHK)
    assert nearest_edition(whole) == (EDITIONS["cuhk-pedes"][0], ())
    less = published("cuhk-pedes:x", "identity", **{**CUHK, "test": Counts(3073, 6154, 1000)})
    report = check_dataset(less, open_images=False)
    assert report.facts.edition == "CUHK-PEDES"
    assert report.facts.deviations == (
        "test: 3,073 pictures, published 3,074",
        "test: 6,154 sentences, published 6,156",
    )
    assert (
        "The counts are not those of CUHK-PEDES: test: 3,073 pictures, published 3,074; test: 6,154 sentences"
        in render(report)
    )


@pytest.mark.parametrize(
    ("train", "val", "name"),
    [
        (Counts(29000, 145000), Counts(1014, 5070), "Flickr30k, Karpathy's split"),
        (Counts(29783, 148915), Counts(1000, 5000), "Flickr30k, split of 29,783 training pictures"),
    ],
)
def test_the_edition_is_told_by_its_counts(train: Counts, val: Counts, name: str) -> None:
    dataset = published("flickr30k:x", "image", train=train, val=val, test=Counts(1000, 5000))
    found = nearest_edition(dataset)
    assert found is not None
    assert (found[0].name, found[1]) == (name, ())


def test_splits_may_be_counted_together() -> None:
    dataset = published(
        "icfg-pedes:x",
        "identity",
        train=Counts(33000, 33000, 2952),
        val=Counts(1674, 1674, 150),
        test=Counts(19848, 19848, 1000),
    )
    assert nearest_edition(dataset) == (EDITIONS["icfg-pedes"][0], ())


def test_own_pictures_have_no_edition() -> None:
    assert nearest_edition(Dataset("folder:x", "image", ())) is None
    assert set(EDITIONS) == set(FORMATS) - {"folder", "parquet", "webdataset"}


def test_a_set_of_which_no_number_of_pictures_is_known() -> None:
    found = nearest_edition(published("prw-tps-cn:x", "identity", train=Counts(2, 47102)))
    assert found == (EDITIONS["prw-tps-cn"][0], ())
    found = nearest_edition(published("prw-tps-cn:x", "identity", train=Counts(2, 9)))
    assert found is not None
    assert found[1] == ("train+val+test: 9 sentences, published 47,102",)


def test_ufine3c_is_told_from_ufine6926() -> None:
    found = nearest_edition(published("ufine6926:x", "identity", test=Counts(7446, 37939, 2250)))
    assert found == (EDITIONS["ufine6926"][1], ())


def test_the_parts_of_each_edition_add_up() -> None:
    for edition in (edition for editions in EDITIONS.values() for edition in editions):
        both = edition.splits.get("train+val")
        if both and "train" in edition.splits:
            assert both.groups == sum(edition.splits[name].groups or 0 for name in ("train", "val"))

from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from limner.data.noise import add_noise, noise_source
from limner.data.readers import open_dataset
from limner.data.records import Dataset, Record
from limner.data.splits import split_source
from limner.errors import DataError


def people(identities: int, sentences: int, source: str, *, tags: bool = False) -> Dataset:
    """Two pictures of each, with sentences that tell where they stand."""
    records = [
        Record(
            Path(f"{split}-{person}-{view}.png"),
            tuple(f"{split} {person} {view} {number}" for number in range(sentences)),
            f"{split}-{person}",
            split,
            languages=tuple("en" if number % 2 else "de" for number in range(sentences)) if tags else (),
        )
        for split in ("train", "val", "test")
        for person in range(identities)
        for view in range(2)
    ]
    return Dataset(source, "identity", tuple(records))


def flat(dataset: Dataset, *splits: str) -> list[tuple[str, str]]:
    return [
        (record.group, sentence)
        for record in dataset.records
        if record.split in splits
        for sentence in record.sentences
    ]


@given(
    identities=st.integers(3, 30),
    sentences=st.integers(1, 4),
    share=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    seed=st.integers(0, 5),
)
def test_so_many_training_sentences_are_of_another_group_and_none_is_lost(
    identities: int, sentences: int, share: float, seed: int
) -> None:
    clean = people(identities, sentences, f"folder:a#noise={share}/{seed}")
    try:
        noisy = add_noise(clean)
    except DataError:
        # few sentences were drawn, and most of them of one person
        reject()
    before, after = flat(clean, "train"), flat(noisy, "train")
    moved = [(group, old, new) for (group, old), (_, new) in zip(before, after, strict=True) if old != new]
    assert len(moved) == round(share * len(before))
    assert all(new.split()[1] != group.removeprefix("train-") for group, _, new in moved)
    assert sorted(sentence for _, sentence in after) == sorted(sentence for _, sentence in before)
    assert flat(noisy, "val", "test") == flat(clean, "val", "test")
    assert add_noise(clean) == noisy


def test_another_seed_moves_others_and_languages_go_along() -> None:
    one, two = (add_noise(people(20, 2, f"folder:a#noise=0.5/{seed}", tags=True)) for seed in (0, 1))
    assert flat(one, "train") != flat(two, "train")
    for record in one.records:
        for sentence, language in zip(record.sentences, record.languages, strict=True):
            assert language == ("en" if int(sentence.split()[3]) % 2 else "de")


def test_a_source_says_it_behind_the_splits(toys: Dataset) -> None:
    pictures = toys.records[0].image.parent
    clean = open_dataset(f"folder:{pictures}#seed=3")
    noisy = open_dataset(f"folder:{pictures}#seed=3#noise=0.5")
    assert noisy.fingerprint != clean.fingerprint
    assert [record.split for record in noisy.records] == [record.split for record in clean.records]
    assert split_source(noisy.source) == split_source(clean.source)
    assert noise_source(f"folder:{pictures}") == (f"folder:{pictures}", "")
    with pytest.raises(DataError, match=r"1\.5"):
        open_dataset(f"folder:{pictures}#noise=1.5")


def test_sentences_of_one_group_have_nowhere_to_go() -> None:
    with pytest.raises(DataError, match="of one group"):
        add_noise(people(1, 4, "folder:a#noise=1"))

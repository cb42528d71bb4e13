from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from limner.data.check import check_dataset
from limner.data.records import Dataset, Record
from limner.errors import DataError, SettingsError
from limner.training.prepare import prepare
from tests.toy import toy_recipe

ROWS = {
    "a1": ("anna", "train", ("a woman in red",)),
    "a2": ("anna", "train", ("a woman from behind",)),
    "b1": ("ben", "train", ("a man with a dog",)),
    "c1": ("carla", "val", ("a woman with a bag",)),
    "c2": ("carla", "val", ("a woman on a bike",)),
    "d1": ("dan", "test", ("a man in a hat",)),
}


def _silenced(dataset: Dataset, *names: str) -> Dataset:
    return _changed(
        dataset, [replace(r, sentences=()) if r.image.stem in names else r for r in dataset.records]
    )


def _changed(dataset: Dataset, records: list[Record]) -> Dataset:
    return replace(dataset, records=tuple(records))


@pytest.fixture
def people(tmp_path: Path) -> Dataset:
    for name in ROWS:
        (tmp_path / f"{name}.jpg").touch()
    records = [
        Record(tmp_path / f"{name}.jpg", sentences, group, split)
        for name, (group, split, sentences) in ROWS.items()
    ]
    return Dataset(f"folder:{tmp_path}", "identity", tuple(records))


@pytest.mark.parametrize(
    ("silent", "refused"),
    [
        ((), None),
        (("a1",), None),
        (("c1",), None),
        (("d1",), None),
        (("b1",), "group 'ben' has no sentence"),
        (("a1", "a2"), "group 'anna' has no sentence"),
        (("c1", "c2"), "validation split has no sentence"),
        (("a1", "a2", "b1"), "no word is left"),
    ],
)
def test_the_doctor_finds_an_error_in_what_training_refuses_for_its_sentences(
    silent: tuple[str, ...], refused: str | None, people: Dataset
) -> None:
    _agree(_silenced(people, *silent), refused)


@pytest.mark.parametrize(
    ("missing", "refused"),
    [("test", None), ("train", "no picture in split 'train'"), ("val", "no picture in split 'val'")],
)
def test_the_doctor_finds_an_error_in_what_training_refuses_for_its_splits(
    missing: str, refused: str | None, people: Dataset
) -> None:
    _agree(_changed(people, [record for record in people.records if record.split != missing]), refused)


def test_a_dataset_without_any_split_is_refused(people: Dataset) -> None:
    _agree(
        _changed(people, [replace(record, split=None) for record in people.records]), "no picture in split"
    )


def _agree(dataset: Dataset, refused: str | None) -> None:
    assert check_dataset(dataset, open_images=False).sound == (refused is None)
    if refused is None:
        prepare(toy_recipe(), dataset.split("train"), dataset.split("val"))
        return
    with pytest.raises(DataError, match=refused):
        prepare(toy_recipe(), dataset.split("train"), dataset.split("val"))


def test_word_vectors_of_a_file_begin_the_table_and_limit_the_words(people: Dataset, tmp_path: Path) -> None:
    vectors: dict[str, list[float]] = {
        "woman": [1.0, 0.0, -1.0],
        "red": [0.0, 2.0, 0.0],
        "behind": [0.5, 0.0, 0.5],
        "zebra": [9, 9, 9],
    }
    file = tmp_path / "glove.txt"
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in vectors.items()]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    recipe = toy_recipe()
    recipe = recipe.replace(
        model=recipe.model.replace(text=recipe.model.text.replace(word_dim=3)),
        vocabulary=recipe.vocabulary.replace(vectors=str(file), min_count=1),
    )
    splits = people.split("train"), people.split("val")
    prepared = prepare(recipe, *splits)
    # "zebra" is in no sentence, "dog" has no vector
    entries = list(prepared.tokenizer.entries)
    assert sorted(entries) == ["behind", "red", "woman"]
    table = prepared.objective.model.text.table.weight.detach().numpy()
    assert not table[0].any()
    expected = np.array([vectors[word] for word in entries])
    # scaled as a whole to the spread of a random start: the proportions stay
    np.testing.assert_allclose(table[1:], expected * 0.1 / expected.std(), rtol=1e-5)

    wider = recipe.replace(model=recipe.model.replace(text=recipe.model.text.replace(word_dim=4)))
    with pytest.raises(
        SettingsError, match=r"setting 'model\.text\.word_dim': 4, but .*glove\.txt has 3 columns"
    ):
        prepare(wider, *splits)


def test_captions_without_blanks_between_words_are_refused_before_training(people: Dataset) -> None:
    chinese = _changed(
        people, [replace(record, sentences=("一个穿红色大衣的男人",)) for record in people.records]
    )
    assert check_dataset(chinese, open_images=False).sound  # a recipe with a sub-word tokenizer reads them
    with pytest.raises(DataError, match=r"3 of 3 training captions are .* e\.g\. '一个穿红色大衣的男人'"):
        prepare(toy_recipe(), chinese.split("train"), chinese.split("val"))
    # Of the validation split nothing is learnt.
    mixed = _changed(
        people,
        [
            own if own.split == "train" else other
            for own, other in zip(people.records, chinese.records, strict=True)
        ],
    )
    prepare(toy_recipe(), mixed.split("train"), mixed.split("val"))

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import limner
from limner.data.noise import add_noise
from limner.data.records import Dataset, Record
from limner.errors import DataError
from limner.inference.suspicious_captions import judged, suspicious_captions


def seen(dataset: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of pictures and captions by the person that each names, with some noise."""
    random = np.random.default_rng(seed)
    people = random.normal(size=(100, 24))

    def rows(names: list[str]) -> np.ndarray:
        found = people[[int(name.split("-")[1]) for name in names]]
        found = found + 0.5 * random.normal(size=found.shape)
        unit: np.ndarray = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
        return unit

    captions = [caption for record in dataset.records for caption in record.sentences]
    return rows([record.image.stem for record in dataset.records]), rows(captions)


def people(identities: int, source: str) -> Dataset:
    records = [
        Record(
            Path(f"p-{person}-{view}.png"), (f"c-{person}-{view}", f"d-{person}-{view}"), str(person), "train"
        )
        for person in range(identities)
        for view in range(2)
    ]
    return Dataset(source, "identity", tuple(records))


@given(identities=st.integers(20, 60), share=st.sampled_from((0.1, 0.3, 0.5)), seed=st.integers(0, 20))
def test_wrong_captions_come_first(identities: int, share: float, seed: int) -> None:
    dataset = add_noise(people(identities, f"folder:a#noise={share}/{seed}"))
    found = judged(dataset, *seen(dataset, seed), seed)
    assert len(found) == 4 * identities
    assert [one.loss for one in found] == sorted((one.loss for one in found), reverse=True)
    groups = {record.image: record.group for record in dataset.records}
    wrong = [one.caption.split("-")[1] != groups[one.file] for one in found]
    count = sum(wrong)
    assert sum(wrong[:count]) >= 0.9 * count
    called = [one.right <= 0.5 for one in found]
    # where few are wrong, it calls right ones wrong as well
    assert sum(one and other for one, other in zip(called, wrong, strict=True)) >= 0.9 * count
    if share == 0.5:
        assert np.mean(np.array(called) == np.array(wrong)) > 0.9
    # worst first by either
    rights = [one.right for one in found]
    assert rights == pytest.approx(sorted(rights), abs=1e-9)


def test_a_run_judges_its_pictures_by_itself(toys: Dataset, toy_run: Path) -> None:
    model, split = limner.load(toy_run, device="cpu"), toys.split("train")
    told: list[str] = []
    found = suspicious_captions(model, split, progress=lambda what, done, total: told.append(what))
    assert {one.caption for one in found} == {text for record in split.records for text in record.sentences}
    assert found == suspicious_captions(model, split)
    assert {"pictures", "captions"} == set(told)
    with pytest.raises(DataError, match="fewer than three"):
        suspicious_captions(model, replace(split, records=(replace(split.records[0], sentences=("a",)),)))

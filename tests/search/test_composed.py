"""Searches by a picture and a text of a model that has learnt to read both as one."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError
from limner.inference.composing import FILE, write_inversion
from limner.inference.load import load_model
from limner.requests import SearchRequest
from limner.search.store import Store
from limner.store.kept_model import inversion_for
from limner.store.verify import verify
from limner.wire import Answer
from tests.inference.test_composing import inversion

TEXT = "on white ground"


@pytest.fixture
def run(late_run: Path, tmp_path: Path) -> Path:
    """A run that has learnt composed queries."""
    folder = shutil.copytree(late_run, tmp_path / "run")
    loaded = load_model(folder, device="cpu")
    write_inversion(folder, inversion(loaded))
    return folder


@pytest.fixture
def pictures(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:12]]


@pytest.fixture
def store(run: Path, pictures: list[Path], tmp_path: Path) -> Store:
    limner.index(limner.load(run, device="cpu"), tmp_path / "store", pictures)
    return limner.open_store(tmp_path / "store", device="cpu")


def scores(answer: Answer) -> dict[str, float]:
    return {hit.id: hit.score for hit in answer}


def test_both_are_one_query_unless_a_weight_is_given(store: Store, pictures: list[Path]) -> None:
    composed = store.search(TEXT, image=pictures[0], k=12)
    assert composed.composed
    weighed = store.search(TEXT, image=pictures[0], text_weight=0.5, k=12)
    assert not weighed.composed
    assert not weighed.reference
    assert len(weighed) == 12
    changed = [abs(score - scores(weighed)[key]) for key, score in scores(composed).items()]
    assert max(changed) > 1e-3
    assert store.info().composes
    # a text or a picture alone is searched by as before
    for alone in (store.search(TEXT, k=3), store.search(image=pictures[0], k=3)):
        assert not alone.composed
        assert len(alone) == 3


def test_the_reference_is_never_among_the_hits_and_that_is_said(store: Store, pictures: list[Path]) -> None:
    key = next(hit.id for hit in store.search(TEXT, k=12) if hit.path == pictures[0])
    content = pictures[0].read_bytes()
    answers = {
        "file": store.search(TEXT, image=pictures[0], k=12),
        "name": store.search(TEXT, image=str(pictures[0]), k=12),
        "bytes": store.search(TEXT, image=content, k=12),
        "like": store.search(TEXT, like=key, k=12),
    }
    for answer in answers.values():
        assert answer.reference == (key,)
        assert key not in scores(answer)
        assert len(answer) == 11
        assert answer.matching == 11
        assert answer.composed
    # the picture's stored vector is that of its file
    for key_, score in scores(answers["like"]).items():
        assert scores(answers["file"])[key_] == pytest.approx(score, abs=2e-2)
    # pixels have no content to compare: the picture may be found
    with Image.open(io.BytesIO(content)) as image:
        assert not store.search(TEXT, image=image.copy(), k=12).reference


def test_queries_together_are_those_alone(store: Store, pictures: list[Path]) -> None:
    queries = [
        SearchRequest(text=TEXT, image=pictures[1], k=12),
        SearchRequest(text=TEXT, k=12),
        SearchRequest(text="a red bar", image=pictures[2], k=12),
        SearchRequest(text=TEXT, image=pictures[1], text_weight=0.2, k=12),
    ]
    together = store.engine.answers(queries)
    for query, found in zip(queries, together, strict=True):
        assert not isinstance(found, Exception)
        alone = scores(store.engine.answer(query))
        assert scores(found).keys() == alone.keys()
        np.testing.assert_allclose([scores(found)[key] for key in alone], list(alone.values()), atol=1e-5)


def test_the_store_keeps_what_the_run_had_learnt(
    store: Store, run: Path, tmp_path: Path, pictures: list[Path]
) -> None:
    kept = tmp_path / "store" / "model" / FILE
    assert kept.is_file()
    before = scores(store.search(TEXT, image=pictures[0], k=12))
    shutil.rmtree(run)
    with limner.open_store(tmp_path / "store", device="cpu") as opened:
        assert scores(opened.search(TEXT, image=pictures[0], k=12)) == pytest.approx(before)
    assert verify(store.files).sound
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="damaged"):
        limner.open_store(tmp_path / "store", device="cpu")
    assert not verify(store.files).sound


def test_a_run_that_has_learnt_since_goes_before_what_was_kept(
    late_run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    run = shutil.copytree(late_run, tmp_path / "run")
    loaded = limner.load(run, device="cpu")
    limner.index(loaded, tmp_path / "store", pictures)
    with limner.open_store(tmp_path / "store", device="cpu") as opened:
        assert not opened.info().composes
        assert len(opened.search(TEXT, image=pictures[0], k=12)) == 12
    write_inversion(run, inversion(loaded))
    with limner.open_store(tmp_path / "store", device="cpu") as opened:
        assert opened.info().composes
    # of other weights: as if it had none
    write_inversion(run, inversion(loaded, "e" * 64))
    with limner.open_store(tmp_path / "store", device="cpu") as opened:
        assert not opened.info().composes
        assert inversion_for(opened.files, loaded) is None

"""A store notes the arithmetic of its embeddings, and every command and server goes on in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import StoreError
from limner.inference.precision import Arithmetic
from limner.search.repair import repair
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from limner.store.manifest import texts_of

BOTH: tuple[Arithmetic, ...] = ("fp32", "bf16")


@pytest.fixture
def pictures(toys: Dataset) -> list[Path]:
    return [record.image for record in toys.records[:12]]


def rows(store: Path) -> dict[str, np.ndarray]:
    files = StoreFiles.open(store)
    snapshot = files.snapshot()
    return dict(zip(snapshot.columns.paths, snapshot.matrix, strict=True))


def made(run: Path, store: Path, pictures: list[Path], precision: Arithmetic) -> Path:
    limner.index(limner.load(run, device="cpu", precision=precision), store, pictures)
    return store


@pytest.mark.parametrize("native", [True, False])
def test_a_new_store_is_in_fp32_on_a_cpu(
    toy_run: Path, pictures: list[Path], tmp_path: Path, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": native})
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    limner.index(toy_run, tmp_path / "store", pictures)
    assert StoreFiles.open(tmp_path / "store").manifest.precision == "fp32"
    exact = limner.load(toy_run, device="cpu", precision="fp32").encode_images(pictures)
    for path, row in zip(pictures, exact, strict=True):
        np.testing.assert_array_equal(rows(tmp_path / "store")[str(path)], row)


@pytest.mark.parametrize("stored", BOTH)
@pytest.mark.parametrize("given", BOTH)
def test_what_is_added_later_is_in_the_store_s_arithmetic(
    toy_run: Path, pictures: list[Path], tmp_path: Path, stored: Arithmetic, given: Arithmetic
) -> None:
    whole = rows(made(toy_run, tmp_path / "whole", pictures, stored))
    store = made(toy_run, tmp_path / "store", pictures[:4], stored)
    made(toy_run, store, pictures, given)
    for path, row in rows(store).items():
        # 12 pictures and 4 and 8 are other batches, whose rows differ in the last bits of bf16
        np.testing.assert_allclose(row, whole[path], atol=1e-6 if stored == "fp32" else 2e-3)
    fp32, bf16 = (
        limner.load(toy_run, device="cpu", precision=one).encode_images(pictures[4:]) for one in BOTH
    )
    added = np.stack([rows(store)[str(path)] for path in pictures[4:]])
    nearer = np.abs(added - fp32).max() < np.abs(added - bf16).max()
    assert nearer == (stored == "fp32")
    # sentences, too
    table, text = SentenceTable(StoreFiles.open(store)), "a red square on white"
    model = limner.load(toy_run, device="cpu", precision=given)
    table.index(model, [Sentence(text, str(pictures[0]))])
    own = limner.load(toy_run, device="cpu", precision=stored).encode_texts([text])
    np.testing.assert_array_equal(table.describing()[1], own)


@pytest.mark.parametrize("stored", BOTH)
def test_a_search_by_a_picture_is_in_the_store_s_arithmetic(
    toy_run: Path, pictures: list[Path], tmp_path: Path, stored: Arithmetic
) -> None:
    store = made(toy_run, tmp_path / "store", pictures, stored)
    for run in (None, toy_run, limner.load(toy_run, device="cpu", precision=BOTH[stored == "fp32"])):
        with limner.open_store(store, run=run, device="cpu") as opened:
            assert opened.engine.encoder.precision == stored  # type: ignore[attr-defined]
            (hit,) = opened.search(image=pictures[3], k=1)
            assert hit.path == pictures[3]
            assert hit.score == pytest.approx(1, abs=1e-6 if stored == "fp32" else 1e-4)
            # of text a search is in fp32 everywhere: who else asks changes nothing
            exact = limner.load(toy_run, device="cpu").encode_texts(["a red square"])[0]
            scores = {hit.path: hit.score for hit in opened.search("a red square", k=12)}
            for path, row in rows(store).items():
                assert scores[Path(path)] == pytest.approx(float(row @ exact), abs=1e-6)


def test_a_damaged_row_is_encoded_again_in_the_store_s_arithmetic(
    toy_run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    store = made(toy_run, tmp_path / "store", pictures, "bf16")
    with limner.open_store(store, device="cpu") as opened:
        model = opened.engine.encoder
    assert model.precision == "bf16"  # type: ignore[attr-defined]
    report = repair(StoreFiles.open(store), lambda: model, accept_loss=False)
    assert not report.loses
    assert StoreFiles.open(store).manifest.precision == "bf16"


def test_a_store_that_is_replaced_by_one_of_another_arithmetic_is_told(
    toy_run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    store = made(toy_run, tmp_path / "store", pictures, "fp32")
    with limner.open_store(store, device="cpu") as opened:
        manifest = opened.files.manifest.model_copy(update={"precision": "bf16", "id": "another"})
        for name, text in texts_of(manifest).items():
            opened.files.rows.set_text(name, text)
        with pytest.raises(StoreError, match="open it again"):
            opened.search("a red square")


_SEARCH = """
import json, sys, torch, limner
with limner.open_store(sys.argv[1], device="cpu") as store:
    hits = store.search(image=sys.argv[2], k=12)
    told = torch.cpu.get_capabilities()
print(json.dumps([store.engine.encoder.precision, [[str(hit.path), hit.score] for hit in hits]]))
"""


def test_a_store_in_bf16_is_searched_by_a_processor_without(
    toy_run: Path, pictures: list[Path], tmp_path: Path
) -> None:
    """Emulated bf16, which torch takes where the instructions are hidden from it, finds the same pictures."""
    store = made(toy_run, tmp_path / "store", pictures, "bf16")
    found = []
    for hidden in ({}, {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}):
        done = subprocess.run(
            [sys.executable, "-c", _SEARCH, str(store), str(pictures[3])],
            env={**os.environ, **hidden},
            capture_output=True,
            text=True,
            check=True,
        )
        precision, hits = json.loads(done.stdout)
        assert precision == "bf16"
        found.append(dict(hits))
    assert found[0].keys() == found[1].keys()
    assert max(found[1], key=found[1].__getitem__) == str(pictures[3])
    for path, score in found[0].items():
        assert found[1][path] == pytest.approx(score, abs=5e-3)

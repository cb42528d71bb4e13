"""`limner index` with the model in the store, and what it passes over."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.command import Limner, refused
from tests.store.test_kept_model import replace_best


def test_a_store_outlives_its_run(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    run, store = shutil.copytree(toy_run, tmp_path / "run"), tmp_path / "store"
    assert limner("index", run, store, "--data", f"folder:{pictures}").code == 0
    facts = json.loads(limner("store", "info", store, "--json").out)
    kept = sum(path.stat().st_size for path in (store / "model").iterdir())
    assert (facts["run"], facts["kept_from"], facts["model_bytes"]) == (f"{store}/model", str(run), kept)
    assert f"holds the model, {kept / 1e6:.1f} MB" in limner("store", "info", store).out
    before = limner("search", store, "a red square", "--json").out
    replace_best(run)
    refused(limner("index", run, store, pictures), f"limner index {store}/model {store} …")
    refused(limner("calibrate", run, "--store", store), f"built with model .*{store}/model")
    assert limner("index", f"{store}/model", store, pictures).code == 0
    new = tmp_path / "new"
    assert limner("reindex", store, run, new).code == 0
    shutil.rmtree(run)
    assert limner("search", store, "a red square", "--json").out == before
    for command in (
        ("search", new, "a red square"),
        ("explain", store, "a red square", json.loads(before)["hits"][0]["id"]),
        ("evaluate", store / "model", "--data", f"folder:{pictures}"),
        ("index-sentences", store / "model", store, f"folder:{pictures}"),
        ("store", "verify", store),
    ):
        result = limner(*command)
        assert result.code == 0, result


def test_a_model_that_is_not_kept(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert limner("index", toy_run, store, pictures, "--no-model").code == 0
    facts = json.loads(limner("store", "info", store, "--json").out)
    assert (facts["run"], facts["kept_from"], facts["model_bytes"]) == (str(toy_run), None, 0)
    refused(
        limner("index", "hf:a/b", tmp_path / "other", pictures, "--no-model"),
        "--no-model: a model of the hub",
    )


def test_pictures_passed_over_are_counted(
    limner: Limner, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (40, 40), "red").save(folder / "a.jpg")
    for name in ("b.HEIC", "deep/c.heic", "d.txt", "e.txt", "f.txt", "g.nef", "README", ".hidden.mp4"):
        (folder / name).write_bytes(b"-")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    result = limner("index", toy_run, tmp_path / "store", folder)
    counts = "2 .heic, 1 .nef, 3 .txt, 1 without an ending"
    assert f"1 added, 0 updated, 0 unchanged, 0 skipped, 7 passed over ({counts})" in result.out
    assert "pictures that cannot be read here: 2 .heic, 1 .nef; HEIC needs more: pip install" in result.err
    report = json.loads(limner("index", toy_run, tmp_path / "store", folder, "--json").out)
    assert report["passed_over"] == {".heic": 2, ".nef": 1, ".txt": 3, "": 1}
    (folder / "a.jpg").unlink()
    refused(
        limner("index", toy_run, tmp_path / "store", folder),
        r"no pictures in .*2 \.heic, 1 \.nef; HEIC needs",
    )
    # and no store is made of none
    refused(limner("index", toy_run, tmp_path / "none", folder), "no pictures in")
    assert not (tmp_path / "none").exists()


def test_heic_is_indexed(limner: Limner, toy_run: Path, tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.new("RGB", (40, 40), "red").save(folder / "a.jpg")
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (40, 40), "blue")).save(file)
    (folder / "b.heic").write_bytes(file.getvalue())
    assert (
        "2 added, 0 updated, 0 unchanged, 0 skipped\n"
        in limner("index", toy_run, tmp_path / "store", folder).out
    )

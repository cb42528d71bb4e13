"""`limner site` says what it wrote, and one line where it cannot."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from limner.site import write
from limner.site.libraries import RUNTIME
from limner.site.write import SiteReport
from tests.cli.command import Limner
from tests.site.npm import drawn

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that stands for onnxruntime-web."""
    library, path = drawn(tmp_path, RUNTIME)
    monkeypatch.setattr(write, "RUNTIME", library)
    return path


def test_it_says_sizes_and_agreement(limner: Limner, store: Path, runtime: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    done = limner("site", store, out, "--runtime", runtime, "--no-facts", "--tower", "fp32")
    assert done.code == 0
    assert f"{out}: 36 pictures" in done.out
    assert "text tower in fp32" in done.out
    assert "drawn" not in done.out
    assert f"next: python -m http.server --bind 127.0.0.1 --directory {out}" in done.out
    asked = limner(
        "site", store, tmp_path / "more", "--runtime", runtime, "--tower", "int8", "--json", "--quiet"
    )
    assert (asked.code, asked.err) == (0, "")
    found = TypeAdapter(SiteReport).validate_json(asked.out)
    assert (found.pictures, found.left_out, found.tower, found.reranks) == (36, 0, "int8", False)


def test_mistakes_are_one_line(limner: Limner, store: Path, tmp_path: Path) -> None:
    assert (
        limner("site", store, tmp_path).err
        == f"limner: {tmp_path}: it exists; give a new folder for the site\n"
    )
    wrong = limner("site", store, tmp_path / "site", "--tower", "int4")
    assert (wrong.code, wrong.err) == (
        2,
        "limner: --tower: expected int8, int8-tables, fp16, fp32, got 'int4'\n",
    )
    (tmp_path / "onnxruntime-web-1.29.0.tgz").write_bytes(b"older")
    older = limner("site", store, tmp_path / "site", "--runtime", tmp_path / "onnxruntime-web-1.29.0.tgz")
    assert (older.code, older.err.count("\n")) == (2, 2)
    assert "not onnxruntime-web 1.30.0 as it was released" in older.err.splitlines()[-1]
    assert not (tmp_path / "site").exists()


def test_a_model_that_re_ranks_is_told(
    limner: Limner, reranking_run: Path, pictures: Path, runtime: Path, tmp_path: Path
) -> None:
    assert limner("index", reranking_run, tmp_path / "store", pictures, "--cpu").code == 0
    done = limner("site", tmp_path / "store", tmp_path / "site", "--runtime", runtime, "--tower", "int8")
    assert done.code == 0
    assert "the page ranks by the embedding alone; a server of this store re-ranks" in done.err

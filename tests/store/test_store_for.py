from pathlib import Path

import pytest

from limner.errors import StoreError
from limner.store.files import StoreFiles, store_for
from tests.search.fake import FakeEncoder


def test_a_store_is_made_once_and_for_one_model(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "store"
    made = store_for(FakeEncoder(), run, folder)
    assert (made.manifest.run, made.dim) == (str(run), FakeEncoder().dim)
    assert store_for(FakeEncoder(), tmp_path / "elsewhere", folder).manifest == made.manifest
    with pytest.raises(StoreError, match="built with model"):
        store_for(FakeEncoder("c" * 64), run, folder)
    assert StoreFiles.open(folder).manifest == made.manifest


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"not empty \(holds 'notes.txt'\)"):
        store_for(FakeEncoder(), tmp_path / "run", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

"""A store that was written once opens for ever: one small store a format, in tests/search/stores."""

import json
import shutil
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search.engine import Engine
from limner.store.manifest import FORMAT
from limner.search.sentences import SentenceTable
from limner.search.store import Store
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.types import Reranker
from tests.search.fake import FakeEncoder, draw

STORES = Path(__file__).parent / "stores"


def test_each_format_has_a_store() -> None:
    # formats before 4 were never released
    assert sorted(path.name for path in STORES.iterdir()) == [
        f"format-{version}" for version in range(4, FORMAT + 1)
    ]


@pytest.fixture(params=sorted(STORES.iterdir()), ids=lambda path: path.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    shutil.copytree(request.param, tmp_path / "store")
    encoder = FakeEncoder()
    encoder.reranker = Mock(spec=Reranker)
    encoder.reranker.region_features = lambda pixels: np.zeros((len(pixels), 1, 2, 2), np.float16)
    return Store(Engine(StoreFiles.open(tmp_path / "store"), encoder))


def test_it_is_read_whole(store: Store) -> None:
    assert [(item.name, item.identity, item.taken) for item in store] == [
        ("a-red-coat.png", "17", datetime(2026, 11, 20, 9)),
        ("blue.png", None, datetime(2026, 11, 20, 10)),
        ("red.png", None, None),
    ]
    answer = store.search("a red coat", where={"camera": [0, 1]})
    assert [hit.name for hit in answer] == ["a-red-coat.png", "red.png"]
    assert answer[0].score == pytest.approx(1)
    [sentence, _] = store.sentences("a red coat")
    assert (sentence.text, sentence.id) == ("a red coat", answer[0].id)
    files = store.files
    keys = [item.id for item in store]
    features = files.region_features(keys)
    assert features.astype(int).reshape(3, 4).tolist() == [[4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert files.thumbnails(keys) == [b"of a red coat", None, b"red"]
    assert verify(files).sound


def test_it_is_written_as_before(store: Store, tmp_path: Path) -> None:
    added = store.add(draw(tmp_path / "new.png", 1), metadata={"camera": 9})
    assert [hit.id for hit in store.search("a", where={"camera": 9})] == [added.id]
    store.delete(store.search("a red coat", k=1)[0].id)
    assert (len(store), len(SentenceTable(store.files))) == (3, 1)
    assert verify(store.files).sound


def test_an_older_and_a_newer_format_have_one_clear_line(store: Store) -> None:
    file = Path(str(store.files.folder)) / "store.json"
    values = json.loads(file.read_text())
    for version, said in ((3, "older than this limner's"), (FORMAT + 1, "newer than this limner's")):
        file.write_text(json.dumps({**values, "format": version}))
        with pytest.raises(StoreError, match=f"store format {version} is {said}") as refused:
            StoreFiles.open(file.parent)
        assert "\n" not in str(refused.value)

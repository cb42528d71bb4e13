"""A store on a real object storage: runs where LIMNER_TEST_S3 names an empty folder, s3://BUCKET/FOLDER."""

import os
from pathlib import Path

import pytest

from limner.errors import StoreError
from limner.search.engine import Engine
from limner.search.foreign_vectors import read_vectors
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.search.store_export import export_store
from limner.store.files import StoreFiles
from limner.store.verify import verify
from tests.search.fake import DIM, FakeEncoder, draw

URL = os.environ.get("LIMNER_TEST_S3")


@pytest.mark.skipif(URL is None, reason="LIMNER_TEST_S3 names no storage")
def test_a_store_on_an_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert URL is not None
    # LanceDB's client refuses to begin without certificates, for plain HTTP, too; `tests/conftest.py` takes them away
    monkeypatch.delenv("SSL_CERT_DIR")
    encoder = FakeEncoder()
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(7)]
    with pytest.raises(StoreError, match="no such store"):
        StoreFiles.open(URL)
    store = StoreFiles.create(URL, fingerprint=encoder.fingerprint, dim=DIM, run="run")
    with pytest.raises(StoreError, match="not empty"):
        StoreFiles.create(URL, fingerprint=encoder.fingerprint, dim=DIM, run="run")
    reader = StoreFiles.open(URL)
    assert len(reader) == 0
    assert index_pictures(encoder, store, pictures, batch_size=3).added == 7
    with store.writing(), pytest.raises(StoreError, match="is being written"):
        index_pictures(encoder, StoreFiles.open(URL), pictures)
    best = Store(Engine(reader, encoder)).search(image=pictures[4], k=1)[0]
    assert best.path == pictures[4]
    assert reader.delete([best.id]) == 1
    store.compact()
    report = verify(StoreFiles.open(URL))
    assert (report.pictures, report.sound, report.found) == (6, True, {})
    for to, name in (("parquet", "a.parquet"), ("lance", "a.lance")):
        assert export_store(URL, tmp_path / name, to).pictures == 6
        assert set(read_vectors(tmp_path / name).paths) == {
            str(path) for path in pictures if path != best.path
        }

from pathlib import Path

import numpy as np
import pytest

from limner.errors import ImageError, StoreError
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from tests.search.fake import DIM, FakeEncoder, draw


def test_text_and_picture_queries(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(5)]
    store = Store.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, store, [tmp_path / "pictures"])
    engine = Engine(store, encoder)
    for picture in pictures:
        best = engine.search_image(picture, 1)[0]
        assert best.path == picture
        assert best.score == pytest.approx(1, abs=1e-6)
    hits = engine.search("a red coat", 3)
    expected = encoder.encode_images(pictures) @ encoder.encode_texts(["a red coat"])[0]
    assert [hit.path for hit in hits] == [pictures[row] for row in np.argsort(-expected)[:3]]
    with pytest.raises(ImageError):
        engine.search_image(tmp_path / "missing.png")


def test_another_model_is_refused(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", fingerprint="b" * 64, dim=DIM, run="run")
    with pytest.raises(StoreError, match=r"b{12} .*a{12};"):
        Engine(store, FakeEncoder())

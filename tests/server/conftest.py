from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server.app import create_app
from tests.search.fake import DIM, FakeEncoder, draw
from tests.server.serving import COUNT, HOME


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Eight pictures, the even ones of camera 1 and of identity "even"."""
    encoder = FakeEncoder()
    pictures = [draw(tmp_path / HOME / f"{seed}.png", seed) for seed in range(COUNT)]
    store = Store.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    facts = {
        str(path): {
            "camera": 1 + seed % 2,
            "taken": f"2026-11-{10 + seed}T08:00:00",
            **({} if seed % 2 else {"identity": "even"}),
        }
        for seed, path in enumerate(pictures)
    }
    index_pictures(encoder, store, pictures, metadata=facts)
    return Engine(store, encoder)


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with TestClient(create_app(engine), raise_server_exceptions=False) as client:
        yield client

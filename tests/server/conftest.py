from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from limner.search.engine import Engine
from limner.server.app import create_app
from tests.server.serving import toy_engine


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return toy_engine(tmp_path)


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with TestClient(create_app(engine), raise_server_exceptions=False) as client:
        yield client

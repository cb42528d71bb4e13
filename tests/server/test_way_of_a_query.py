"""The way of one query in docs/code-map.md is the true one, and no longer than it has to be."""

from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.query_text import read_query
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.ways import followed, lines_of, listed

FILES, LINES = 29, 6_402
"""The most files and lines that a reader opens for it. They only fall: the plan is 18 and 4,000."""


def test_the_code_map_lists_every_file_of_the_way(engine: Engine) -> None:
    way = listed("from HTTP")
    token = "0123456789abcdef"
    client = TestClient(
        create_app(Store(engine), ServerSettings(token=SecretStr(token), probe_interval=3600))
    )
    headers = {"Authorization": f"Bearer {token}"}
    # the model's thread begins with the first query
    with followed() as called:
        client.get("/readyz")
        client.post("/v1/search", json={"text": "a blue coat"}, headers=headers)
        called.clear()
        # what another test has asked is not read again
        read_query.cache_clear()
        answer = client.post("/v1/search", json={"text": "a red coat"}, headers=headers)
    assert answer.json()["hits"]
    # where a token is looked up is a way of its own
    called -= {"limner/server/tokens.py"}
    assert called - way == set(), "the way goes through these, too; list them in docs/code_map.py"
    assert way - called == set(), "the way does not go through these"
    assert len(way) <= FILES
    assert lines_of(way) <= LINES

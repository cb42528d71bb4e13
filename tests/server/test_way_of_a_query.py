"""The way of one query in docs/code-map.md is the true one, and no longer than it has to be."""

import sys
import threading
from pathlib import Path
from types import FrameType

from fastapi.testclient import TestClient
from pydantic import SecretStr

import limner
from docs.code_map import WAYS
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings

PACKAGE = Path(limner.__file__).parent
FILES, LINES = 25, 5_320
"""The most files and lines that a reader opens for it. They only fall: the plan is 18 and 4,000."""


def test_the_code_map_lists_every_file_of_the_way(engine: Engine) -> None:
    [way] = [steps for title, steps in WAYS.items() if "from HTTP" in title]
    listed = {path for path, _, _ in way}
    called: set[str] = set()

    def follow(frame: FrameType, event: str, given: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents:
            called.add(file.relative_to(PACKAGE.parent).as_posix())

    token = "0123456789abcdef"
    client = TestClient(
        create_app(Store(engine), ServerSettings(token=SecretStr(token), probe_interval=3600))
    )
    headers = {"Authorization": f"Bearer {token}"}
    # the model's thread begins with the first query, and follows from then on
    threading.setprofile(follow)
    try:
        client.get("/readyz")
        client.post("/v1/search", json={"text": "a blue coat"}, headers=headers)
        called.clear()
        sys.setprofile(follow)
        answer = client.post("/v1/search", json={"text": "a red coat"}, headers=headers)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert answer.json()["hits"]
    # where a token is looked up is a way of its own
    called -= {"limner/server/tokens.py"}
    assert called - listed == set(), "the way goes through these, too; list them in docs/code_map.py"
    assert listed - called == set(), "the way does not go through these"
    assert len(listed) <= FILES
    assert sum(len((PACKAGE.parent / path).read_text().splitlines()) for path in listed) <= LINES

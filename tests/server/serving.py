"""What the tests of the server share."""

import base64
from pathlib import Path
from typing import Any

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from limner.store.uploads import MARK
from tests.search.fake import DIM, FakeEncoder, draw

COUNT = 8
HOME = "home of ann/pictures"
"""Folder of the pictures, which no answer may name."""


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def added_to(folder: Path) -> list[Path]:
    """The pictures in a folder of uploads, and what a change has left there; not the name of its store."""
    return sorted(path for path in folder.iterdir() if path.name != MARK)


def problem(response: Any, status: int) -> dict[str, Any]:
    """The body of a refusal, which is a problem with nothing of this machine in it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    assert body["detail"]
    assert "/home" not in response.text
    assert "/tmp" not in response.text
    assert "Traceback" not in response.text
    return body


def toy_engine(folder: Path) -> Engine:
    """A store of eight pictures, the even ones of camera 1 and of identity "even"."""
    encoder = FakeEncoder()
    pictures = [draw(folder / HOME / f"{seed}.png", seed) for seed in range(COUNT)]
    store = StoreFiles.create(folder / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
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

"""What the tests of the server share."""

import base64
from pathlib import Path
from typing import Any

COUNT = 8
HOME = "home of ann/pictures"
"""Folder of the pictures, which no answer may name."""


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


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

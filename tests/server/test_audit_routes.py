import json
import os
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.audit import asked_of
from limner.server.routes_search import SearchBody
from limner.server.settings import ServerSettings
from tests.server.serving import HOME, base64_of, problem


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="ascii")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_query_is_recorded(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file)))
    assert lines(file) == []
    assert file.stat().st_mode & 0o077 == 0
    body = {"text": "a “coat”\nand more", "k": 2, "where": ["camera=1|2"], "after": "2026-11-11"}
    found = [hit["id"] for hit in client.post("/v1/search", json=body).json()["hits"]]
    (line,) = lines(file)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "client": "testclient",
        "request": "search",
        "kind": "text",
        "text": "a “coat”\nand more",
        "text_weight": 0.5,
        "k": 2,
        "where": ["camera=1|2"],
        "after": "2026-11-11",
        "explain": False,
        "found": found,
    }
    # a file that was moved away is begun anew
    file.rename(tmp_path / "old.jsonl")
    client.post("/v1/search", json={"image": base64_of(tmp_path / HOME / "0.png")})
    client.post("/v1/search", json={"text": " "})
    client.post("/v1/search", json={"like": "0" * 32})
    assert [line["kind"] for line in lines(file)] == ["image", "text", "like"]
    none, empty, unknown = [line.get("refused") for line in lines(file)]
    assert (none, empty) == (None, "the query is empty")
    assert "holds no picture" in str(unknown)
    assert not any("image" in line for line in lines(file))
    assert len(lines(tmp_path / "old.jsonl")) == 1


def test_every_way_to_search_is_recorded(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    app = create_app(Store(engine), ServerSettings(audit=file))
    client = TestClient(app, raise_server_exceptions=False, client=("2001:db8::17", 1))
    key = client.get("/v1/items").json()["items"][0]["id"]
    assert lines(file) == []
    client.post("/v1/explain", json={"text": "a coat", "id": key})
    client.get("/v1/items", params={"where": "identity=even", "limit": 1})
    client.post("/v1/sentences", json={"like": key})
    client.post("/v1/search", json={"text": "a", "where": ["path~*"]})
    client.get("/v1/items", params={"where": "path~*"})
    client.post("/v1/search", json={"text": "a", "k": 1000})
    assert {line["client"] for line in lines(file)} == {"2001:db8::17"}
    assert [line["request"] for line in lines(file)] == [
        *("explain", "items", "sentences", "search", "items", "search"),
    ]
    assert [line.get("found") for line in lines(file)] == [[key], [key], [], None, None, None]
    assert ["at most 100" in line.get("refused", "") for line in lines(file)][-2:] == [False, True]
    assert lines(file)[0]["text"] == "a coat"


def test_a_bug_is_recorded(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "answers", bug)
    file = tmp_path / "audit.jsonl"
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file)), raise_server_exceptions=False)
    problem(client.post("/v1/search", json={"text": "a"}), 500)
    assert "ZeroDivisionError" in lines(file)[0]["refused"]


def test_half_a_line_is_taken_back(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file)))
    client.post("/v1/search", json={"text": "before"})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("os.write", lambda handle, line: write(handle, line[:10]))
        problem(client.post("/v1/search", json={"text": "lost"}), 503)
    client.post("/v1/search", json={"text": "after"})
    assert [line["text"] for line in lines(file)] == ["before", "after"]


def test_no_record_no_answer(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    file.parent.mkdir()
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file)))
    file.unlink()
    file.mkdir()
    problem(client.post("/v1/search", json={"text": "a"}), 503)


def test_a_record_that_cannot_be_written(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        create_app(Store(engine), ServerSettings(audit=tmp_path / "missing" / "audit.jsonl"))


def test_kinds() -> None:
    key = "0" * 32
    assert asked_of(SearchBody(text="a"))["kind"] == "text"
    assert asked_of(SearchBody(text="a", like=key))["kind"] == "text+like"
    assert asked_of(SearchBody(text="a", image="AAAA"))["kind"] == "text+image"

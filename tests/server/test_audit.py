import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.query import Query
from limner.server.app import create_app
from limner.server.audit import kind
from limner.server.settings import ServerSettings
from tests.server.serving import HOME, base64_of, problem


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="ascii")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_each_query_is_recorded(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    client = TestClient(create_app(engine, ServerSettings(audit=file)))
    assert lines(file) == []
    assert file.stat().st_mode & 0o077 == 0
    body = {"text": "a “coat”\nand more", "k": 2, "where": ["camera=1|2"], "after": "2026-11-11"}
    found = [hit["id"] for hit in client.post("/v1/search", json=body).json()["hits"]]
    (line,) = lines(file)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "client": "testclient",
        "kind": "text",
        "text": "a “coat”\nand more",
        "like": None,
        "k": 2,
        "where": ['camera="1"|"2"'],
        "after": "2026-11-11T00:00:00",
        "before": None,
        "group": None,
        "found": found,
    }
    # a file that was moved away is begun anew
    file.rename(tmp_path / "old.jsonl")
    client.post("/v1/search", json={"image": base64_of(tmp_path / HOME / "0.png")})
    client.post("/v1/search", json={"text": " "})
    client.post("/v1/search", json={"like": "0" * 32})
    assert [line["kind"] for line in lines(file)] == ["image", "text", "like"]
    assert [line.get("refused") for line in lines(file)] == [
        None,
        "the query is empty",
        "the store holds no picture of this id",
    ]
    assert len(lines(tmp_path / "old.jsonl")) == 1


def test_no_record_no_answer(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    file.parent.mkdir()
    client = TestClient(create_app(engine, ServerSettings(audit=file)))
    file.unlink()
    file.mkdir()
    problem(client.post("/v1/search", json={"text": "a"}), 503)


def test_a_record_that_cannot_be_written(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        create_app(engine, ServerSettings(audit=tmp_path / "missing" / "audit.jsonl"))


def test_kinds() -> None:
    assert kind(Query(text="a")) == "text"
    assert kind(Query(text="a", like="b")) == "text+like"
    assert kind(Query(text="a", image=b"")) == "text+image"

"""Ids, traces and lines of requests, of a real server; and that no line has a query, whatever is planted."""

import errno
import io
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import log_lines, request_log
from limner.server.app import create_app
from limner.server.audit import AuditLog
from limner.server.log_lines import LogFormat, LogLevel, log_to
from limner.server.request_log import Trace, current_trace
from limner.server.settings import ServerSettings
from tests.server.running import running

SECRET = "zebra"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
NAMES = (None, "limner", "uvicorn", "uvicorn.error", "uvicorn.access", "limner.requests")


@contextmanager
def logged(lines: LogFormat = "json", level: LogLevel = "info") -> Iterator[io.StringIO]:
    """The log of this process in a stream; the loggers are as before when it ends.

    Around the server, since the line of a request is written when its answer has left; within it, after uvicorn has set
    up its own loggers, where their lines count.
    """
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(one, one.handlers, one.level, one.propagate) for one in loggers]
    stream = io.StringIO()
    log_to(stream, lines=lines, level=level)
    try:
        yield stream
    finally:
        for one, handlers, least, propagate in before:
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(least)
        logging.captureWarnings(False)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, stream.getvalue().splitlines()) if "request_id" in line]


def test_a_line_a_request(engine: Engine) -> None:
    with logged() as stream, running(create_app(Store(engine))) as url:
        key = httpx.get(f"{url}/v1/items").json()["items"][0]["id"]
        answer = httpx.get(f"{url}/v1/items/{key}")
        httpx.get(f"{url}/livez")
    lines = read(stream)
    # a probe's line is one of debug
    assert [line["route"] for line in lines] == ["/v1/items", "/v1/items/{id}"]
    line = lines[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
    assert (line["level"], line["method"], line["status"]) == ("INFO", "GET", 200)
    assert line["ms"] >= 0
    assert line["request_id"] == answer.headers["x-request-id"]
    assert "trace_id" not in line
    assert key not in stream.getvalue()


@pytest.mark.parametrize("given", ["abc-1_2.3", "A" * 64])
def test_an_id_that_comes_is_taken_over(engine: Engine, given: str) -> None:
    with logged() as stream, running(create_app(Store(engine))) as url:
        for path, status in (("/v1/info", 200), ("/nothing", 404)):
            answer = httpx.get(f"{url}{path}", headers={"X-Request-ID": given})
            assert (answer.status_code, answer.headers["x-request-id"]) == (status, given)
    assert [line["request_id"] for line in read(stream)] == [given, given]


@pytest.mark.parametrize("given", ["", "A" * 65, "a b", 'a"b', "a\tb", "ä", "{}"])
def test_an_id_that_is_none_is_not(engine: Engine, given: str) -> None:
    with logged() as stream, running(create_app(Store(engine))) as url:
        answer = httpx.get(f"{url}/v1/info", headers=[(b"X-Request-ID", given.encode())])
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert read(stream)[0]["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("given", [PARENT, f"cc-{TRACE}-{CALLER}-01-what-a-later-version-has"])
def test_a_trace_goes_on(engine: Engine, given: str) -> None:
    with logged() as stream, running(create_app(Store(engine))) as url:
        answer = httpx.get(f"{url}/v1/info", headers={"traceparent": given})
    (line,) = read(stream)
    assert (line["trace_id"], line["parent_id"]) == (TRACE, CALLER)
    assert line["span_id"] != CALLER
    assert answer.headers["traceparent"] == f"00-{TRACE}-{line['span_id']}-01"


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"{PARENT}-more",
        f"{PARENT}{'-x' * 500}",
        f"cc-{TRACE}-{CALLER}-01{'-x' * 500}",
        f"00-{TRACE}-{CALLER}-0",
    ],
)
def test_a_trace_that_is_none_is_not_taken_over(given: str) -> None:
    found = Trace.of({"headers": [(b"traceparent", given.encode())]})
    assert (found.trace, found.span, found.parent) == (None, None, None)
    assert current_trace() is None


@pytest.mark.parametrize("lines", ["json", "text"])
def test_no_line_has_a_query(engine: Engine, monkeypatch: pytest.MonkeyPatch, lines: LogFormat) -> None:
    def buggy(self: Engine, text: str, *args: Any) -> Any:
        # a bug whose message has the query, as that of a KeyError would
        raise KeyError(f"{text} of {SECRET}")

    monkeypatch.setattr(Engine, "explain", buggy)
    settings = ServerSettings(max_answer=2048)
    with running(create_app(Store(engine), settings)) as url, logged(lines, "debug") as stream:
        key = httpx.get(f"{url}/v1/items").json()["items"][0]["id"]
        for text in (SECRET, f"{SECRET} " * 200):
            httpx.post(f"{url}/v1/search", json={"text": text, "where": [f"camera={SECRET}"]}, timeout=30)
        httpx.post(f"{url}/v1/search", json={SECRET: SECRET})
        httpx.get(f"{url}/v1/items", params={"where": f"camera={SECRET}"})
        httpx.get(f"{url}/{SECRET}/{SECRET}?{SECRET}", headers={"Authorization": f"Bearer {SECRET}"})
        httpx.request(
            SECRET.upper(), f"{url}/v1/info", headers={"User-Agent": SECRET, "X-Request-ID": f"{SECRET}!"}
        )
        assert httpx.post(f"{url}/v1/explain", json={"text": SECRET, "id": key}).status_code == 500
        # lines are written when the answers have left, that of uvicorn last
        until = time.monotonic() + 10
        while "KeyError" not in stream.getvalue() and time.monotonic() < until:
            time.sleep(0.02)
    text = stream.getvalue()
    assert "KeyError" in text
    assert "in buggy" in text or " buggy" in text
    assert SECRET not in text.lower().replace("buggy", "")
    assert key not in text
    assert "127.0.0.1" not in text


def test_a_line_of_text_is_one_line() -> None:
    with logged("text", "warning") as stream:
        logging.getLogger("limner.server").warning("not ready: %s", "a\nb")
        logging.getLogger("limner.requests").info("not asked for")
    (line,) = stream.getvalue().splitlines()
    assert re.fullmatch(r"\S+ WARNING limner\.server not ready: a\\nb", line)


def test_a_fault_of_every_request_is_not_a_line_of_every_request(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a full disk of the audit log would fill that of the log, too."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    settings = ServerSettings(probe_interval=60, audit=tmp_path / "audit.jsonl", rate=0)
    question = {"text": "a square", "k": 1}
    with logged(level="warning") as stream, running(create_app(Store(engine), settings)) as url:
        monkeypatch.setattr(AuditLog, "append", full)
        with httpx.Client(base_url=url) as client:
            assert {client.post("/v1/search", json=question).status_code for _ in range(30)} == {503}
            assert client.get("/v1/items").status_code == 503
            monkeypatch.setattr(log_lines, "_QUIET_SECONDS", 0.0)
            assert client.get("/v1/items").status_code == 503
    first, second = [line for line in read(stream) if "audit.jsonl" in line["message"]]
    assert (first["level"], first["message"]) == (second["level"], second["message"])
    assert "No space left" in first["message"]
    assert "left_out" not in first
    assert second["left_out"] == 30


def test_what_no_request_causes_is_told_each_time() -> None:
    with logged("text", "warning") as stream:
        for _ in range(2):
            logging.getLogger("limner.server").warning("SIGHUP: settings have been read anew")
        token = request_log._TRACE.set(Trace("r"))
        try:
            for number in range(3):
                logging.getLogger("limner.server").error("the disk is full")
                logging.getLogger("limner.server").error("place %d", number)
                logging.getLogger("limner.server").info("a line of debugging")
        finally:
            request_log._TRACE.reset(token)
    lines = stream.getvalue().splitlines()
    assert sum("SIGHUP" in line for line in lines) == 2
    assert sum("disk is full" in line for line in lines) == 1
    assert sum("place" in line for line in lines) == 3


def test_few_different_lines_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "_KNOWN", 3)
    repeats = log_lines.Repeats()
    token = request_log._TRACE.set(Trace("r"))
    try:
        for number in range(10):
            assert repeats.filter(logging.LogRecord("x", logging.ERROR, "", 0, f"{number}", (), None))
        assert len(repeats._written) == 3
        assert not repeats.filter(logging.LogRecord("x", logging.ERROR, "", 0, "9", (), None))
    finally:
        request_log._TRACE.reset(token)


def test_lines_of_one_request_have_its_id(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(probe_interval=60)
    with logged() as stream, running(create_app(Store(engine), settings)) as url:
        (tmp_path / "store").rename(tmp_path / "away")
        answer = httpx.post(f"{url}/v1/search", json={"text": SECRET})
    assert answer.status_code == 503
    found = [line for line in read(stream) if line.get("request_id") == answer.headers["x-request-id"]]
    assert [line["logger"] for line in found] == ["limner.server", "limner.requests"]
    assert "is its disk mounted?" in found[0]["message"]

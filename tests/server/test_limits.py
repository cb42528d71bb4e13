import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.serving import problem

LARGEST = 2048


@pytest.fixture
def small(engine: Engine) -> TestClient:
    return TestClient(create_app(Store(engine), ServerSettings(max_body=LARGEST)))


def body_of(size: int) -> bytes:
    return b'{"text": "a' + b" " * (size - 13) + b'"}'


def test_the_largest_body_is_read(small: TestClient) -> None:
    # a longer text than is allowed, but read
    problem(
        small.post("/v1/search", content=body_of(LARGEST), headers={"Content-Type": "application/json"}), 422
    )


def test_larger_ones_are_refused_by_their_length(small: TestClient) -> None:
    response = small.post("/v1/search", content=body_of(LARGEST + 1))
    assert "2,048 bytes" in problem(response, 413)["detail"]
    assert response.headers["connection"] == "close"


def test_and_by_counting(small: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * 1000

    problem(small.post("/v1/search", content=pieces()), 413)


@pytest.mark.parametrize("length", ["-1", "ten", "9" * 30])
def test_lengths_that_are_none(small: TestClient, length: str) -> None:
    problem(small.post("/v1/search", content=b"{}", headers={"Content-Length": length}), 413)


def test_a_client_that_leaves_in_the_middle(engine: Engine) -> None:
    with running(create_app(Store(engine))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        until = time.monotonic() + 20
        while 'status="499"} 1.0' not in httpx.get(f"{url}/metrics").text:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_bodies_without_a_picture_are_small(client: TestClient) -> None:
    content = body_of(65 * 1024)
    assert "65,536 bytes" in problem(client.post("/v1/explain", content=content), 413)["detail"]
    # a body that nobody would read is not what such a request is refused for
    problem(client.delete("/v1/items/" + "0" * 32, headers={"Content-Length": "70000"}), 403)

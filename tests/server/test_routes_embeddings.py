"""Embeddings for other programs, asked as their clients ask."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import limner
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.data.test_images import png_header
from tests.server.running import running
from tests.server.serving import problem, toy_engine
from tests.server.test_audit_routes import lines

CLIP = {"clip": {"textual": {"modelName": "ViT-B-32__openai", "options": {}}}}
"""What immich's server writes into `entries` for a search; for a picture it is `visual`."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return toy_engine(tmp_path_factory.mktemp("embeddings"))


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[httpx.Client]:
    with running(create_app(Store(engine))) as url, httpx.Client(base_url=url) as client:
        yield client


@pytest.fixture(scope="module")
def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "PNG")
    return file.getvalue()


def of_picture(engine: Engine, content: bytes) -> np.ndarray:
    row: np.ndarray = engine.encoder.encode_pixels(engine.encoder.prepare_image(content)[None])[0]
    return row


@pytest.mark.parametrize("given", ["a red coat", ["a red coat", "two men"], [{"text": "a red coat"}]])
def test_texts_as_openai_clients_send_them(engine: Engine, client: httpx.Client, given: Any) -> None:
    body = {"model": "text-embedding-3-small", "input": given, "user": "me", "encoding_format": "base64"}
    found = client.post("/v1/embeddings", json=body, headers={"Authorization": "Bearer any"}).json()
    texts = (
        [given] if isinstance(given, str) else [one if isinstance(one, str) else one["text"] for one in given]
    )
    assert (found["object"], found["usage"]) == ("list", {"prompt_tokens": 0, "total_tokens": 0})
    assert [one["index"] for one in found["data"]] == list(range(len(texts)))
    rows = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in found["data"]]
    np.testing.assert_array_equal(np.stack(rows), engine.encoder.encode_queries(texts))


def test_pictures_and_texts_in_one_request(engine: Engine, client: httpx.Client, picture: bytes) -> None:
    plain = base64.b64encode(picture).decode()
    given = [{"image": plain}, "two men", {"image": f"data:image/png;base64,{plain}"}]
    found = client.post("/v1/embeddings", json={"input": given, "dimensions": engine.encoder.dim}).json()
    rows = np.array([one["embedding"] for one in found["data"]], np.float32)
    np.testing.assert_array_equal(rows[0], of_picture(engine, picture))
    np.testing.assert_array_equal(rows[1], engine.encoder.encode_queries(["two men"])[0])
    np.testing.assert_array_equal(rows[2], rows[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [[1, 2, 3]]}, "input"),
        ({"input": [{"image": "https://example.org/a.jpg"}]}, "base64"),
        ({"input": [{"text": "a", "image": "AAAA"}]}, "a text or an image"),
        ({"input": ["a"] * 65}, "64"),
        ({"input": "a", "dimensions": 3}, "dimensions: the model has"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
    ],
)
def test_what_is_no_request_is_refused(client: httpx.Client, body: object, said: str) -> None:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == (409 if said.startswith("dim") else 422)
    assert said in answer.text


def test_what_immich_asks(engine: Engine, client: httpx.Client, picture: bytes) -> None:
    assert client.get("/ping").text == "pong"
    text = client.post("/predict", files={"entries": (None, json.dumps(CLIP)), "text": (None, "a red coat")})
    np.testing.assert_allclose(
        json.loads(text.json()["clip"]), engine.encoder.encode_queries(["a red coat"])[0]
    )
    visual = {"clip": {"visual": {"modelName": "ViT-B-32__openai"}}}
    image = client.post("/predict", data={"entries": json.dumps(visual)}, files={"image": ("blob", picture)})
    np.testing.assert_allclose(json.loads(image.json()["clip"]), of_picture(engine, picture))


@pytest.mark.parametrize(
    ("entries", "given", "said"),
    [
        (json.dumps({"facial-recognition": {}}), {"text": "a"}, "'clip' alone"),
        (json.dumps([1]), {"text": "a"}, "'clip' alone"),
        ("[" * 3000, {"text": "a"}, "expected JSON"),
        (json.dumps(CLIP), {}, "a text or an image"),
    ],
)
def test_other_tasks_are_refused(
    client: httpx.Client, entries: str, given: dict[str, str], said: str
) -> None:
    answer = client.post("/predict", data={"entries": entries, **given})
    assert (answer.status_code, said in answer.text) == (422, True)


def test_a_mistake_is_told_once(client: httpx.Client) -> None:
    told = problem(client.post("/v1/embeddings", json={"input": [3] * 30}), 422)
    said = (
        "Input should be a valid string",
        "Input should be a valid dictionary or object to extract fields from",
    )
    assert told["errors"] == [{"loc": ["body", "input"], "msg": one} for one in said]
    assert told["detail"] == f"input: {said[0]}; input: {said[1]}"


def test_what_is_embedded_is_no_picture_of_the_store(engine: Engine, picture: bytes, tmp_path: Path) -> None:
    """The audit log names neither, and counts what was sent by itself; its fields are in the docs."""
    file = tmp_path / "audit.jsonl"
    with (
        running(create_app(Store(engine), ServerSettings(audit=file))) as url,
        httpx.Client(base_url=url) as client,
    ):
        inputs = ["a", "b", {"image": base64.b64encode(picture).decode()}]
        client.post("/v1/embeddings", json={"input": inputs}).raise_for_status()
        files = {"entries": (None, json.dumps(CLIP)), "text": (None, "a red coat")}
        client.post("/predict", files=files).raise_for_status()
    told = [
        (line["request"], line["kind"], line["inputs"], line["found"], line["count"]) for line in lines(file)
    ]
    assert told == [("embeddings", "text+image", 3, [], 0), ("predict", "text", 1, [], 0)]
    page = (Path(limner.__file__).parents[1] / "docs" / "server.md").read_text(encoding="utf-8")
    fields = {name for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE) for name in row.split(", ")}
    assert {f"`{name}`" for line in lines(file) for name in line} <= fields


def test_a_file_that_is_no_picture(client: httpx.Client) -> None:
    answer = client.post(
        "/predict", data={"entries": json.dumps(CLIP)}, files={"image": ("blob", b"%PDF-1.7")}
    )
    assert answer.status_code in (400, 409, 422)
    assert "not a picture" in answer.text


def test_a_picture_that_is_too_large_is_refused_by_its_header(engine: Engine, picture: bytes) -> None:
    with (
        running(create_app(Store(engine), ServerSettings(max_pixels=10))) as url,
        httpx.Client(base_url=url) as client,
    ):
        answer = client.post("/predict", data={"entries": json.dumps(CLIP)}, files={"image": ("a", picture)})
        assert answer.status_code == 413
        body = {"input": [{"image": base64.b64encode(picture).decode()}]}
        assert client.post("/v1/embeddings", json=body).status_code == 413
        # of so many Pillow itself speaks, of bombs
        body = {"input": [{"image": base64.b64encode(png_header(30_000, 30_000)).decode()}]}
        said = problem(client.post("/v1/embeddings", json=body), 413)["detail"]
        assert said == "more than 10 pixels; scale it down first"

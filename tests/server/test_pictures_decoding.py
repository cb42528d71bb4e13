import asyncio
import base64
import io
import threading
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import pictures
from limner.server.app import create_app
from limner.server.pictures import Decoding, check_pixels, with_pixels
from limner.server.problems import RefusedError
from limner.server.settings import ServerSettings
from tests.search.fake import draw
from tests.server.serving import HOME, base64_of, problem


def picture(mode: str, size: tuple[int, int], form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, form)
    return file.getvalue()


def test_large_pictures_are_refused_by_their_header(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(max_pixels=400, changes=True, uploads=tmp_path / "uploads")
    client = TestClient(create_app(Store(engine), settings))
    for mode, size, form, status in (
        ("RGB", (20, 20), "PNG", 200),
        ("RGBA", (21, 20), "PNG", 413),
        ("I", (10, 10), "TIFF", 200),
        ("F", (11, 10), "TIFF", 413),
        ("I;16", (11, 10), "PNG", 413),
    ):
        image = base64.b64encode(picture(mode, size, form)).decode()
        response = client.post("/v1/search", json={"image": image})
        assert response.status_code == status, response.text
        if status == 413:
            assert "are more than 400" in problem(response, 413)["detail"]
            problem(client.post("/v1/items", json={"name": "a", "image": image}), 413)


def test_what_is_no_picture_passes_to_who_says_so() -> None:
    check_pixels(b"no picture", 1)
    with pytest.raises(RefusedError):
        check_pixels(picture("RGB", (2, 1)), 1)


def test_a_picture_is_decoded_once_and_not_where_the_model_works(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = draw(tmp_path / "a.png", 99).read_bytes()
    expected = engine.answer(SearchRequest(image=content, k=3))
    query = with_pixels(engine, SearchRequest(image=content, k=3), 100)

    def refused(*given: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(type(engine.encoder), "prepare_image", refused)
    assert [hit.id for hit in engine.answer(query).hits] == [hit.id for hit in expected.hits]


def test_only_so_many_wait() -> None:
    async def full() -> None:
        decoding, go = Decoding(most=2), threading.Event()
        asked = [asyncio.ensure_future(decoding.run(go.wait, 30)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="too many pictures") as refusal:
            await decoding.run(int)
        assert refusal.value.status == 503
        go.set()
        assert await asyncio.gather(*asked) == [True, True]
        assert await decoding.run(int, "3") == 3

    asyncio.run(full())


def test_pictures_that_are_decoded_hold_up_nothing_else(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(pictures, "encoded_anew", lambda *given: (bytes(go.wait(30)), "image/jpeg"))
    with TestClient(create_app(Store(engine), ServerSettings(rate=0))) as client:
        key = client.get("/v1/items").json()["items"][0]["id"]
        asking = [threading.Thread(target=client.get, args=(f"/v1/images/{key}",)) for _ in range(60)]
        for one in asking:
            one.start()
        for path in ("/", "/v1/info", "/v1/items", f"/v1/thumbnails/{key}"):
            assert client.get(path).status_code == 200
        assert client.post("/v1/search", json={"image": base64_of(tmp_path / HOME / "0.png")}).is_success
        assert any(one.is_alive() for one in asking)
        go.set()
        for one in asking:
            one.join()

import base64
import errno
import io
import os
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from limner.client import Client
from limner.data.images import decode, encoded_anew, open_rgb
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.pictures import check_pixels
from limner.server.problems import RefusedError
from limner.server.settings import ServerSettings
from tests.search.fake import draw, vectors_of
from tests.server.running import running
from tests.server.serving import HOME, problem


def key_of(client: TestClient, name: str) -> str:
    items = client.get("/v1/items").json()["items"]
    return str(next(item["id"] for item in items if item["name"] == name))


def add(engine: Engine, path: Path, form: str) -> bytes:
    """Index a picture of a form under a name that says another."""
    pixels = np.random.default_rng(5).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, form)
    index_pictures(engine.encoder, engine.files, [path])
    return path.read_bytes()


def test_a_picture_comes_encoded_anew(client: TestClient, tmp_path: Path) -> None:
    response = client.get(f"/v1/images/{key_of(client, '2.png')}")
    assert response.content == encoded_anew((tmp_path / HOME / "2.png").read_bytes())[0]
    assert response.headers["content-type"] == "image/png"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in response.headers["content-security-policy"]
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("form", ["JPEG", "GIF", "WEBP", "BMP"])
def test_the_type_is_that_of_the_bytes(engine: Engine, tmp_path: Path, form: str) -> None:
    content = add(engine, tmp_path / "wrong.png", form)
    client = TestClient(create_app(Store(engine), ServerSettings(keep_metadata=True)))
    response = client.get(f"/v1/images/{key_of(client, 'wrong.png')}")
    assert response.headers["content-type"] == f"image/{form.lower()}"
    assert response.content == content


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_pictures_leave_without_their_place(engine: Engine, tmp_path: Path, form: str) -> None:
    secret = b"52.5200N 13.4050E"
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, secret.decode()
    exif.get_ifd(0x8825)[1] = "N"
    path = tmp_path / f"phone.{form.lower()}"
    pixels = np.random.default_rng(5).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, form, exif=exif, xmp=b"<x:xmpmeta>" + secret)
    with path.open("ab") as end:
        # behind the end of the picture; a WebP says its length in its header, an AVIF in its boxes
        end.write(b"" if form == "AVIF" else secret)
    content = path.read_bytes()
    assert secret in content
    index_pictures(engine.encoder, engine.files, [path])
    with running(create_app(Store(engine))) as url, Client(url) as client:
        key = next(item.id for item in client.items(limit=100) if item.name == path.name)
        sent, small = client.image(key), client.thumbnail(key)
    assert secret not in sent + small
    assert b"xmpmeta" not in sent
    # upright, and of the file the pixels alone
    assert sent == encoded_anew(content)[0]
    assert decode(sent).shape == (30, 20, 3)
    with Image.open(io.BytesIO(sent)) as image:
        assert not image.getexif()
    with running(create_app(Store(engine), ServerSettings(keep_metadata=True))) as url, Client(url) as client:
        assert client.image(key) == content


@pytest.mark.parametrize("form", ["TIFF", "PPM"])
def test_what_browsers_do_not_show_comes_as_jpeg(engine: Engine, tmp_path: Path, form: str) -> None:
    add(engine, tmp_path / "wrong.html", form)
    client = TestClient(create_app(Store(engine)))
    response = client.get(f"/v1/images/{key_of(client, 'wrong.html')}")
    assert response.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(response.content)) as image:
        assert (image.format, image.size) == ("JPEG", (30, 20))


@pytest.mark.parametrize("form", ["TIFF", "PPM", "JPEG2000", "GIF", "BMP"])
@pytest.mark.parametrize("size", [(65500, 2), (65501, 2), (2, 65536), (70000, 1)])
def test_a_side_that_no_jpeg_can_have(
    engine: Engine, tmp_path: Path, form: str, size: tuple[int, int]
) -> None:
    """Such a picture comes whole, as a PNG; a GIF has at most 65,535 pixels a side."""
    if form == "GIF":
        size = min(size[0], 65535), min(size[1], 65535)
    path = tmp_path / f"long.{form.lower()}"
    Image.new("RGB", size, (9, 99, 9)).save(path, form)
    index_pictures(engine.encoder, engine.files, [path])
    client = TestClient(create_app(Store(engine)))
    response = client.get(f"/v1/images/{key_of(client, path.name)}")
    assert response.status_code == 200, response.text
    lossless = form in ("GIF", "BMP") or max(size) > 65500
    assert response.headers["content-type"] == ("image/png" if lossless else "image/jpeg")
    assert decode(response.content).shape == (*size[::-1], 3)
    assert decode(Store(engine).image(key_of(client, path.name))).shape == (*size[::-1], 3)
    assert client.get(f"/v1/thumbnails/{key_of(client, path.name)}").status_code == 200


def test_heic_comes_as_jpeg(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    monkeypatch.setattr(
        engine.encoder, "prepare_image", lambda source: np.array(open_rgb(source).resize((8, 8)))
    )
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (30, 20), (9, 99, 9))).save(file)
    (tmp_path / "one.heic").write_bytes(file.getvalue())
    index_pictures(engine.encoder, engine.files, [tmp_path / "one.heic"])
    settings = ServerSettings(changes=True, uploads=tmp_path / "uploads")
    client = TestClient(create_app(Store(engine), settings))
    added = client.post(
        "/v1/items", json={"name": "two.jpg", "image": base64.b64encode(file.getvalue()).decode()}
    )
    assert added.status_code == 201, added.text
    (stored,) = (tmp_path / "uploads").glob("*.heic")
    assert stored.read_bytes() == file.getvalue()
    for name in ("one.heic", "two.jpg"):
        for route in ("images", "thumbnails"):
            response = client.get(f"/v1/{route}/{key_of(client, name)}")
            assert response.headers["content-type"] == "image/jpeg"
            with Image.open(io.BytesIO(response.content)) as image:
                assert (image.format, image.size) == ("JPEG", (30, 20))
    large = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 64))).save(large)
    with pytest.raises(RefusedError, match="more than 1,000 pixels"):
        check_pixels(large.getvalue(), 1000)


def test_thumbnails(client: TestClient) -> None:
    response = client.get(f"/v1/thumbnails/{key_of(client, '2.png')}")
    assert response.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(response.content)) as image:
        assert image.size == (8, 8)


def test_a_changed_file_does_not_leave(client: TestClient, tmp_path: Path) -> None:
    for number, change in enumerate(("gone", "longer", "touched", "folder", "pipe", "link to a secret")):
        path = tmp_path / HOME / f"{number}.png"
        key, before = key_of(client, path.name), path.stat()
        content = path.read_bytes()
        if change == "longer":
            path.write_bytes(content + b"x")
            os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
        elif change == "touched":
            os.utime(path, ns=(0, 0))
        else:
            path.unlink()
        if change == "folder":
            path.mkdir()
        if change == "pipe":
            os.mkfifo(path)
        if change.startswith("link"):
            path.symlink_to("/etc/passwd")
        problem(client.get(f"/v1/images/{key}"), 410)
        # the store's own copy
        assert client.get(f"/v1/thumbnails/{key}").status_code == 200


def test_a_picture_without_a_thumbnail(engine: Engine, tmp_path: Path) -> None:
    path = draw(tmp_path / HOME / "0.png", 0)
    entry = next(one for one in engine.files.entries().values() if one.path == str(path))
    engine.files.add([entry], vectors_of(engine.files, [entry.id]))
    client = TestClient(create_app(Store(engine)))
    os.utime(path, ns=(entry.mtime, entry.mtime))
    assert client.get(f"/v1/thumbnails/{entry.id}").content.startswith(b"\xff\xd8\xff")
    path.unlink()
    problem(client.get(f"/v1/thumbnails/{entry.id}"), 410)


def test_a_process_that_has_too_many_files_open(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of(client, "0.png")

    def full(*given: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        problem(client.get(f"/v1/images/{key}"), 503)


def test_a_picture_that_can_no_longer_be_decoded(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "whole.ppm"
    content = add(engine, path, "PPM")
    entry = next(one for one in engine.files.entries().values() if one.path == str(path))
    path.write_bytes(b"x" * len(content))
    os.utime(path, ns=(entry.mtime, entry.mtime))
    problem(TestClient(create_app(Store(engine))).get(f"/v1/images/{entry.id}"), 409)

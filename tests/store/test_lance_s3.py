"""A store on an object storage: moto's S3 server on this machine, or the empty folder that LIMNER_TEST_S3 names.

`moto_server` is looked for on the PATH: it needs an environment of its own (`pip install 'moto[server]'`), since its
botocore is not that of s3fs.
"""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.torture.commands import called
from limner.errors import StoreError
from limner.store import lock
from limner.store.entry import StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.lance_head import put_head, read_head
from limner.store.lance_rows import LanceReading
from limner.store.path import StorePath
from limner.store.rows import Picture
from tests.search.fake import draw

for library in ("lancedb", "s3fs", "upath"):
    pytest.importorskip(library)

DIM = 4
THUMBNAIL = np.random.default_rng(0).bytes(64)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        # LanceDB's client refuses to begin without certificates, for plain HTTP, too; `tests/conftest.py` takes them
        patch.delenv("SSL_CERT_DIR", raising=False)
        if given := os.environ.get("LIMNER_TEST_S3"):
            yield given
            return
        moto = shutil.which("moto_server")
        if moto is None:
            pytest.skip("neither LIMNER_TEST_S3 nor moto_server: pip install 'moto[server]' elsewhere")
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", url := f"http://127.0.0.1:{port}")
        with (tmp_path_factory.mktemp("moto") / "log").open("wb") as log:
            server = subprocess.Popen([moto, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
        try:
            _wait_for(url, server)
            assert httpx.put(f"{url}/limner", trust_env=False).is_success
            yield "s3://limner"
        finally:
            server.kill()
            server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < until:
        try:
            httpx.get(url, trust_env=False)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the storage did not start")


def created(url: str) -> StoreFiles:
    return StoreFiles.create(url, fingerprint="a", dim=DIM, run="run")


def image_of(number: int) -> StoredImage:
    return StoredImage(f"/pictures/an unusual name {number}.jpg", f"{number:064x}", 1, 2)


def name_of(number: int) -> str:
    return Path(image_of(number).path).name


def add(files: StoreFiles, *numbers: int) -> None:
    vectors = np.stack([np.full(DIM, number, np.float32) for number in numbers])
    files.add([image_of(number) for number in numbers], vectors, None, [THUMBNAIL] * len(numbers))


def objects(place: StorePath) -> dict[str, bytes]:
    """All that a storage holds of a store."""
    remote: Any = place
    return {name: remote.fs.cat_file(name) for name in remote.fs.find(remote.path)}


def test_a_store_from_its_making_to_an_erasure(storage: str) -> None:
    url = f"{storage}/whole"
    with pytest.raises(StoreError, match="no such store") as caught:
        StoreFiles.open(url)
    assert caught.value.trouble == "missing"
    files = created(url)
    # one object, so that a create is whole or has not been
    assert [name.rpartition("/")[2] for name in objects(files.folder)] == ["store.json"]
    with pytest.raises(StoreError, match="not empty"):
        created(url)
    reader = StoreFiles.open(url)
    assert (len(reader), reader.manifest) == (0, files.manifest)
    add(files, *range(1, 8))
    with files.changing() as writer:
        writer.add_sentences([("s", "a sentence", image_of(3).path)], np.ones((1, DIM), np.float32))
    assert [hit.name for hit in reader.snapshot().search(np.ones(DIM, np.float32), 2)] == [
        name_of(number) for number in (7, 6)
    ]
    with files.writing(), pytest.raises(StoreError, match="is being written"):
        reader.delete([image_of(1).id])
    kept = objects(files.folder)
    assert files.delete([image_of(3).id]) == 1
    with files.writing():
        files.rows.set_text("calibration", "{}")
        files.rows.scrub()
    traces = (image_of(3).id.encode(), b"name 3", b"a sentence", np.full(DIM, 3, "<f4").tobytes())
    left = objects(files.folder)
    assert {trace for trace in traces if any(trace in content for content in kept.values())} == set(traces)
    assert not any(trace in content for trace in traces for content in left.values())
    assert (len(reader.snapshot().keys), reader.rows.text("calibration")) == (6, "{}")
    assert reader.rows.faults() == []


def test_two_servers_and_one_writer(storage: str) -> None:
    """Whatever a reader is answered is what one commit left, none is older than the one before, and none fails."""
    files = created(f"{storage}/servers")
    add(files, 0)
    stop, failed = threading.Event(), []
    seen: list[list[set[str]]] = [[], []]

    def serve(answers: list[set[str]]) -> None:
        own = StoreFiles.open(f"{storage}/servers")
        try:
            while not stop.is_set():
                answers.append({Path(path).name for path in own.snapshot().columns.paths})
        except StoreError as error:
            failed.append(error)

    servers = [threading.Thread(target=serve, args=(answers,)) for answers in seen]
    for server in servers:
        server.start()
    left = [{name_of(0)}]
    try:
        # files are joined on the way
        for number in range(1, 10):
            with files.changing() as writer:
                writer.delete([image_of(number - 1).id])
                vectors = np.full((2, DIM), number, np.float32)
                writer.add([image_of(number), image_of(100 + number)], vectors, None, [THUMBNAIL] * 2)
            left.append(left[-1] - {name_of(number - 1)} | {name_of(number), name_of(100 + number)})
    finally:
        until = time.monotonic() + 60
        while (
            not failed
            and time.monotonic() < until
            and not all(len(one) and len(one[-1]) == 10 for one in seen)
        ):
            time.sleep(0.05)
        stop.set()
        for server in servers:
            server.join()
    assert not failed
    for answers in seen:
        places = [left.index(answer) for answer in answers]
        assert places == sorted(places)
        assert places[-1] == len(left) - 1


def test_two_writers_at_once(storage: str) -> None:
    """The lease lets one write; one that has lost it commits nothing, also where it does not know."""
    files = created(f"{storage}/writers")
    add(files, 1)
    first, second = (StoreFiles.open(f"{storage}/writers").rows for _ in range(2))
    with files.writing():
        late, writing = first.begin(), second.begin()
        late.add([Picture(image_of(2), np.ones(DIM, np.float32))])
        writing.add([Picture(image_of(3), np.ones(DIM, np.float32))])
        writing.commit()
        with pytest.raises(StoreError, match="taken over"):
            late.commit()
        head = read_head(files.folder, tagged=True)
        second.set_text("calibration", "{}")
        with pytest.raises(StoreError, match="taken over"):
            put_head(files.folder, head)
    assert sorted(row.path for row in files.entries().values()) == [image_of(1).path, image_of(3).path]


def test_a_writer_that_lost_its_lease_commits_nothing(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine slept, and another one writes since: what that one has not committed yet, no tag can tell."""
    files, other = created(f"{storage}/slept"), StoreFiles.open(f"{storage}/slept")
    add(files, 1)

    def sleep() -> None:
        # of the lease alone: until then the other one waits for it
        monkeypatch.setattr(lock, "_now", lambda: (time.monotonic() + 40, time.time() + 40))
        assert isinstance(other.lock, lock.Lease)
        other.lock._put(None)

    with pytest.raises(StoreError, match="taken over"), files.changing() as writer:  # noqa: PT012
        writer.add([image_of(2)], np.ones((1, DIM), np.float32))
        writer.commit()
        writer.add([image_of(3)], np.ones((1, DIM), np.float32))
        sleep()
    assert sorted(files.entries()) == [image_of(1).path, image_of(2).path]


def test_an_erasure_while_a_server_reads(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has looked which rows count; they are gone when it reads them, and so it looks once more."""
    files, server = created(f"{storage}/erasure"), StoreFiles.open(f"{storage}/erasure")
    add(files, *range(1, 5))
    scan, times = LanceReading.scan, [1]

    def late(reading: LanceReading, *given: Any) -> Iterator[Any]:
        while times[0]:
            times[0] -= 1
            assert erase(files, image_of(1).id).found == ()
        yield from scan(reading, *given)

    # the eraser's own readings come after the first one
    monkeypatch.setattr(LanceReading, "scan", late)
    assert server.snapshot().columns.paths == [image_of(number).path for number in (2, 3, 4)]
    assert times == [0]


def test_a_look_at_the_store_is_one_request(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open an object takes two; with them 52 of 75 readings failed beside a writer that never paused."""
    import s3fs

    files = created(f"{storage}/requests")
    add(files, 1)
    files.snapshot()
    asked: list[str] = []
    call = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *arguments: Any, **values: Any) -> Any:
        asked.append(method)
        return await call(self, method, *arguments, **values)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    files.rows.identity()
    assert len(files.snapshot().keys) == 1
    assert asked == ["get_object"] * 2


def test_the_command_says_once_where_the_model_is(storage: str, tmp_path: Path) -> None:
    """A store on a disk would hold it; here the run is needed where it is."""
    picture = draw(tmp_path / "one.png", 1)
    run = Path(__file__).parents[1] / "inference" / "formats" / "format-4"
    for told in (1, 0):
        result = called("index", run, f"{storage}/command", picture, "--cpu")
        assert result.code == 0, result
        assert result.err.count("holds no model") == told
    assert len(StoreFiles.open(f"{storage}/command")) == 1

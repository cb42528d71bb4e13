"""The lease of a store on an object storage, on a filesystem in memory with its conditional put."""

import json
import threading
import time
from collections.abc import Callable

import pytest

from limner.errors import StoreError
from limner.search import lease as module
from limner.search.lease import LEASE_FILE, Lease


class Objects:
    """What `Lease` needs of a filesystem of objects."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite") -> None:
        with self._lock:
            if mode == "create" and path in self.files:
                raise FileExistsError(path)
            self.files[path] = content

    def cat_file(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def rm_file(self, path: str) -> None:
        del self.files[path]


class Folder:
    """A folder of objects, as `upath.UPath` is one."""

    def __init__(self, fs: Objects, path: str = "s3://bucket/store") -> None:
        self.fs, self.path = fs, path

    def __truediv__(self, name: str) -> "Folder":
        return Folder(self.fs, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.path


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 3.0)
    monkeypatch.setattr(module, "SETTLING", 0.3)


def _until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not done() and time.monotonic() < ends:
        time.sleep(0.01)


FILE = f"s3://bucket/store/{LEASE_FILE}"


def test_one_at_a_time_and_nested() -> None:
    fs = Objects()
    one, other = Lease(Folder(fs)), Lease(Folder(fs))
    with one.held(), one.held():
        with (
            pytest.raises(StoreError, match=r"s3://bucket/store: is being written by another process"),
            other.held(),
        ):
            pass
        assert json.loads(fs.files[FILE])["until"] > time.time()
    assert not fs.files
    with other.held():
        assert FILE in fs.files


def test_another_thread_waits_for_its_turn() -> None:
    lease = Lease(Folder(Objects()))
    caught: list[str] = []

    def write() -> None:
        try:
            with lease.held():
                pass
        except StoreError as error:
            caught.append(str(error))

    with lease.held():
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert "by another thread" in caught[0]


def test_it_is_kept_while_it_is_held() -> None:
    fs = Objects()
    with Lease(Folder(fs)).held():
        began = json.loads(fs.files[FILE])["until"]
        time.sleep(3.5)
        assert json.loads(fs.files[FILE])["until"] > began
        with pytest.raises(StoreError, match="is being written"), Lease(Folder(fs)).held():
            pass


def test_the_lease_of_a_killed_writer_ends() -> None:
    fs = Objects()
    fs.files[FILE] = json.dumps({"owner": "gone", "until": time.time() + 30}).encode()
    with pytest.raises(StoreError, match="killed less than a minute ago"), Lease(Folder(fs)).held():
        pass
    fs.files[FILE] = json.dumps({"owner": "gone", "until": time.time() - 1}).encode()
    with Lease(Folder(fs)).held():
        assert json.loads(fs.files[FILE])["owner"] != "gone"
    fs.files[FILE] = b"damaged"
    with Lease(Folder(fs)).held():
        pass


def test_of_two_that_take_over_one_writes() -> None:
    fs = Objects()
    fs.files[FILE] = json.dumps({"owner": "gone", "until": 0}).encode()
    writing: list[int] = []
    refused: list[int] = []

    def write() -> None:
        try:
            with Lease(Folder(fs)).held():
                writing.append(1)
                _until(lambda: len(refused) == 3)
        except StoreError:
            refused.append(1)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(writing), len(refused)) == (1, 3)


def test_a_writer_that_lost_it_is_told() -> None:
    fs = Objects()
    lease = Lease(Folder(fs))
    with lease.held():
        fs.files[FILE] = json.dumps({"owner": "another", "until": time.time() + 9}).encode()
        _until(lambda: lease._lost)
        with pytest.raises(StoreError, match="another process has taken over"), lease.held():
            pass
    assert json.loads(fs.files[FILE])["owner"] == "another", "the other's lease is left alone"

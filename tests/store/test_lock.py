"""The lease of a store on an object storage, on a filesystem in memory with its conditional put."""

import hashlib
import json
import threading
import time
from collections.abc import Callable

import pytest

pytest.importorskip("botocore")
from botocore.exceptions import (  # type: ignore[import-untyped]
    EndpointConnectionError,
    NoCredentialsError,
)

from limner.errors import StoreError
from limner.store import lock as module
from limner.store.lock import LEASE_FILE, Lease


class Objects:
    """What `Lease` needs of a filesystem of objects.

    - `conditional`: whether it knows versions of objects and puts on the condition of one.
    - `away`: owners whose network is down, and what they meet; `slow`: seconds that a put of theirs takes.
    """

    def __init__(self, conditional: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self.conditional = conditional
        self.away: dict[str, Exception] = {}
        self.slow: dict[str, float] = {}
        self._lock = threading.Lock()

    def pipe_file(
        self,
        path: str,
        content: bytes,
        mode: str = "overwrite",
        IfMatch: str | None = None,  # noqa: N803 - as S3 calls it
    ) -> None:
        owner = json.loads(content)["owner"]
        if owner in self.away:
            raise self.away[owner]
        time.sleep(self.slow.get(owner, 0) if mode != "create" else 0)
        with self._lock:
            if mode == "create" and path in self.files:
                raise FileExistsError(path)
            if IfMatch is not None and IfMatch != self._tag(path):
                raise OSError(22, "PreconditionFailed")
            self.files[path] = content

    def info(self, path: str, refresh: bool) -> dict[str, str]:
        assert refresh
        self.cat_file(path)
        return {"ETag": self._tag(path)} if self.conditional else {}

    def exists(self, path: str) -> bool:
        return path in self.files

    def _tag(self, path: str) -> str:
        return hashlib.sha256(self.files[path]).hexdigest()

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


@pytest.mark.parametrize("conditional", [True, False])
def test_of_two_that_take_over_one_writes(conditional: bool) -> None:
    fs = Objects(conditional)
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


def test_a_slow_put_does_not_take_it_from_another() -> None:
    fs = Objects()
    fs.files[FILE] = json.dumps({"owner": "gone", "until": 0}).encode()
    slow = Lease(Folder(fs))
    fs.slow[slow._owner] = 1.0  # longer than it takes another to settle
    refused: list[str] = []

    def write() -> None:
        try:
            with slow.held():
                pass
        except StoreError as error:
            refused.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    with Lease(Folder(fs)).held() as _:
        thread.join()
        assert len(refused) == 1


@pytest.mark.parametrize(
    "error", [OSError("down"), EndpointConnectionError(endpoint_url="https://s3.example")], ids=["os", "boto"]
)
def test_a_writer_without_a_network_stops(error: Exception) -> None:
    fs = Objects()
    lease = Lease(Folder(fs))
    with lease.held():
        fs.away[lease._owner] = error
        time.sleep(1.8)
        with pytest.raises(StoreError, match="cannot be written"), lease.held():
            pass
        fs.away.clear()
        with lease.held():
            pass
        _until(lambda: lease._age() < 1)
        assert lease._age() < 1, "the keeper goes on"


def test_a_writer_that_was_suspended_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = Objects()
    lease = Lease(Folder(fs))
    monkeypatch.setattr(lease, "_keep", lambda ended: None)
    with lease.held():
        lease._renewed = (lease._renewed[0], lease._renewed[1] - 100)  # the machine slept
        fs.files[FILE] = json.dumps({"owner": "another", "until": time.time() + 9}).encode()
        with pytest.raises(StoreError, match="another process has taken over"), lease.held():
            pass


def test_a_storage_that_cannot_be_reached_is_named() -> None:
    fs = Objects()
    lease = Lease(Folder(fs))
    fs.away[lease._owner] = NoCredentialsError()
    with (
        pytest.raises(StoreError, match=r"s3://bucket/store: .*Unable to locate credentials; set AWS_ACCESS"),
        lease.held(),
    ):
        pass


def test_a_put_whose_answer_was_lost_is_ones_own() -> None:
    fs = Objects()
    lease = Lease(Folder(fs))
    fs.files[FILE] = lease._content()
    with lease.held():
        pass
    assert not fs.files

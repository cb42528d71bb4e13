"""One writer at a time: a lock file in the store's folder, or a lease object on an object storage.

Readers need neither. LanceDB itself accepts two commits that add the same new row, and keeps both; SQLite has a lock of
its own, for which a second writer would wait.

An object storage has no locks. There the lock is an object that says who writes, and until when. A conditional put
makes it, which only one writer can win. While that one writes, a thread extends the lease. A writer that is killed
leaves the object; after a minute the next one takes it over, by a put on the condition that the object is still the
same. A writer that could not extend its lease for half a minute writes nothing more.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limner.errors import StoreError
from limner.store.path import StorePath, expect_there, expect_writable, reached

LOCK_FILE = ".store.lock"


class WriterLock:
    """The lock of a store's folder. The operating system releases it when its process is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # filelock counts for each thread: two threads that share a store must not write at once either
        self._lock = FileLock(folder / LOCK_FILE, blocking=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the right to write; this may be nested within a thread.

        Raises `StoreError`, without waiting, while somebody else holds it, and if the folder is gone or cannot be
        written.
        """
        try:
            # filelock would make it, and a store that is moved back would land inside
            expect_there(self.folder)
            # not blocking: whoever waited would commit to a store that has changed since it looked
            self._lock.acquire()
        except Timeout:
            raise StoreError(
                f"{self.folder}: is being written by another process; try again when it is done", "busy"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.folder}: cannot be written ({error.strerror or error})") from None
        try:
            yield
        finally:
            self._lock.release()

    def check(self) -> None:
        """Raise `StoreError` if the store cannot be written. The lock is not taken: a writer would be refused."""
        # another user, such as root, may have made any of these
        expect_writable(self.folder, self.folder / LOCK_FILE, *self.folder.glob("store.sqlite*"))


LEASE_FILE = ".store.lease"
# after a kill nobody writes for so long; a shorter lease would be lost to a short break of the network
SECONDS = 60.0
"""Seconds that a lease lasts. Clocks of the machines that write must agree within half of it."""
# longer than a put takes, so that whoever put last is seen by all who tried
SETTLING = 2.0
"""Seconds to wait after taking over an old lease, to see whether another writer has done the same."""


class Lease:
    """The right to write to a store on an object storage; see `limner.store.lock.WriterLock` for the other kind."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self._file = folder / LEASE_FILE
        self._owner = secrets.token_hex(16)
        self._writing = threading.Lock()
        self._thread: int | None = None
        self._lost = False
        self._renewed = _now()
        self._renewing = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the right to write; this may be nested within a thread.

        Raises `StoreError` while somebody else holds it, if it was lost, and if nothing can be written there.
        """
        # nested: a change of several commits holds it, and each commit holds it again
        if self._thread == threading.get_ident():
            self._check()
            yield
            return
        if not self._writing.acquire(blocking=False):
            raise StoreError(
                f"{self.folder}: is being written by another thread; try again when it is done", "busy"
            )
        try:
            self._lost = False
            self._take()
            self._thread = threading.get_ident()
            ended = threading.Event()
            # a daemon: the end of the process must not wait for a thread that sleeps twenty seconds
            keeper = threading.Thread(target=self._keep, args=(ended,), daemon=True)
            keeper.start()
            try:
                yield
            finally:
                self._thread = None
                ended.set()
                keeper.join()
                self._give_back()
        finally:
            self._writing.release()

    def check(self) -> None:
        """Raise `StoreError` if the storage cannot be reached, or the lease of this writer was lost; takes nothing."""
        with reached(self.folder, "read"):
            self._read()
        if self._thread is not None and self._lost:
            raise StoreError(f"{self.folder}: another process has taken over the writing; index again")

    def _take(self) -> None:
        # twice: if another was faster, the second look names it, and if it has gone, the lease is free
        for _ in range(2):
            with reached(self.folder):
                if self._is_made():
                    return
                tag, held = self._read()
            if held.get("owner") != self._owner and float(held.get("until", 0)) > time.time():
                raise StoreError(
                    f"{self.folder}: is being written by another process, or one was killed less than a minute "
                    "ago; try again when it is done",
                    "busy",
                )
            # an old lease: the conditional put lets only one take it over. Some storages ignore the condition: there
            # the last put wins, and everybody sees after a while whose it was
            with suppress(OSError):
                self._put(tag)
            time.sleep(SETTLING)
            with reached(self.folder):
                if self._is_own():
                    return
        raise StoreError(f"{self.folder}: another process began to write at the same time; try again")

    def _is_made(self) -> bool:
        """Make the object; False if it exists already."""
        began = _now()
        try:
            # If-None-Match in S3: of several puts at once the storage accepts one
            self._file.fs.pipe_file(self._file.path, self._content(), mode="create")
        except OSError:  # some storages do not say that it is there
            if not self._file.fs.exists(self._file.path):
                raise
            return False
        self._renewed = began
        return True

    def _keep(self, ended: threading.Event) -> None:
        # three times in a lease: one put may fail before a commit has to look for itself
        while not (self._lost or ended.wait(SECONDS / 3)):
            # a network that is away: `_check` looks at how long it has been
            with suppress(Exception):
                self._renew()

    def _renew(self) -> None:
        # the keeper and a commit that finds the lease old may both come at once
        with self._renewing:
            tag, held = self._read()
            if held.get("owner") == self._owner:
                self._put(tag)
            else:
                self._lost = True

    def _check(self) -> None:
        """Check before a commit that no other writer has taken it over, even by a clock that is half a lease ahead."""
        # half a lease: as far as the clocks of two machines may be apart
        if self._age() > SECONDS / 2:
            with reached(self.folder):
                self._renew()
        if self._lost:
            raise StoreError(f"{self.folder}: another process has taken over the writing; index again")

    def _age(self) -> float:
        """Return the seconds since the lease was last extended, by the clock that counts more."""
        # the monotonic clock stands still while the machine is suspended, the other one may be set back
        return max(now - then for now, then in zip(_now(), self._renewed, strict=True))

    def _give_back(self) -> None:
        with suppress(Exception):  # it ends by itself
            if self._is_own():
                self._file.fs.rm_file(self._file.path)

    def _is_own(self) -> bool:
        return self._read()[1].get("owner") == self._owner

    def _read(self) -> tuple[str | None, dict[str, Any]]:
        """Read the object: its version tag, if the storage has one, and its content."""
        try:
            # the tag first: if the object changes before it is read, the put on the condition of this tag fails
            tag = self._file.fs.info(self._file.path, refresh=True).get("ETag")
            content = json.loads(self._file.fs.cat_file(self._file.path))
        except FileNotFoundError:
            # free since the caller looked: its previous owner has given it back
            return None, {}
        except ValueError:
            # not limner's object, or half of one: it names no owner and no time, so it may be taken over
            return tag, {}
        return tag, content if isinstance(content, dict) else {}

    def _put(self, tag: str | None) -> None:
        # the time before the put: by that of its answer a slow put would make the lease look fresher than it is
        began = _now()
        condition = {} if tag is None else {"IfMatch": tag}
        self._file.fs.pipe_file(self._file.path, self._content(), **condition)
        self._renewed = began

    def _content(self) -> bytes:
        return json.dumps({"owner": self._owner, "until": time.time() + SECONDS}).encode()


def _now() -> tuple[float, float]:
    return time.monotonic(), time.time()


def lock_of(folder: StorePath) -> WriterLock | Lease:
    """The lock of a store's folder: a file, or a lease on an object storage."""
    return WriterLock(folder) if isinstance(folder, Path) else Lease(folder)

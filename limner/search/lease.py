"""One writer at a time on an object storage, which has no locks: an object that says who writes, and until when.

The object is made by a conditional put, which one writer alone can win. While it writes, a thread puts the end of the
lease off; a writer that is killed leaves the object, and after a minute the next one takes it over.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limner.errors import StoreError

LEASE_FILE = ".store.lease"
SECONDS = 60.0
"""How long a lease lasts. Clocks of the machines that write must agree within half of it."""
SETTLING = 2.0
"""After taking over an old lease: wait, and see whether another has done the same."""


class Lease:
    """The right to write to a store on an object storage; see `limner.search.lock.WriterLock` for the other kind."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self._file = folder / LEASE_FILE
        self._owner = secrets.token_hex(16)
        self._writing = threading.Lock()
        self._thread: int | None = None
        self._lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it; may be nested within a thread.

        Raises `StoreError` while somebody else holds it, where it was lost, and where nothing can be written there.
        """
        if self._thread == threading.get_ident():
            self._check()
            yield
            return
        if not self._writing.acquire(blocking=False):
            raise StoreError(f"{self.folder}: is being written by another thread; try again when it is done")
        try:
            self._take()
            self._thread, self._lost = threading.get_ident(), False
            ended = threading.Event()
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

    def _take(self) -> None:
        for _ in range(2):
            try:
                self._file.fs.pipe_file(self._file.path, self._content(), mode="create")
                return
            except FileExistsError:
                held = self._read()
            except OSError as error:
                raise StoreError(f"{self.folder}: cannot be written ({error})") from None
            if held is not None and float(held.get("until", 0)) > time.time():
                raise StoreError(
                    f"{self.folder}: is being written by another process, or one was killed less than a minute "
                    "ago; try again when it is done"
                )
            # an old lease: whoever takes it over last is the one
            self._file.fs.pipe_file(self._file.path, self._content())
            time.sleep(SETTLING)
            if self._is_own():
                return
        raise StoreError(f"{self.folder}: another process began to write at the same time; try again")

    def _keep(self, ended: threading.Event) -> None:
        while not ended.wait(SECONDS / 3):
            try:
                if not self._is_own():
                    self._lost = True
                    return
                self._file.fs.pipe_file(self._file.path, self._content())
            except OSError:
                continue  # the next turn comes before the lease ends

    def _check(self) -> None:
        if self._lost:
            raise StoreError(f"{self.folder}: another process has taken over the writing; index again")

    def _give_back(self) -> None:
        try:
            if self._is_own():
                self._file.fs.rm_file(self._file.path)
        except OSError:
            return  # it ends by itself

    def _is_own(self) -> bool:
        held = self._read()
        return held is not None and held.get("owner") == self._owner

    def _read(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._file.fs.cat_file(self._file.path))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _content(self) -> bytes:
        return json.dumps({"owner": self._owner, "until": time.time() + SECONDS}).encode()

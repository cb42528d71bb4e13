"""Web hooks and notifications of the desktop: how alerts are told beyond a line.

A web hook is a POST of JSON (`limner.alert_reports.AlertReport`). Nothing that it answers or leaves out holds up the
look at folders: each address has a thread and a queue of its own.
"""

import base64
import html
import http.client
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue
from urllib.parse import urlsplit

from limner.alert_reports import AlertReport
from limner.counted import counted
from limner.errors import LimnerError
from limner.store.alerts import Alert, saved_alert
from limner.store.contents import thumbnails
from limner.store.files import StoreFiles
from limner.store.path import StorePath

_SECONDS = 5.0
"""Longest time of one request."""

_AGAIN = (1.0, 10.0, 60.0)
"""Seconds before each further try."""

_TOGETHER = 20
"""Pictures of one request."""

_WAITING = 1000
"""Requests to one address that may wait; pictures of further ones are not delivered."""

_NOTIFIER = "notify-send"

_ENDED = "limner has ended"

_Waiting = Queue[tuple[StorePath, Alert, AlertReport]]


class Hooks:
    """Web hooks. `told` gets a line for what was not delivered; threads may share it."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self._queues: dict[str, tuple[_Waiting, threading.Thread]] = {}
        self._closing = threading.Event()
        self._one = threading.Lock()

    def send(self, store: StorePath, alert: Alert, report: AlertReport) -> None:
        """Send what an alert of a store has found to its web hook, if it has one, in its own time."""
        if alert.hook is None:
            return
        with self._one:
            if self._closing.is_set():
                self._undelivered(alert, len(report.hits), _ENDED)
                return
            if alert.hook not in self._queues:
                queue: _Waiting = Queue(_WAITING)
                thread = threading.Thread(
                    target=self._deliver, args=(queue,), name="limner-hook", daemon=True
                )
                self._queues[alert.hook] = queue, thread
                thread.start()
            queue = self._queues[alert.hook][0]
            for start in range(0, len(report.hits), _TOGETHER):
                part = report.model_copy(update={"hits": report.hits[start : start + _TOGETHER]})
                try:
                    queue.put_nowait((store, alert, part))
                except Full:
                    self._undelivered(alert, len(report.hits) - start, "too many wait for it")
                    return

    def close(self) -> None:
        """End the requests that are under way within a few seconds, and tell of those that wait."""
        with self._one:
            self._closing.set()
        until = time.monotonic() + _SECONDS + 0.5
        for queue, thread in self._queues.values():
            thread.join(max(0.0, until - time.monotonic()))
            while not queue.empty():
                _, alert, report = queue.get_nowait()
                self._undelivered(alert, len(report.hits), _ENDED)

    def _deliver(self, queue: _Waiting) -> None:
        while not self._closing.is_set():
            with suppress(Empty):
                store, alert, report = queue.get(timeout=0.2)
                if (reason := self._tried(store, alert, report)) is not None:
                    self._undelivered(alert, len(report.hits), reason)

    def _tried(self, store: StorePath, alert: Alert, report: AlertReport) -> str | None:
        """Send a report, several times if need be; return the reason if it was not taken."""
        assert alert.hook is not None
        reason = ""
        for pause in (0.0, *_AGAIN):
            if pause and self._closing.wait(pause):
                return reason
            try:
                # anew for each try: what was erased meanwhile is not told
                body = _body(store, alert, report)
                status = 200 if body is None else post(alert.hook, body)
            # ValueError: a name that no host can have
            except (OSError, http.client.HTTPException, LimnerError, ValueError) as error:
                reason = str(error) or type(error).__name__
                continue
            if status < 300:
                return None
            if status < 400:
                return f"it redirects ({status}), which is not followed; give the address that it leads to"
            reason = f"it answers {status}"
            if status < 500 and status not in (408, 429):
                return reason
        return reason

    def _undelivered(self, alert: Alert, count: int, reason: str) -> None:
        where = saved_alert(alert).hook
        self._told(f"alert {alert.name}: {counted(count, 'pictures')} not delivered to {where}: {reason}")


def _body(store: StorePath, alert: Alert, report: AlertReport) -> str | None:
    """The JSON of a request; None if the store holds none of its pictures any more."""
    # a handle of its own: this is another thread
    files = StoreFiles.open(store)
    try:
        ids = [hit.id for hit in report.hits]
        held = files.read(lambda reading: {row.id for row in reading.pictures(ids)})
        hits = [hit for hit in report.hits if hit.id in held]
        if alert.send_picture:
            small = thumbnails(files, [hit.id for hit in hits])
            hits = [
                hit if jpeg is None else hit.model_copy(update={"picture": base64.b64encode(jpeg).decode()})
                for hit, jpeg in zip(hits, small, strict=True)
            ]
    finally:
        files.forget()
    return report.model_copy(update={"hits": tuple(hits)}).model_dump_json() if hits else None


def post(address: str, body: str) -> int:
    """Send JSON to an address, and return the status of the answer; a redirect is not followed.

    Raises `OSError` and `http.client.HTTPException`, also if it takes longer than five seconds.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_SECONDS)
    # the time limit of a socket is one of each byte: a server that sends one every other second would hold it for ever
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        place = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        headers = {"Content-Type": "application/json", "User-Agent": "limner"}
        connection.request("POST", place, body.encode(), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise TimeoutError(f"no answer within {_SECONDS:g} seconds") from None
        raise
    finally:
        timer.cancel()
        connection.close()


def can_notify() -> bool:
    """True if there is a program that shows notifications on the desktop."""
    return shutil.which(_NOTIFIER) is not None


def notify(report: AlertReport) -> None:
    """Show a notification of what an alert has found; nobody waits for it."""
    more = "" if len(report.hits) == 1 else f" and {len(report.hits) - 1:,} more"
    # the body may hold markup, a name of a file must not
    body = html.escape(f"{report.hits[0].name}{more}", quote=False)
    command = [_NOTIFIER, "--app-name=limner", "--", report.alert, body]

    def show() -> None:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, timeout=_SECONDS, check=False, capture_output=True)

    threading.Thread(target=show, name="limner-notify", daemon=True).start()

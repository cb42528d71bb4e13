"""The socket that a server listens on, and how long a request's header may take to arrive on a connection."""

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from limner.errors import SettingsError

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket at an address, port 0 = one that is free. Raises `SettingsError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise SettingsError(f"--host {host}: is no address ({getattr(error, 'strerror', error)})") from None
    # named TCP: asyncio sends small packets at once only then, and an answer in two of them would take 40 ms more
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; try another --port") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """The URL of what listens there.

    >>> with listen("127.0.0.1", 0) as one:
    ...     url_of(one).startswith("http://127.0.0.1:")
    True
    """
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


SECONDS = 10.0


class HeaderTimeout(H11Protocol):
    """uvicorn's protocol, which closes a connection on which no whole head comes within `SECONDS`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what comes, and wait as long as it is not a head."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(SECONDS, self._give_up)

    def _give_up(self) -> None:
        # after a whole request uvicorn closes what is idle itself
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

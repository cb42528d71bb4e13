"""The socket that a server listens on, and how long a request's header may take to arrive on a connection."""

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from limner.errors import SettingsError

# uvicorn's own number
_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Open a TCP socket at an address; port 0 means a free one. Raises `SettingsError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise SettingsError(f"--host {host}: is no address ({getattr(error, 'strerror', error)})") from None
    # IPPROTO_TCP by name: asyncio turns Nagle's algorithm off only then, and with it an answer takes 40 ms more
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # a server that starts again finds its port free, though old connections linger in TIME_WAIT
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # systems differ in whether :: also means IPv4; a server on it must mean the same everywhere
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; try another --port") from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket.

    >>> with listen("127.0.0.1", 0) as one:
    ...     url_of(one).startswith("http://127.0.0.1:")
    True
    """
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


SECONDS = 10.0


class HeaderTimeout(H11Protocol):
    """uvicorn's protocol that closes a connection if no whole request header arrives within `SECONDS`."""

    # uvicorn has no limit for slow headers and starts its keep-alive timer again at each byte: of 1,000 half-sent
    # headers all stayed for ever, and none does after 35 s now (docs/log/2026-11-22.md)

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first header."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Pass data on, and wait until they are a whole header."""
        super().data_received(data)
        # after the parser has read them: its state tells whether the header is whole
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        # a timer that runs goes on, however many single bytes arrive
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

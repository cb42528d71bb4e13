"""The socket that the server listens on, and its URL."""

import socket

from limner.errors import SettingsError

# uvicorn's own number
BACKLOG = 2048
"""Number of clients that the system lets in before the server accepts them."""

_UNSENT = 2**16
"""Bytes of an answer that the system keeps for a client that does not read."""


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
        # the system takes megabytes of an answer that nobody reads; with this, a connection sees that it waits
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        listening.bind(address)
        listening.listen(BACKLOG)
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

"""The socket that a server listens on."""

import socket

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

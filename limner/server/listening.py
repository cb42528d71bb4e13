"""The socket that the server listens on: a TCP port or a file; and its URL."""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from limner.errors import SettingsError

# uvicorn's own number
BACKLOG = 2048
"""Number of clients that the system lets in before the server accepts them."""

_UNSENT = 2**16
"""Bytes of an answer that the system keeps for a client that does not read."""

UNIX = "unix"
"""The address of all clients of a socket file, which have none; and the beginning of its URL."""

_MODE = 0o660
"""Mode of a socket file: its owner and group may connect."""


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


@contextmanager
def listen_at(file: Path) -> Iterator[socket.socket]:
    """Listen on a socket file within the block, for its owner and group (mode 0660); the file is removed at the end.

    One that a dead server has left is replaced. Raises `SettingsError` for one on which a server listens, for a file
    of another kind, and for a folder in which no socket can be made.
    """
    file = Path(os.path.abspath(file))  # noqa: PTH100 - links in it stay as they are
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listening:
        try:
            with _one_at_a_time(file.parent):
                _remove_left(file)
                listening.bind(str(file))
                # nobody can connect before `listen`, so the mode that the file is made with lets nobody in
                file.chmod(_MODE)
                made = file.stat()
                listening.listen(BACKLOG)
        except OSError as error:
            raise SettingsError(f"--uds {file}: {error.strerror or error}") from None
        try:
            yield listening
        finally:
            # not that of a server which has been started in the meantime, after somebody removed ours
            with suppress(OSError):
                if os.path.samestat(made, file.stat()):
                    file.unlink()


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other servers from making a socket in the folder: of two that find a dead one, one would remove the other's
    new one."""
    # of the folder itself: a file for the lock would stay
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_left(file: Path) -> None:
    """Remove the socket file of a dead server. Raises `SettingsError` for anything else."""
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SettingsError(f"--uds {file}: this is no socket; name a file that does not exist")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as asking:
        # a server whose line is full has to be waited for, and lives
        asking.setblocking(False)
        try:
            asking.connect(str(file))
        except ConnectionRefusedError:
            file.unlink()
            return
        except BlockingIOError:
            pass
    raise SettingsError(f"--uds {file}: a server listens there already; stop it, or name another file")


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket, `unix:FILE` for a socket file.

    >>> with listen("127.0.0.1", 0) as one:
    ...     url_of(one).startswith("http://127.0.0.1:")
    True
    """
    if listening.family == socket.AF_UNIX:
        return f"{UNIX}:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

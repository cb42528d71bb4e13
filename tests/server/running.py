"""A server on a port of this machine, or on a socket file, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limner.server.connections import Server
from limner.server.listening import listen, listen_at, url_of
from limner.server.settings import ServerSettings


@contextmanager
def running(
    app: Any, settings: ServerSettings | None = None, proxy: str | None = None, file: Path | None = None
) -> Iterator[str]:
    """Its URL, as long as it runs."""
    with listen("127.0.0.1", 0) if file is None else listen_at(file) as listening:
        server = Server(app, settings or ServerSettings(), proxy)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield url_of(listening).rstrip("/")
        finally:
            server.should_exit = True
            thread.join(timeout=30)
        assert not thread.is_alive()

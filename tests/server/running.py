"""A server on a port of this machine, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limner.server.connections import Server
from limner.server.listening import listen
from limner.server.settings import ServerSettings


@contextmanager
def running(app: Any, settings: ServerSettings | None = None, proxy: str | None = None) -> Iterator[str]:
    """Its URL, as long as it runs."""
    with listen("127.0.0.1", 0) as listening:
        server = Server(app, settings or ServerSettings(), proxy)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)
        assert not thread.is_alive()

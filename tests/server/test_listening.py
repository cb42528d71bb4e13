import socket

import pytest

from limner.errors import SettingsError
from limner.server.listening import listen, url_of


def test_a_free_port() -> None:
    with listen("127.0.0.1", 0) as one, listen("localhost", 0) as other:
        assert url_of(one) != url_of(other)
        port = one.getsockname()[1]
        assert url_of(one) == f"http://127.0.0.1:{port}/"
        # without this asyncio leaves Nagle's algorithm on
        assert one.proto == socket.IPPROTO_TCP
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}: .*in use.*--port"):
            listen("127.0.0.1", port)


def test_ipv6() -> None:
    try:
        listening = listen("::1", 0)
    except SettingsError:
        pytest.skip("no IPv6 here")
    with listening:
        assert url_of(listening).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["no.such.name.invalid", "256.0.0.1", "a" * 300, "192.0.2.1"])
def test_addresses_that_are_none(host: str) -> None:
    with pytest.raises(SettingsError, match=r"^(--host|cannot listen on) "):
        listen(host, 0)

import re
import socket
from pathlib import Path

import pytest

from limner.server.systemd import notify, notify_reloading


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """The socket on which systemd listens."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.settimeout(60)
    manager.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    return manager


def test_lines_in_one_datagram(manager: socket.socket) -> None:
    with manager:
        notify("READY=1", "STATUS=well")
        assert manager.recv(1000) == b"READY=1\nSTATUS=well"
        notify_reloading()
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(1000))


def test_a_name_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        # the kernel chooses a name of its own
        manager.bind("")
        name = manager.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name[1:].decode()}")
        notify("READY=1")
        assert manager.recv(1000) == b"READY=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_without_a_manager_nothing_is_sent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")


def test_a_manager_that_is_gone_leaves_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")
    assert "NOTIFY_SOCKET" in caplog.text

"""SIGHUP while web hooks wait: nothing that an alert has found is lost, and nothing is counted anew."""

import shutil
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from limner.client import Client
from limner.search.alerts import save_alert
from limner.search.store import open_store
from limner.store.alerts import Alert
from tests.cli.served import Served, served
from tests.cli.test_watch import LONG, own
from tests.search.test_hooks import answer_with, receiving

__all__ = ["own"]

pytest.importorskip("watchfiles")


class Hook:
    """A web hook that takes nothing until it is well."""

    def __init__(self) -> None:
        self.url, self.is_well = "", False
        self.taken: list[str] = []


@pytest.fixture
def hook(own: Path) -> Iterator[Hook]:
    hook = Hook()
    with receiving() as receiver:

        def answer(request: BaseHTTPRequestHandler) -> None:
            hook.taken += [hit["name"] for hit in receiver.bodies[-1]["hits"] if hook.is_well]
            answer_with(request, 200 if hook.is_well else 503)

        receiver.answer, hook.url = answer, receiver.url
        alert = Alert(name="people", text="a person in red", at_least=0.0, hook=receiver.url)
        save_alert(open_store(own).engine, alert)
        yield hook


def until(holds: Callable[[], bool], server: Served) -> None:
    late = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < late, server.log.read_text()
        time.sleep(0.1)


def come(server: Served, photos: Path, *paths: Path) -> None:
    """Add pictures to a folder, and wait until the alert has found them."""
    with Client(server.url) as client:
        before = client.alerts().alerts[0].found
        for path in paths:
            shutil.copy(path, photos / f"new-{path.name}")
        until(lambda: client.alerts().alerts[0].found == before + len(paths), server)


def test_what_waits_for_a_web_hook_outlives_a_reload(
    own: Path, pictures: Path, tmp_path: Path, hook: Hook
) -> None:
    """Also one after which no folder is followed."""
    config, new = tmp_path / "server.toml", sorted(pictures.glob("*.png"))[24:26]
    config.write_text("watch = true\nrate = 0\n")
    with served(tmp_path, own, "--port", 0, "--cpu", "--config", config) as server:
        come(server, tmp_path / "photos", *new)
        for times, follows in enumerate(("true", "false"), 1):
            config.write_text(f"watch = {follows}\nrate = 0\n")
            server.hang_up("read anew", times)
            # until the one before has ended
            time.sleep(2.5)
            with Client(server.url) as client:
                assert client.alerts().alerts[0].found == 2
            assert httpx.get(f"{server.url}v1/following").json()["follows"] == (follows == "true")
        assert "not delivered" not in server.log.read_text()
        hook.is_well = True
        until(lambda: len(hook.taken) >= 2, server)
    assert sorted(hook.taken) == [f"new-{path.name}" for path in new]
    assert "limner has ended" not in server.log.read_text()


def test_what_waits_when_the_server_ends_is_told(
    own: Path, pictures: Path, tmp_path: Path, hook: Hook
) -> None:
    new = sorted(pictures.glob("*.png"))[24:26]
    with served(tmp_path, own, "--port", 0, "--cpu", "--watch", "--rate", 0) as server:
        for path in new:
            come(server, tmp_path / "photos", path)
    where = f"1 picture not delivered to {hook.url.removeprefix('http://')}"
    for reason in ("it answers 503", "limner has ended"):
        assert f"alert people: {where}: {reason}" in server.log.read_text()

"""A Firefox for the page's tests, as Debian has it.

Playwright drives only its own build of Firefox. This speaks WebDriver BiDi, which every Firefox has, over the socket of
`--remote-debugging-port`: as much of it as the tests need (https://w3c.github.io/webdriver-bidi/).
"""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
SECONDS = 60.0
"""How long anything is waited for; a loaded machine takes seconds for a page."""

# Nothing of it asks the internet, and no first page is in the way.
_PREFERENCES: dict[str, object] = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "intl.accept_languages": "en-GB, en",
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "http://127.0.0.1:9",
    "toolkit.telemetry.enabled": False,
}
_KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowRight": "\ue014", "Tab": "\ue004", "Shift": "\ue008"}


class Firefox:
    """One tab. `complaints` are the errors that the page has put on its console."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self._loaded: set[str] = set()
        self.complaints: list[str] = []
        self._command("session.new", capabilities={})
        self._command("session.subscribe", events=["log.entryAdded", "browsingContext.load"])
        self._tab: str = self._command("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, url: str) -> None:
        """Go to an address, until the page is loaded."""
        self._load("navigate", url=url)

    def reload(self) -> None:
        self._load("reload")

    def _load(self, method: str, **parameters: str) -> None:
        # not by wait="complete": the page writes its place into the address when it is left, and Firefox takes this
        # for the end of the navigation, while the new page is not there yet
        begun = self._command(f"browsingContext.{method}", context=self._tab, wait="none", **parameters)
        ends = time.monotonic() + SECONDS
        while begun["navigation"] not in self._loaded:
            assert time.monotonic() < ends, f"never loaded: {begun}"
            self._read()

    def window(self, width: int, height: int) -> None:
        """Give the page so many pixels."""
        self._command(
            "browsingContext.setViewport", context=self._tab, viewport={"width": width, "height": height}
        )

    def value(self, expression: str) -> Any:
        """The value of an expression on the page."""
        found = self._command(
            "script.evaluate",
            expression=f"JSON.stringify({expression})",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert found["type"] == "success", (expression, found)
        told = found["result"]
        return json.loads(told["value"]) if "value" in told else None

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        ends = time.monotonic() + SECONDS
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < ends, f"never came: {expression}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, by their names or letters; "Shift+C" holds the first."""
        actions: list[dict[str, str]] = []
        for key in keys:
            *held, last = key.split("+") if len(key) > 1 else [key]
            codes = [_KEYS.get(one, one) for one in [*held, last]]
            actions += [{"type": "keyDown", "value": code} for code in codes]
            actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self._act({"type": "key", "id": "keyboard", "actions": actions})

    def write(self, text: str) -> None:
        """Type a text, letter by letter."""
        self.press(*text)

    def click(self, selector: str) -> None:
        """Click the middle of the first element, after it was brought into the window."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.until(place)
        self.value(f"({place}.scrollIntoView({{block: 'center'}}), true)")
        x, y = self.value(
            f"(box => [Math.round(box.x + box.width / 2), Math.round(box.y + box.height / 2)])"
            f"({place}.getBoundingClientRect())"
        )
        steps = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": steps})

    def _act(self, source: dict[str, Any]) -> None:
        self._command("input.performActions", context=self._tab, actions=[source])

    def _command(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._connection.send(
            json.dumps({"id": self._number, "method": method, "params": parameters}), text=True
        )
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert message["type"] == "success", message
                return message["result"]

    def _read(self) -> Any:
        message = json.loads(self._connection.recv(timeout=SECONDS))
        told = message.get("params", {})
        if message.get("method") == "log.entryAdded" and told["level"] == "error":
            self.complaints.append(str(told["text"]))
        elif message.get("method") == "browsingContext.load":
            self._loaded.add(told["navigation"])
        return message


@contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """A Firefox without a window, with a profile of its own; it is ended with its processes."""
    assert FIREFOX is not None
    profile.mkdir(parents=True, exist_ok=True)
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(profile)]
    # its messages go to a file: nobody reads a pipe, and a full one would stop it
    with (
        (profile / "said.txt").open("wb") as said,
        subprocess.Popen(
            [*command, f"--remote-debugging-port={port}"], stdout=said, stderr=said, cwd=profile
        ) as process,
    ):
        try:
            with _connected(port, process) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _connected(port: int, process: "subprocess.Popen[bytes]") -> Iterator[ClientConnection]:
    ends = time.monotonic() + SECONDS
    while True:
        try:
            with connect(f"ws://127.0.0.1:{port}/session", max_size=2**26) as connection:
                yield connection
            return
        except (OSError, ConnectionClosed):
            # not listening yet
            assert process.poll() is None, "firefox has ended"
            assert time.monotonic() < ends, "firefox does not listen"
            time.sleep(0.1)

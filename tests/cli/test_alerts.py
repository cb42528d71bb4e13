"""Alerts by `limner watch --alert` and `limner store alerts`: in a process of its own until it is stopped."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from limner.alert_reports import AlertReport, SavedAlert
from limner.store.alerts import alerts_of
from limner.store.files import StoreFiles
from tests.cli.command import Limner, refused
from tests.cli.test_watch import LONG, own
from tests.forked import run_python, started
from tests.search.test_hooks import Receiver, receiving

__all__ = ["own"]

pytest.importorskip("watchfiles")


def until(holds: Callable[[], bool], process: object, log: Path) -> None:
    late = time.monotonic() + LONG
    while not holds():
        assert process.is_alive(), log.read_text()  # type: ignore[attr-defined]
        assert time.monotonic() < late, log.read_text()
        time.sleep(0.1)


@pytest.mark.parametrize("in_json", [True, False])
def test_watch_saves_an_alert_and_tells(
    limner: Limner, own: Path, pictures: Path, tmp_path: Path, in_json: bool
) -> None:
    """Each picture once over two processes, and to the web hook, too."""
    log, photos = tmp_path / "log", tmp_path / "photos"
    more = sorted(pictures.glob("*.png"))[30:33]
    # before it begins: this is told, since it is not in the store
    shutil.copy(more[0], photos / "first.png")

    def told() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        if not in_json:
            return re.findall(r"alert red: (\S+), cosine -?\d\.\d\d", "\n".join(lines))
        reports = [AlertReport.model_validate_json(line) for line in lines if '"alert":' in line]
        return [hit.name for report in reports for hit in report.hits]

    def watched(receiver: Receiver, name: str, *arguments: str) -> None:
        log.unlink(missing_ok=True)
        given = ("-m", "limner", "watch", str(own), "--cpu", *(["--json"] if in_json else []), *arguments)
        process = started(run_python, given, log)
        try:
            until(lambda: name in told(), process, log)
            until(lambda: len(alerts_of(StoreFiles.open(own))) == 1, process, log)
            until(
                lambda: receiver.bodies[-1:] != [] and receiver.bodies[-1]["hits"][0]["name"] == name,
                process,
                log,
            )
            time.sleep(3)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)
            process.join(LONG)
        finally:
            process.kill()
        assert told() == [name]

    with receiving() as receiver:
        alert = ("--alert", "red", "a person in red", "--at-least", "0", "--hook", f"{receiver.url}/secret")
        watched(receiver, "first.png", *alert)
        assert "alert red is saved: it tells of new pictures with a cosine of at least 0, " in log.read_text()
        shutil.copy(more[1], photos / "second.png")
        watched(receiver, "second.png")
        assert len(receiver.bodies) == 2
    listed = limner("store", "alerts", own)
    host = receiver.url.removeprefix("http://")
    assert listed.out == f"red: 'a person in red', cosine of at least 0, web hook at {host}\n"
    assert (
        SavedAlert.model_validate(json.loads(limner("store", "alerts", own, "--json").out)[0]).name == "red"
    )
    refused(limner("store", "alerts", own, "--delete", "rde"), "no alert is called 'rde'; did you mean 'red'")
    assert limner("store", "alerts", own, "--delete", "red").err == f"{own}: no alerts\n"


def test_a_fact_that_no_picture_has_is_said(
    limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come with later pictures, so it is no mistake."""
    monkeypatch.setattr("limner.search.watch.watch", lambda *given, **named: None)
    alert = ("--alert", "a", "red", "--at-least", "0", "--where", "camera=cam_a")
    assert "no picture has 'camera'\nalert a is saved: " in limner("watch", own, "--cpu", *alert).err


def test_a_mistake_is_one_line(limner: Limner, own: Path) -> None:
    def wrong(*arguments: object, said: str) -> None:
        refused(limner("watch", own, "--cpu", *arguments), said)

    wrong("--alert", "a", "red", said="--alert: is of no use alone; give --at-least")
    wrong("--at-least", "0.5", said="--at-least: is of no use alone; give --alert")
    alert = ("--alert", "a", "red", "--at-least")
    wrong(*alert, "1.5", said="at_least")
    wrong(*alert, "0.5", "--hook", "example.org", said="hook: expected an address")
    wrong(*alert, "0.5", "--send-picture", said="give --hook")
    wrong(*alert, "0.5", "--where", "camera", said="camera")
    wrong("--alert", "a", "zzzz qqqq", "--at-least", "0.5", said="zzzz")
    assert not alerts_of(StoreFiles.open(own))

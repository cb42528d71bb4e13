import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from limner.cli import console
from limner.one_line import one_line


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal that shows the bars is sent."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(console, "err", console.Screen("stderr", terminal))
    return screen


def test_consoles_print_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for printer in (console.out, console.err):
        printer.print("/data/:dog:/[bold]1[/].jpg")
    said = capsys.readouterr()
    assert said.out == said.err == "/data/:dog:/[bold]1[/].jpg\n"


def test_a_line_is_there_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a file or a service's log, whose streams keep what they are given for a while."""
    for name in ("stdout", "stderr"):
        with (tmp_path / name).open("w") as stream:
            monkeypatch.setattr(sys, name, stream)
            console.Screen(name).print("one more picture")
            assert (tmp_path / name).read_text() == "one more picture\n"
            monkeypatch.undo()


def test_a_line_holds_no_command_of_a_terminal() -> None:
    name = "a\nb\x1b[31m\x9b\u2028\udcff é 日本 \u3000👩\u200d🎨.jpg"
    assert one_line(name) == "a\\nb\\x1b[31m\\x9b\\u2028\\udcff é 日本 \u3000👩\u200d🎨.jpg"


def test_a_bar_shows_its_name_as_it_is_with_count_and_time_left(terminal: io.StringIO) -> None:
    with console.counting("[b]:x: pictures") as progress:
        progress(3, 7)
    assert "[b]:x: pictures" in terminal.getvalue()
    assert "3/7" in terminal.getvalue()


def test_each_thing_that_is_counted_has_a_bar(terminal: io.StringIO) -> None:
    with console.counting_each("pictures") as progress:
        for done in (3, 7):
            progress("pictures", done, 7)
        progress("sentences", 5, 14)
    for shown in ("pictures", "7/7", "sentences", "5/14"):
        assert shown in terminal.getvalue()


def test_a_file_gets_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with console.counting("pictures") as progress:
        progress(3, 7)
    assert capsys.readouterr().err == ""

"""Names, captions and facts that hold commands of a terminal, printed by every command that prints such."""

import ast
import io
import json
import shutil
import unicodedata
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import limner
from limner.cli import console, search_queries
from limner.cli.escaping_console import EscapingConsole
from tests.cli.command import Limner

EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\nfake: 1 deleted\r\u2028\x7f"


def harmless(said: str) -> None:
    assert "owned" in said
    assert not {
        unicodedata.name(one, ascii(one)) for one in said if unicodedata.category(one) in ("Cc", "Zl")
    } - {ascii("\n")}
    assert not [line for line in said.splitlines() if line.startswith("fake:")]


@pytest.fixture
def evil(pictures: Path, tmp_path: Path) -> Path:
    """Two pictures, one that is broken, and captions, in a folder of such a name."""
    folder = tmp_path / f"in {EVIL}"
    folder.mkdir()
    first, second, *_ = sorted(pictures.glob("*.png")) or sorted(pictures.iterdir())
    names = [f"{EVIL}{number}{first.suffix}" for number in range(3)]
    for source, name in zip((first, second), names, strict=False):
        shutil.copy(source, folder / name)
    (folder / names[2]).write_bytes(b"\xff\xd8\xff none")
    rows = [
        {"file": name, "caption": f"a {EVIL} square", "identity": EVIL, "split": "test"} for name in names
    ]
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    facts = [{"file": name, "identity": EVIL, EVIL: EVIL} for name in names[:2]]
    (folder / "facts.jsonl").write_text("\n".join(map(json.dumps, facts)), encoding="utf-8")
    return folder


def test_every_command_escapes_them(limner: Limner, toy_run: Path, evil: Path, tmp_path: Path) -> None:
    store, sentences = tmp_path / f"store {EVIL}", tmp_path / f"{EVIL}.txt"
    sentences.write_text(f"a red square {EVIL.replace(chr(10), ' ')}", encoding="utf-8")
    one, two, _ = (str(path) for path in sorted(evil.iterdir()) if path.suffix != ".jsonl")
    commands: list[tuple[object, ...]] = [
        ("data", "check", f"folder:{evil}"),
        ("index", toy_run, store, evil, "--metadata", evil / "facts.jsonl"),
        ("index-sentences", toy_run, store, sentences),
        ("search", store, "a square"),
        ("search", store, "a square", "--where", f"{EVIL}x=1"),
        ("search", store, "--like", one),
        ("search", store, "--like", f"none{EVIL}"),
        ("search", store, "a square", "--sentences"),
        ("search", store, f"square {EVIL}"),
        ("store", "list", store),
        ("store", "info", store),
        ("store", "verify", store),
        ("store", "delete", store, one, "--dry-run"),
        ("store", "delete", store, f"none{EVIL}"),
        ("store", "erase", store, "--identity", EVIL, "--dry-run"),
        ("store", "erase", store, "--identity", f"{EVIL}x", "--path", f"none{EVIL}"),
        ("evaluate", toy_run, "--data", f"folder:{evil}", "--split", "test"),
        ("score", f"{EVIL}.run", "--qrels", f"{EVIL}.qrels"),
        ("serve", f"none{EVIL}"),
        # behind a picture that is gone: what names those that cannot be encoded again
        ("store", "delete", store, "--missing", "--dry-run"),
        ("store", "erase", store, "--identity", EVIL),
    ]
    for command in commands:
        if "--missing" in command:
            Path(two).unlink()
        done = limner(*command)
        harmless(done.out + done.err)


def test_tables_and_bars_are_escaped_where_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", console.Screen("stderr", EscapingConsole(file=screen, width=200)))
    table = Table(title=EVIL, caption=Text(EVIL))
    table.add_column(Text(EVIL))
    table.add_row(EVIL)
    console.err.print(table)
    console.err.print(EVIL)
    console.err.print_lines(f"{EVIL}\nsecond")
    assert screen.getvalue().count("owned") == 6
    assert not {one for one in screen.getvalue() if unicodedata.category(one) in ("Cc", "Zl")} - {"\n"}


def test_tables_and_runs_are_exact_but_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(console.Screen, "is_terminal", terminal)
        search_queries._print_row([EVIL])
        search_queries._echo(f"{EVIL} Q0")
        said = capsys.readouterr().out
        assert ("\x1b" in said) != terminal
        assert len(said.split("\n")) == (3 if terminal else 5)


def test_only_the_consoles_write_to_the_streams() -> None:
    """A command that wrote past them could forget to escape."""
    files = Path(limner.__file__).parent.joinpath("cli").glob("*.py")
    writing = {
        file.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write", "sys.stderr.write")
    }
    # JSON, which escapes; CSV and runs; the error boundary; the version
    assert writing == {"contract.py", "search_queries.py", "main.py", "root.py"}

import json
from pathlib import Path

from limner.server.tokens import Tokens
from tests.cli.command import Limner, refused


def test_add_list_and_revoke(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    added = limner("token", "add", file, "ann", "--rights", "search, erase")
    assert (added.code, len(added.out.splitlines())) == (0, 1)
    assert "the only time" in added.err
    tokens = Tokens(None, file)
    found = tokens.find(added.out.strip().encode())
    assert found is not None
    assert (found.name, sorted(found.rights)) == ("ann", ["erase", "search"])
    told = json.loads(limner("token", "add", file, "bo", "--json").out)
    assert (told["name"], told["rights"], tokens.find(told["token"].encode()) is None) == (
        "bo",
        ["search"],
        False,
    )
    listed = json.loads(limner("token", "list", file, "--json").out)
    assert [(one["name"], one["rights"]) for one in listed] == [
        ("ann", ["search", "erase"]),
        ("bo", ["search"]),
    ]
    shown = limner("token", "list", file).out
    assert "ann  search,erase" in shown
    assert told["token"] not in shown
    assert limner("token", "revoke", file, "ann").code == 0
    assert limner("token", "revoke", file, "bo").code == 0
    assert tokens.find(told["token"].encode()) is None
    assert "no tokens" in limner("token", "list", file).err


def test_rights_may_be_repeated(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    several = ("--rights", "search", "--rights", "add,erase", "--rights", "add")
    told = json.loads(limner("token", "add", file, "ann", *several, "--json").out)
    assert told["rights"] == ["search", "add", "erase"]
    refused(limner("token", "add", file, "bo", "--rights", "search", "--rights", "x"), "got 'x'")


def test_mistakes(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    refused(
        limner("token", "add", file, "ann", "--rights", "search,delete"), "search, add, erase, got 'delete'"
    )
    refused(limner("token", "add", file, "ann", "--rights", ""), "--rights")
    assert not file.exists()
    refused(limner("token", "add", file, "a b"), "expected a name")
    limner("token", "add", file, "ann")
    refused(limner("token", "add", file, "ann"), "revoke it first")
    refused(limner("token", "revoke", file, "bo"), "no token 'bo'")
    refused(limner("token", "list", tmp_path / "missing"), "cannot be read")


def test_the_command_says_until_when(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    made = limner("token", "add", file, "ann", "--expires", "2999-01-31")
    assert "may search until 2999-01-31" in made.err
    assert limner("token", "list", file).out.rstrip().endswith("until 2999-01-31")
    assert json.loads(limner("token", "list", file, "--json").out)[0]["expires"] == "2999-01-31"
    file.write_text(file.read_text().replace("2999-01-31", "2025-01-31"))
    assert limner("token", "list", file).out.rstrip().endswith("until 2025-01-31, which is over")
    for wrong in ("tomorrow", "31.1.2999", "2020-01-01"):
        assert limner("token", "add", file, "bob", "--expires", wrong).code == 2

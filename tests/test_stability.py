"""The public surface is the one of the committed snapshot: nothing of it changes or goes without being noticed."""

import json
import re
from pathlib import Path

import pytest

import limner
from docs.public_api import SECTIONS
from tests import api_snapshot

ROOT = Path(__file__).parents[1]
RENEW = "python -m tests.api_snapshot"


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    return api_snapshot.snapshot(tmp_path_factory.mktemp("snapshot"))


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(api_snapshot.FILE.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("kind", ["python", "commands", "http", "files"])
def test_the_surface_is_that_of_the_snapshot(
    kind: str, now: dict[str, dict[str, str]], before: dict[str, dict[str, str]]
) -> None:
    was, found = before[kind], now[kind]
    gone = sorted(was.keys() - found.keys())
    changed = [
        f"{name}: {was[name]} → {found[name]}" for name in was if found.get(name, was[name]) != was[name]
    ]
    new = sorted(found.keys() - was.keys())
    assert not gone, f"taken away, which needs a deprecation first (docs/stability.md); then `{RENEW}`"
    assert not changed, f"changed; see docs/stability.md, then `{RENEW}`"
    assert not new, f"new, and public from now on: renew the snapshot with `{RENEW}`"


def test_the_snapshot_sees_what_it_must(now: dict[str, dict[str, str]]) -> None:
    """Empty kinds would agree with anything."""
    assert now["python"]["limner.train"].startswith("train(")
    assert "(text: str | None=None, *," in now["python"]["limner.Store.search"]
    assert now["python"]["limner.wire.Hit.rank"] == "int"
    assert now["commands"]["limner search -k, --k"] == "NUMBER"
    assert now["commands"]["limner store export --to"] == "TEXT, required"
    assert now["commands"]["limner store export --json StoreExport.pictures"] == "integer, required"
    assert "answers 200" in now["http"]["POST /v1/search"]
    assert now["http"]["schema Hit.score"] == "number, required"
    assert {len(kind) > 5 for kind in now.values()} == {True}


def test_every_name_of_the_package_is_public() -> None:
    named = {section.module: set(section.names) for section in SECTIONS}
    assert named["limner"] | {"__version__"} == set(limner.__all__)


def test_the_page_names_every_format_and_the_command() -> None:
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
    assert RENEW in page
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (\d+) \|", page, re.MULTILINE))
    assert rows == api_snapshot.files()

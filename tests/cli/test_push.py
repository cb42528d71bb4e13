"""`limner push`, and commands that take a run of the hub."""

import json
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.hub.push import push
from tests.cli.command import Limner, refused
from tests.hub.cache import fake_api, put, use

pytest.importorskip("huggingface_hub")


def test_push_says_what_it_does(
    limner: Limner, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = fake_api(monkeypatch)
    refused(limner("push", toy_run, "me/toys", "--quiet"), "without an open licence .*--accept-terms")
    dry = limner("push", toy_run, "me/toys", "--accept-terms", "--dry-run")
    assert dry.code == 0
    assert "# toy\n" in dry.out
    assert "would be published" in dry.out
    assert "name places of this machine: data.source" in dry.err
    unread = limner("push", toy_run, "me/toys", "--dry-run")
    assert (unread.code, unread.out) == (0, dry.out)
    assert "read these terms and give --accept-terms: " in unread.err
    assert api.calls == []
    found = json.loads(limner("push", toy_run, "me/toys", "--accept-terms", "--json").out)
    assert (found["url"], found["private"], found["gated"]) == ("https://huggingface.co/me/toys", True, True)
    assert (found["licence"], found["replaced"]) == ("other", ["data.source"])
    assert set(found["files"]) == set(api.files)
    (tmp_path / "terms.json").write_text("[]")
    refused(
        limner("push", toy_run, "me/toys", "--terms", tmp_path / "terms.json", "--quiet"),
        "--terms .*no JSON object",
    )
    written = limner("push", toy_run, f"{tmp_path}/out/", "--accept-terms")
    assert written.out.splitlines()[-1].startswith(f"{tmp_path}/out: written, model ")
    assert (tmp_path / "out" / "run.json").is_file()


def test_commands_take_a_run_of_the_hub(
    limner: Limner, toy_run: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(toy_run, str(tmp_path / "out"), accept_terms=True)
    put(tmp_path / "out", tmp_path / "cache", "me/toys")
    use(tmp_path / "cache", monkeypatch)
    evaluated = limner("evaluate", "hf:me/toys", "--data", toys.source, "--split", "test", "--cpu")
    assert evaluated.code == 0, evaluated.err
    pictures = toys.records[0].image.parent
    indexed = limner("index", "hf:me/toys", tmp_path / "store", pictures, "--cpu")
    assert indexed.code == 0, indexed.err
    assert limner("search", tmp_path / "store", "a red square", "--cpu").code == 0
    again = limner("reindex", tmp_path / "store", "hf:me/toys", tmp_path / "again", "--cpu")
    assert again.code == 0, again.err
    assert "zheng2020dual" in limner("cite", "hf:me/toys").out
    refused(limner("evaluate", "hf:me/other", "--data", toys.source, "--cpu"), "is not in the local cache")

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference.evaluations import logged
from tests.cli.command import Limner, refused


@pytest.fixture
def tasks(toys: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """MTEB with two tasks in memory, in place of those that need a network."""
    pytest.importorskip("mteb")
    from tests.test_mteb import task

    made = {"ToysI2T": task(toys, "i2t"), "ToysT2I": task(toys, "t2i")}
    monkeypatch.setattr("limner.mteb.find_tasks", lambda names: [made[name] for name in names])


def _looks(run: Path, fingerprint: str) -> int:
    return sum(one["split_fingerprint"] == fingerprint for one in logged(run))


@pytest.mark.parametrize("search", [False, True])
@pytest.mark.usefixtures("tasks")
def test_hit_rate_is_printed(search: bool, limner: Limner, toy_run: Path, tmp_path: Path) -> None:
    written = tmp_path / "scores.json"
    given = ["mteb", toy_run, "--tasks", "ToysI2T,ToysT2I", "--out", written]
    given += ["--search"] if search else []
    counts = [partial(_looks, toy_run, f"MTEB {task} default test") for task in ("ToysI2T", "ToysT2I")]
    before = [looks() for looks in counts]
    done = limner(*given)
    assert done.code == 0, done
    assert "hit_rate_at_1 is the R@1 of papers" in " ".join(done.out.split())
    assert "a perfect model has 0.2" in " ".join(done.out.split())
    found = json.loads(limner(*given, "--json").out)
    assert [row["task"] for row in found["tasks"]] == ["ToysI2T", "ToysT2I"]
    assert found["search"] is search
    assert found["precision"] == "fp32"
    assert ", in fp32" in done.out
    first = found["tasks"][0]
    # two sentences a picture
    assert first["scores"]["recall_at_1"] == pytest.approx(first["scores"]["hit_rate_at_1"] / 2, abs=1e-5)
    assert f"{first['scores']['hit_rate_at_1']:.4f}" in done.out
    # two calls, each a reading of both tasks
    assert [looks() - count for looks, count in zip(counts, before, strict=True)] == [2, 2]
    whole = json.loads(written.read_text(encoding="utf-8"))
    assert whole["fingerprint"].startswith(whole["model"]["revision"])
    assert whole["results"][0]["scores"]["test"][0]["hit_rate_at_1"] == first["scores"]["hit_rate_at_1"]
    assert str(tmp_path) not in written.read_text(encoding="utf-8")
    half = json.loads(limner(*given, "--precision", "bf16", "--json").out)
    assert half["precision"] == json.loads(written.read_text(encoding="utf-8"))["precision"] == "bf16"


@pytest.mark.usefixtures("tasks")
def test_mistakes_are_told_before_anything_is_encoded(limner: Limner, toy_run: Path, tmp_path: Path) -> None:
    refused(limner("mteb", toy_run, "--tasks", ","), "name at least one")
    refused(limner("mteb", toy_run, "--tasks", "ToysI2T", "--rerank", "5"), "measured; give --search")
    refused(limner("mteb", toy_run, "--tasks", "ToysI2T", "--search", "--rerank", "5"), "no reranker")
    nowhere = tmp_path / "nowhere" / "scores.json"
    refused(limner("mteb", toy_run, "--tasks", "ToysI2T", "--out", nowhere), "no such folder")


def test_without_mteb_the_extra_is_named(
    limner: Limner, toy_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as Python treats a module that is not there
    monkeypatch.setitem(sys.modules, "mteb", None)
    refused(limner("mteb", toy_run, "--tasks", "Flickr30kT2IRetrieval"), r"limner\[mteb\]")

"""The torture finds what is planted: a check that cannot fail would say nothing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.torture import fuzz, shutdown, soak, writers
from benchmarks.torture.commands import Result, called
from benchmarks.torture.contents import NOTHING, Contents, contents_of, expect_gone, expect_line, run_of
from benchmarks.torture.killing import counted, listing
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import Workshop, exchange, indexed


def test_contents_of_two_stores_differ_by_a_row_a_vector_and_a_sentence(shop: Workshop) -> None:
    store, paths = indexed(shop, shop.folder / "one")
    outcome = Outcome()
    now = contents_of(store, outcome, "now")
    assert not outcome.findings
    assert not now.differs(now)
    assert len(now.rows) == 36
    assert called("store", "delete", store, paths[3]).code == 0
    fewer = contents_of(store, outcome, "later")
    assert fewer.differs(now) == "35 pictures and 36"
    query, scores = next(iter(now.answers.items()))
    turned = {**now.answers, query: {**scores, str(paths[0]): 0.123}}
    assert "score" in replace(now, answers=turned).differs(now)
    assert "sentences" in replace(now, sentences=("a",)).differs(now)
    assert not outcome.findings


def test_a_store_that_is_damaged_is_found(shop: Workshop) -> None:
    store, _ = indexed(shop, shop.folder / "one")
    for path in store.rglob("*"):
        # a kept model is linked from its run, which others use
        if path.is_file() and path.stat().st_nlink == 1:
            path.write_bytes(b"")
    outcome = Outcome()
    contents_of(store, outcome, "damaged")
    assert outcome.findings


def test_what_was_erased_is_found_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_bytes(b"\0\1/pictures/7.png\2")
    outcome = Outcome()
    expect_gone(tmp_path, ("/pictures/8.png",), outcome, "erase")
    assert not outcome.findings
    expect_gone(tmp_path, ("/pictures/8.png", "/pictures/7.png"), outcome, "erase")
    assert outcome.findings == ["erase: 7.png is still in data/rows"]


def test_a_run_differs_by_a_tensor_and_by_a_line_of_its_log(shop: Workshop) -> None:
    run = shutil.copytree(shop.other, shop.folder / "run")
    whole = run_of(run)
    (run / "last.safetensors").unlink()
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[:-1]), encoding="utf-8")
    now = run_of(run)
    assert {name for name in whole if now.get(name) != whole[name]} == {
        "files",
        "metrics",
        "last.safetensors",
    }


def test_changes_of_a_folder_are_counted(shop: Workshop) -> None:
    folder = shop.fresh("counted")
    before = listing(folder)
    result, changes = counted(
        folder, "index", shop.run, folder / "store", shop.pictures, "--batch", 4, "--cpu"
    )
    assert result.code == 0
    assert changes > 5
    assert listing(folder) != before


def test_a_last_change_that_was_acknowledged_and_lost_is_found() -> None:
    changes = [
        writers.Change("g", 0, 1, 5),
        writers.Change("g", 2, 3, 6),
        writers.Change("g", 4, 5, None),
        writers.Change("h", 2, 3, 7),
        writers.Change("h", 4, 5, 0),
    ]

    def found(generations: dict[str, int]) -> list[str]:
        outcome = Outcome()
        rows: dict[str, dict[str, object]] = {
            f"/{group}/{place}.png": {"metadata": {"generation": generation}}
            for group, generation in generations.items()
            for place in range(4)
        }
        writers.expect_last(rows, changes, outcome)
        return outcome.findings

    assert not found({"g": 6})
    assert found({"g": 5}) == ["g: generations {5}, the last change was {6}"]
    assert found({"g": 6, "h": 7}) == ["h: generations {7}, the last change was {0}"]
    assert found({})


def test_what_rises_is_found() -> None:
    flat = [{"resident": 400.0 * 2**20, "descriptors": 50.0, "threads": 30.0}] * 20
    rising = [
        {"resident": (400.0 + 5 * n) * 2**20, "descriptors": 50.0 + 3 * n, "threads": 30.0 + n}
        for n in range(20)
    ]
    for samples, number in ((flat, 0), (rising, 3)):
        outcome = Outcome()
        soak.expect_flat(samples, outcome, warm=True)
        assert len(outcome.findings) == number


def test_a_request_without_an_answer_is_found() -> None:
    outcome = Outcome()
    sent = [shutdown.Sent(0, True, 201, "a"), shutdown.Sent(0, False, 503), shutdown.Sent(0, False, 200)]
    shutdown.expect_answered(sent, outcome)
    assert not outcome.findings
    shutdown.expect_answered(
        [shutdown.Sent(0, True, None, error="ReadError"), shutdown.Sent(0, False, 500)], outcome
    )
    assert len(outcome.findings) == 2


def test_a_stack_trace_is_found(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shop.folder / "results.npz"
    file.write_bytes(b"no archive")
    kind = fuzz.Kind(file, ("score", file), ())
    outcome = Outcome()
    fuzz.judge("npz", "planted", kind, outcome)
    assert not outcome.findings
    fuzz.judge("npz", "sound", kind, outcome, expected=(0,))
    assert len(outcome.findings) == 1

    def broken(*arguments: object) -> Result:
        raise IndexError("list index out of range")

    monkeypatch.setattr(fuzz, "called", broken)
    fuzz.judge("npz", "planted", kind, outcome)
    assert "IndexError at test_findings.py" in outcome.findings[1]


def test_a_refusal_is_one_line_and_exit_code_2() -> None:
    outcome = Outcome()
    expect_line(Result(("index",), 2, "", "limner: no space left\n"), outcome, "full")
    assert not outcome.findings
    for code, err in ((1, "limner: no\n"), (2, "limner: no\nand\n"), (2, "Traceback\n"), (-9, "")):
        expect_line(Result(("index",), code, "", err), outcome, "full")
    assert len(outcome.findings) == 4


def test_pictures_exchange_their_bytes(shop: Workshop) -> None:
    paths = shop.copy_of_toys(shop.folder / "copies")[:3]
    before = [path.read_bytes() for path in paths]
    exchange(paths)
    after = [path.read_bytes() for path in paths]
    assert sorted(after) == sorted(before)
    assert all(one != other for one, other in zip(after, before, strict=True))


def test_an_outcome_survives_json() -> None:
    outcome = Outcome()
    outcome.count("kills", 3)
    outcome.figures["resident"] = [1.0, 2.0]
    outcome.find("a  line\nbreak")
    again = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert again == outcome
    assert again.findings == ["a line break"]
    assert Contents({}, {}, ()) == NOTHING

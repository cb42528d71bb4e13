"""`limner search --queries`: many queries in one process."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from limner.cli.search_queries import QueryAnswer, read_queries
from limner.errors import DataError, SettingsError
from limner.store.entry import Place
from limner.store.files import StoreFiles
from tests.cli.command import Limner, refused

TEXTS = {"q1": "a red square on white", "q2": "a blue circle", "3": "a red bar"}


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    file = tmp_path / "queries.tsv"
    file.write_text("q1\ta red square on white\nq2\ta blue circle\na red bar\n\n", encoding="utf-8")
    return file


def test_each_answer_is_that_of_a_search_of_its_own(limner: Limner, store: Path, queries: Path) -> None:
    together = limner("search", store, "--queries", queries, "-k", 4, "--group", "identity", "--cpu")
    assert (together.code, together.err) == (0, "")
    lines = [QueryAnswer.model_validate_json(line) for line in together.out.splitlines()]
    assert {line.query: line.text for line in lines} == TEXTS
    for line in lines:
        alone = limner("search", store, line.text, "-k", 4, "--group", "identity", "--cpu", "--json")
        assert line.answer is not None
        told = json.loads(alone.out)
        assert [hit.path for hit in line.answer.hits] == [Path(hit["path"]) for hit in told["hits"]]
        for ours, theirs in zip(line.answer.hits, told["hits"], strict=True):
            # texts that are encoded together may differ in the last bit
            assert ours.score == pytest.approx(theirs["score"], abs=1e-5)


def test_stdin_and_json(limner: Limner, store: Path, queries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_file = limner("search", store, "--queries", queries, "--cpu").out
    monkeypatch.setattr("sys.stdin", io.StringIO(queries.read_text(encoding="utf-8")))
    of_stdin = limner("search", store, "--queries", "-", "--cpu", "--json").out
    names = [[json.loads(line)["query"] for line in out.splitlines()] for out in (of_file, of_stdin)]
    assert names[0] == names[1] == list(TEXTS)


def test_csv_has_a_line_a_hit_and_one_for_what_cannot_be_answered(
    limner: Limner, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("=q\ta red square, on white\nnone\tzxqv zxqw\n", encoding="utf-8")
    done = limner("search", store, "--queries", file, "--format", "csv", "-k", 3, "--cpu")
    assert done.code == 1
    rows = list(csv.DictReader(io.StringIO(done.out)))
    alone = json.loads(limner("search", store, "a red square, on white", "-k", 3, "--cpu", "--json").out)[
        "hits"
    ]
    assert [(row["query"], row["text"], row["rank"], row["path"]) for row in rows[:3]] == [
        ("'=q", "a red square, on white", str(hit["rank"]), hit["path"]) for hit in alone
    ]
    assert (rows[3]["query"], rows[3]["rank"], len(rows)) == ("none", "", 4)
    assert rows[3]["error"]


def test_a_trec_run_is_what_score_reads(limner: Limner, store: Path, queries: Path, tmp_path: Path) -> None:
    run = limner("search", store, "--queries", queries, "--format", "trec", "-k", 5, "--cpu")
    assert run.code == 0
    fields = [line.split(" ") for line in run.out.splitlines()]
    assert [field[0] for field in fields] == [name for name in TEXTS for _ in range(5)]
    assert [field[3:] for field in fields[:5]] == [[str(n), str(6 - n), "limner"] for n in range(1, 6)]
    (tmp_path / "ours.run").write_text(run.out, encoding="utf-8")
    (tmp_path / "qrels").write_text(f"q1 0 {fields[1][2]} 1\nq2 0 nothing 1\n", encoding="utf-8")
    scored = limner(
        "score", tmp_path / "ours.run", "--qrels", tmp_path / "qrels", "--measures", "R@1 R@5", "--json"
    )
    assert json.loads(scored.out)["values"] == {"R@1": 0.0, "R@5": 50.0}


def test_each_file_of_a_picture_is_a_line_of_a_run(
    limner: Limner, store: Path, queries: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(store, tmp_path / "store"))
    files = StoreFiles.open(own)
    with files.changing() as writer:
        writer.update(
            [image.at([*image.places, Place(f"/copies/{image.id}", 1)]) for image in files.images()]
        )
    for by, each in (("path", 2), ("id", 1)):
        lines = limner(
            "search", own, "--queries", queries, "--format", "trec", "-k", 3, "--names", by, "--cpu"
        ).out
        items = [line.split()[2:5] for line in lines.splitlines()][: 3 * each]
        assert [(rank, score) for _, rank, score in items] == [
            (str(rank), str(3 * each + 1 - rank)) for rank in range(1, 3 * each + 1)
        ]
        assert [name.startswith("/copies/") for name, *_ in items] == 3 * (
            [False, True] if each == 2 else [False]
        )


def test_a_query_that_cannot_be_answered_leaves_the_others_alone(
    limner: Limner, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("zebra crossing\na red bar\n", encoding="utf-8")
    done = limner("search", store, "--queries", file, "--cpu")
    assert done.code == 1
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert first["answer"] is None
    assert "knows no word" in first["error"]
    assert (second["query"], second["error"]) == ("2", None)
    assert "1: " in done.err
    trec = limner("search", store, "--queries", file, "--format", "trec", "--cpu")
    assert trec.code == 1
    assert {line.split()[0] for line in trec.out.splitlines()} == {"2"}


def test_names_with_blanks_stay_one_field(limner: Limner, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("my 100% query\ta red bar\n", encoding="utf-8")
    line = limner("search", store, "--queries", file, "--format", "trec", "-k", 1, "--cpu").out
    assert line.split(" ")[0] == "my%20100%25%20query"


def test_mistakes(limner: Limner, store: Path, queries: Path, tmp_path: Path) -> None:
    refused(limner("search", store, "--queries", tmp_path / "none"), "no such file; give one query a line")
    refused(limner("search", store, "red", "--queries", queries), "leave out TEXT")
    refused(
        limner("search", store, "red", "--format", "trec"),
        "--format: is of many answers; give --queries or --vectors",
    )
    refused(limner("search", store, "--queries", queries, "--format", "xml"), "'jsonl', 'csv' or 'trec'")
    refused(limner("search", store, "--queries", queries, "--sentences"), "--sentences: goes with")
    both = limner("search", store, "--queries", queries, "--format", "trec", "--json")
    assert "leave out --json" in json.loads(both.err)["error"]["message"]
    both = limner("search", store, "--queries", queries, "--format", "csv", "--json")
    assert "CSV is no JSON" in json.loads(both.err)["error"]["message"]


def test_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queries"
    # with the mark of the encoding by which some programs begin a text, and without it
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_bytes("q\tä b\r\n\r\n\t c\n".encode(encoding))
        assert [(one.name, one.text) for one in read_queries(str(file))] == [("q", "ä b"), ("", "c")]
    file.write_text("q\ta\nq\tb\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2: the name 'q' stands there twice"):
        list(read_queries(str(file)))
    file.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="line 1: UTF-8 text was expected"):
        list(read_queries(str(file)))
    with pytest.raises(SettingsError, match="no such file"):
        list(read_queries(str(tmp_path)))

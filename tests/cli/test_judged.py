"""From marks to test data, the whole way: a server's export, `limner search --queries`, `limner score`."""

import json
import zipfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import limner as library
from limner.server.app import create_app
from tests.cli.command import Limner, refused

TEXTS = ("a red square on white", "a blue circle", "=a red bar")


def test_use_becomes_test_data(limner: Limner, store: Path, tmp_path: Path) -> None:
    opened = library.open_store(store, device="cpu")
    searches = []
    expected = []
    for text in TEXTS:
        hits = opened.search(text, k=10).hits
        # somebody looks at ten and finds the identity of the third right
        right = [hit for hit in hits if hit.identity == hits[2].identity]
        expected.append(right[0].rank)
        pictures = [{"id": hit.id, "mark": "right" if hit in right else "wrong"} for hit in hits[:9]]
        searches.append({"text": f" {text}\n", "pictures": [*pictures, {"id": hits[9].id, "mark": "maybe"}]})
    # a search by a picture is no line of the queries, and must not count as missed
    searches.append({"like": hits[0].id, "pictures": [{"id": hits[1].id, "mark": "right"}]})
    with TestClient(create_app(opened)) as client:
        answer = client.post("/v1/export", json={"form": "zip", "searches": searches})
    assert answer.status_code == 200, answer.text
    (tmp_path / "export.zip").write_bytes(answer.content)
    with zipfile.ZipFile(tmp_path / "export.zip") as packed:
        packed.extractall(tmp_path)
    command = ("search", store, "--queries", tmp_path / "queries.tsv", "--format", "trec", "-k", 10, "--cpu")
    run = tmp_path / "answers.run"
    run.write_text(limner(*command, "--names", "id").out, encoding="utf-8")
    qrels = ("--qrels", tmp_path / "qrels.txt")
    scored = limner("score", run, *qrels, "--measures", "R@1 MedR", "--json")
    assert scored.code == 0, scored.err
    found = json.loads(scored.out)
    first = 100 * sum(rank == 1 for rank in expected) / len(expected)
    assert found["values"] == {"R@1": pytest.approx(first), "MedR": sorted(expected)[1]}
    # by path, as a run has them without the option, nothing is found
    run.write_text(limner(*command).out, encoding="utf-8")
    by_path = limner("score", run, *qrels, "--measures", "R@1", "--json")
    assert json.loads(by_path.out)["values"] == {"R@1": 0.0}


def test_names_need_a_trec_run(limner: Limner, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "queries"
    file.write_text("a red bar\n", encoding="utf-8")
    refused(
        limner("search", store, "--queries", file, "--names", "id"),
        "--names: is of a TREC run.*; give --format=trec",
    )
    refused(
        limner("search", store, "--queries", file, "--format", "trec", "--names", "key"), "'path' or 'id'"
    )

"""`limner index --vectors` and `limner search --vectors`: embeddings that another program has computed."""

import json
from pathlib import Path

import numpy as np

from tests.cli.command import Limner, refused
from tests.search.fake import draw

COUNT = 8


def test_the_commands(limner: Limner, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(COUNT, 6)).astype(np.float32)
    names = [f"{number}.png" for number in range(COUNT)]
    for number, name in enumerate(names):
        draw(tmp_path / name, number)
    file, store = tmp_path / "given.npz", tmp_path / "store"
    np.savez(file, images=vectors, image_names=names, image_groups=np.arange(COUNT) // 4)
    told = limner("index", "theirs", store, "--vectors", file, "--json")
    assert json.loads(told.out)["added"] == COUNT
    assert "whose model limner has not" in limner("store", "info", store).out
    queries = tmp_path / "queries.npz"
    np.savez(queries, sentences=vectors[[4, 2]], sentence_names=["four", "two"])
    found = [
        json.loads(line) for line in limner("search", store, "--vectors", queries, "-k", 1).out.splitlines()
    ]
    assert [(one["query"], one["answer"]["hits"][0]["name"]) for one in found] == [
        ("four", "4.png"),
        ("two", "2.png"),
    ]
    run = limner("search", store, "--vectors", queries, "--format", "trec", "-k", 2, "--where", "identity=1")
    assert [line.split(" ")[0] for line in run.out.splitlines()] == ["four", "four", "two", "two"]
    refused(limner("search", store, "a red square"), "a model that limner has not")
    refused(limner("search", store, "red", "--vectors", queries), "--vectors: goes with")
    for more in (["--data", "folder:x"], ["--regions"], ["--batch", 8], ["--engine", "openvino"], ["--cpu"]):
        refused(limner("index", "theirs", store, "--vectors", file, *more), f"leave out {more[0]}")


def test_a_store_is_exported_and_indexed_again(limner: Limner, store: Path, tmp_path: Path) -> None:
    for to, name in (
        ("parquet", "a.parquet"),
        ("lance", "a.lance"),
        ("faiss", "a"),
        ("qdrant-jsonl", "a.jsonl"),
    ):
        told = json.loads(limner("store", "export", store, tmp_path / name, "--to", to, "--json").out)
        facts = json.loads(limner("store", "info", store, "--json").out)
        assert (told["pictures"], told["fingerprint"]) == (facts["pictures"], facts["fingerprint"])
        new = tmp_path / f"new-{to}"
        report = json.loads(limner("index", "theirs", new, "--vectors", tmp_path / name, "--json").out)
        assert (report["added"], report["skipped"]) == (facts["pictures"], [])
        assert limner("store", "list", new).out == limner("store", "list", store).out
    refused(limner("store", "export", store, tmp_path / "a.parquet", "--to", "parquet"), "is there already")
    refused(limner("store", "export", store, tmp_path / "b", "--to", "csv"), "--to: expected parquet")

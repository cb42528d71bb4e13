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
    for more in (
        ["--data", "folder:x"],
        ["--regions"],
        ["--batch", 8],
        ["--engine", "openvino"],
        ["--cpu"],
    ):
        refused(limner("index", "theirs", store, "--vectors", file, *more), f"leave out {more[0]}")

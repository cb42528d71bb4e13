"""`--cluster` of index, reindex and evaluate, with threads in place of a cluster."""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.inference import evaluate_run
from limner.inference.evaluate_run import results_of
from limner.search import cluster
from limner.search.batch_look import Looked, looked_at
from limner.search.image_look import Task
from limner.store.contents import region_features
from limner.store.files import StoreFiles
from limner.types import Encoder
from tests.cli.command import Limner, refused
from tests.search.fake import vectors_of


class Threads:
    def __init__(self, encoder: Encoder, regions: bool) -> None:
        self._encoder, self._regions = encoder, regions

    def looks(self, lists: Iterable[Sequence[Task]]) -> Iterator[Looked]:
        with ThreadPoolExecutor(2) as threads:
            # the last one first: no command may count on the order of answers
            for tasks in reversed(list(lists)):
                print("(raylet) A worker died")
                yield looked_at(tasks, self._encoder, threads, threading.Lock(), regions=self._regions)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What workers are asked for, with a cluster of threads."""
    found: list[dict[str, Any]] = []

    def workers(load: Callable[[], Encoder], fingerprint: str, **options: Any) -> Threads:
        encoder = load()
        assert encoder.fingerprint == fingerprint
        found.append({**options, "encoder": encoder})
        return Threads(encoder, options["regions"])

    @contextmanager
    def connected(address: str) -> Iterator[Any]:
        assert address == "ray://head:10001"
        yield SimpleNamespace(workers=workers)

    monkeypatch.setattr(cluster, "connected", connected)
    return found


def test_the_result_is_that_of_the_plain_command(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    for source in ([pictures], ["--data", f"folder:{pictures}", "--split", "test"]):
        plain = limner("index", toy_run, alone, *source, "--json")
        told = limner("index", toy_run, together, *source, "--cluster", "ray://head:10001", "--json", "--cpu")
        assert told.code == plain.code == 0
        # what Ray says of its workers does not stand in the result
        assert {**json.loads(told.out), "store": str(alone)} == json.loads(plain.out)
        assert "(raylet)" in told.err or not json.loads(told.out)["added"]
    assert StoreFiles.open(together).entries() == StoreFiles.open(alone).entries()
    assert [(one["regions"], one["cpu"]) for one in asked] == [(False, True)] * 2


def test_a_store_is_indexed_again_for_another_model(
    limner: Limner, store: Path, reranking_run: Path, tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    plain = limner("reindex", store, reranking_run, alone, "--json", "--batch", "5")
    told = limner(
        *("reindex", store, reranking_run, together, "--json", "--batch", "5"),
        "--cluster",
        "ray://head:10001",
    )
    assert told.code == plain.code == 0
    assert {**json.loads(told.out), "store": str(alone)} == json.loads(plain.out)
    assert "(raylet)" in told.err
    one, other = StoreFiles.open(alone), StoreFiles.open(together)
    assert one.entries() == other.entries()
    ids = [entry.id for entry in one.entries().values()]
    np.testing.assert_array_equal(vectors_of(one, ids), vectors_of(other, ids))
    # of a model that re-ranks, the workers give region features, too
    assert asked[0]["regions"]
    np.testing.assert_array_equal(region_features(one, ids), region_features(other, ids))


def test_figures_are_those_of_the_plain_command(
    limner: Limner,
    toys: Dataset,
    reranking_run: Path,
    pictures: Path,
    tmp_path: Path,
    asked: list[dict[str, Any]],
) -> None:
    def evaluated(folder: str, *more: object) -> tuple[dict[str, Any], np.ndarray]:
        saved = tmp_path / f"{folder}.npz"
        # a copy: an evaluation is noted in the run's folder
        run = shutil.copytree(reranking_run, tmp_path / folder)
        told = limner(
            *("evaluate", run, "--data", f"folder:{pictures}", "--save", saved, "--json", "--cpu"), *more
        )
        assert told.code == 0, told
        return json.loads(told.out), np.load(saved)["images"]

    for rerank in ("0", "all"):
        plain, one = evaluated(f"plain-{rerank}", "--rerank", rerank)
        told, other = evaluated(f"told-{rerank}", "--rerank", rerank, "--cluster", "ray://head:10001")
        assert told == plain
        np.testing.assert_array_equal(one, other)
    assert [(one["regions"], one["cpu"]) for one in asked] == [(False, True), (True, True)]
    transfer = limner(
        *("evaluate", reranking_run, "--on", f"folder:{pictures}", "--json", "--cluster", "ray://head:10001")
    )
    measures = json.loads(transfer.out)["datasets"][f"folder:{pictures}"]["text_to_image"]
    assert measures == evaluated("whole")[0]["text_to_image"]


def test_what_a_run_has_learnt_from_is_refused_before_workers_begin(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    rows = []
    for record in toys.split("train").records:
        shutil.copy(record.image, tmp_path)
        rows.append({"file": record.image.name, "captions": record.sentences, "split": "test"})
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    moved = ["evaluate", toy_run, "--data", f"folder:{tmp_path}"]
    plain = limner(*moved)
    refused(plain, "the run was trained on")
    assert limner(*moved, "--cluster", "ray://head:10001") == plain
    assert not asked


def test_a_connection_ends_before_the_ranking(
    limner: Limner,
    toy_run: Path,
    pictures: Path,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    connected = cluster.connected

    @contextmanager
    def noted(address: str) -> Iterator[Any]:
        with connected(address) as connection:
            yield connection
        ended.append("connection")

    def ranked(*given: Any, **more: Any) -> Any:
        ended.append("ranking")
        return results_of(*given, **more)

    monkeypatch.setattr(cluster, "connected", noted)
    monkeypatch.setattr(evaluate_run, "results_of", ranked)
    told = limner("evaluate", toy_run, "--data", f"folder:{pictures}", "--cluster", "ray://head:10001")
    assert told.code == 0, told
    assert ended == ["connection", "ranking"]


def test_mistakes_are_one_line(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["index", toy_run, tmp_path / "store", pictures, "--cluster"]
    refused(
        limner(*command, "head:10001"), "--cluster: expected 'local' or ray://HOST:PORT, got 'head:10001'"
    )
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "0")
    refused(limner(*command, "local"), r"Ray is not installed; .*pip install 'limner\[cluster\]'")
    assert not (tmp_path / "store").exists()
    vectors = ["index", "other", tmp_path / "store", "--vectors", tmp_path / "a.npz", "--cluster", "local"]
    refused(limner(*vectors), "leave out --cluster")
    for other in (["--explanations", "--data", f"folder:{pictures}"], ["--composed", f"cirr:{tmp_path}"]):
        refused(limner("evaluate", toy_run, *other, "--cluster", "local"), f"{other[0]}: goes with")

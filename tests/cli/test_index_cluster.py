"""`limner index --cluster`, with threads in place of a cluster."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limner.search import cluster
from limner.search.batch_look import Looked, Task, looked_at
from limner.search.store_files import StoreFiles
from limner.types import Encoder
from tests.cli.command import Limner, refused


class Threads:
    def __init__(self, encoder: Encoder, regions: bool) -> None:
        self._encoder, self._regions = encoder, regions

    def looks(self, lists: Iterable[Sequence[Task]]) -> Iterator[Looked]:
        with ThreadPoolExecutor(2) as threads:
            for tasks in lists:
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

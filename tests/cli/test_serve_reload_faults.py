"""SIGHUP at bad moments: with a model that does not fit the store, and while clients add pictures."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import limner
from limner.cli.root import app
from limner.client import Client
from limner.data.records import Dataset
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.training.loop import train
from tests.cli.served import TIMEOUT, served
from tests.search.fake import draw
from tests.server.serving import added_to
from tests.server.test_counters import value
from tests.toy import toy_recipe

NEW, SAME = "read anew", "goes on as it was"


@pytest.fixture(scope="module")
def other_runs(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of other weights of the same size, and one with vectors of another width."""
    folder, recipe = tmp_path_factory.mktemp("others"), toy_recipe()
    first = recipe.stages[0].replace(epochs=1)
    return {
        name: train(made, toys.split("train"), toys.split("val"), folder / name, cpu=True)
        for name, made in (
            ("weights", recipe.replace(stages=(first,), seed=77)),
            ("width", recipe.replace(stages=(first,), model=recipe.model.replace(dim=8))),
        )
    }


def test_a_model_that_does_not_fit_the_store(
    store: Path, other_runs: dict[str, Path], tmp_path: Path
) -> None:
    own = shutil.copytree(store, tmp_path / "store")
    config = tmp_path / "server.toml"
    config.write_text("port = 0\nrate = 0\n")
    with served(tmp_path, own, "--cpu", "--config", config) as server, Client(server.url) as client:
        before = [(hit.id, hit.score) for hit in client.search("a red square", k=36)]

        def refused(times: int, message: str) -> None:
            server.hang_up(SAME, times)
            assert message in server.log.read_text().splitlines()[-1]
            assert [(hit.id, hit.score) for hit in client.search("a red square", k=36)] == before
            assert value(httpx.get(f"{server.url}metrics").text, "limner_last_reload_successful") == 0
            # it answers, so nobody has to send its clients elsewhere
            assert httpx.get(f"{server.url}readyz").status_code == 200

        for times, run in enumerate(other_runs.values(), 1):
            config.write_text(f'port = 0\nrate = 0\nrun = "{run}"\n')
            refused(times, "built with model ")
        # the store's own model, exchanged for another one on the disk
        config.write_text("port = 0\nrate = 0\n")
        (own / "model").rename(tmp_path / "model")
        shutil.copytree(other_runs["weights"], own / "model")
        refused(3, "model ")
        shutil.rmtree(own / "model")
        (tmp_path / "model").rename(own / "model")
        server.hang_up(NEW)
        assert value(httpx.get(f"{server.url}metrics").text, "limner_last_reload_successful") == 1
        assert [(hit.id, hit.score) for hit in client.search("a red square", k=36)] == before
    assert "Traceback" not in server.log.read_text()


def test_pictures_that_are_added_while_store_and_model_are_exchanged(
    store: Path, pictures: Path, other_runs: dict[str, Path], tmp_path: Path
) -> None:
    """Each that was taken stands in one of the two stores, once, with its file; none is refused."""
    stores = {"a": shutil.copytree(store, tmp_path / "a"), "b": tmp_path / "b"}
    some = sorted(one for one in pictures.iterdir() if one.suffix in (".png", ".jpg"))[:3]
    made = CliRunner().invoke(app, ["index", str(other_runs["weights"]), str(stores["b"]), *map(str, some)])
    assert made.exit_code == 0
    held = {name: len(StoreFiles.open(folder)) for name, folder in stores.items()}
    config = tmp_path / "server.toml"

    def settings(name: str) -> str:
        return f'store = "{name}"\nuploads = "uploads-{name}"\nallow_changes = true\nport = 0\nrate = 0\n'

    config.write_text(settings("a"))
    taken: list[tuple[str, str]] = []
    wrong: list[str] = []
    done = threading.Event()

    def add(url: str, first: int) -> None:
        with Client(url) as client:
            for seed in range(first, first + 1000):
                if done.is_set():
                    return
                try:
                    item = client.add(draw(tmp_path / "new" / f"{seed}.png", seed), name=f"{seed}.png")
                    taken.append((item.id, item.name))
                except Exception as error:
                    wrong.append(repr(error))

    with served(tmp_path, "--cpu", "--config", config) as server:
        threads = [threading.Thread(target=add, args=(server.url, 10_000 * number)) for number in range(1, 3)]
        for one in threads:
            one.start()
        for times, name in enumerate("bababa", 1):
            config.write_text(settings(name))
            server.hang_up(NEW, times)
        done.set()
        for one in threads:
            one.join()
    assert wrong == [], server.log.read_text()
    found: Counter[str] = Counter()
    for name, folder in stores.items():
        files = StoreFiles.open(folder)
        assert verify(files).sound
        added = [item for item in limner.open_store(folder) if "uploads-" in str(item.path)]
        assert len(files) == held[name] + len(added)
        found.update(str(item.metadata["name"]) for item in added)
        # a file for each row, and none without
        assert sorted(str(item.path) for item in added) == [
            str(path) for path in added_to(tmp_path / f"uploads-{name}")
        ]
        assert added, f"no picture came into {name}"
    assert found == Counter(name for _, name in taken)


_AT_ONCE = """
import os, signal
from limner.cli.main import main
from limner.server.connections import Server
run = Server.run
Server.run = lambda self, sockets: os.kill(os.getpid(), signal.SIGHUP) or run(self, sockets)
main()
"""


def test_a_signal_before_the_server_listens_to_it_is_not_lost(store: Path, tmp_path: Path) -> None:
    """Whoever reads the address may send it at once."""
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _AT_ONCE, "serve", str(store), "--port", "0", "--cpu"]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        try:
            until = time.monotonic() + TIMEOUT
            while NEW not in log.read_text() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            assert NEW in log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# before the first module of limner
from tests.type_checks import begin_test

# isort: split
from limner.data.records import Dataset
from limner.training.loop import train
from tests.recordings import keep_recordings
from tests.skips import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401 - hooks
from tests.toy import draw_toys, toy_dataset, toy_hgan, toy_late, toy_recipe, toy_reranking

# each 700 new objects, as Python has it, a tenth of the time in which test modules are imported goes to collections
gc.set_threshold(50_000, 20, 100)

# without a deadline: no test asserts a time, and a busy machine would fail one example in a few thousand
settings.register_profile("limner", deadline=None)
# CI draws the same examples every time: a new one that fails is found, and mended, where somebody is looking
settings.register_profile("ci", parent=settings.get_profile("limner"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "limner")


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One more worker than cores: a sixth of a worker's time, tests wait for a disk, a clock or another process."""
    return (yield) + ("PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ)


_KEPT = {"collections": 0}


def pytest_runtest_setup() -> None:
    """Take what tests have imported out of the full collections: each training ends with two, over all there is."""
    begin_test()
    # weights that a test draws without a seed are the same in each run
    torch.manual_seed(0)
    done = gc.get_stats()[2]["collections"]
    if done == _KEPT["collections"]:
        return
    # frozen objects are not among them
    if len(gc.get_objects()) > 50_000:
        gc.collect()
        gc.freeze()
    _KEPT["collections"] = gc.get_stats()[2]["collections"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small tensors run fastest on one thread; caches go where the tests end, as do recorded towers."""
    torch.set_num_threads(1)
    # each training ends with a full collection, which goes through the modules of all that is imported otherwise
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        # each client of httpx reads all certificates, in 40 ms; no test speaks TLS
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        base = tmp_path_factory.getbasetemp()
        keep_recordings((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recordings", patch)
        yield


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return toy_dataset(draw_toys(tmp_path_factory.mktemp("toys") / "pictures"))


@pytest.fixture(scope="session")
def toy_run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of the toy recipe."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    return train(toy_recipe(), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.fixture(scope="session")
def reranking_run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run whose last stages train a reranker; its last one is the chosen checkpoint."""
    out = tmp_path_factory.mktemp("matching") / "run"
    return train(toy_reranking(), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.fixture(scope="session")
def hgan_run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of HGAN, both stages."""
    out = tmp_path_factory.mktemp("hgan") / "run"
    return train(toy_hgan(), toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.fixture(scope="session")
def late_run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of a pair with late interaction, both stages."""
    out = tmp_path_factory.mktemp("late") / "run"
    return train(toy_late(), toys.split("train"), toys.split("val"), out, cpu=True)

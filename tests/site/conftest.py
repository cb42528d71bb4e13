"""Stores of toys, and libraries that need no network."""

from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference.load import load_model
from limner.search.index_dataset import index_dataset
from limner.site import write
from limner.site.libraries import RUNTIME
from limner.store.files import StoreFiles
from tests.site.npm import drawn


def store_of(run: Path, toys: Dataset, folder: Path) -> Path:
    """A store of the toys and their sentences."""
    model = load_model(run, device="cpu", precision="fp32")
    store = StoreFiles.create(folder, fingerprint=model.fingerprint, dim=model.dim, run=run)
    index_dataset(model, store, toys, workers=1)
    return folder


@pytest.fixture
def toy_store(toy_run: Path, toys: Dataset, tmp_path: Path) -> Path:
    return store_of(toy_run, toys, tmp_path / "store")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that stands for onnxruntime-web."""
    library, path = drawn(tmp_path, RUNTIME)
    monkeypatch.setattr(write, "RUNTIME", library)
    return path

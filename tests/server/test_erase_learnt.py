"""What the server says of a model that cannot tell from which pictures it has learnt."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import limner
from limner.data.records import Dataset
from limner.server.app import create_app
from limner.server.settings import ServerSettings


@pytest.mark.parametrize("damaged", [False, True])
def test_an_erasure_by_a_damaged_model_is_made(
    toys: Dataset, toy_run: Path, tmp_path: Path, damaged: bool
) -> None:
    store = tmp_path / "store"
    limner.index(toy_run, store, [record.image for record in toys.split("train").records[:3]])
    app = create_app(limner.open_store(store, device="cpu"), ServerSettings(changes=True))
    client = TestClient(app, raise_server_exceptions=False)
    if damaged:
        (checkpoint,) = (store / "model").glob("*.safetensors")
        whole = checkpoint.read_bytes()
        # the run's own file is the same one by a hard link
        checkpoint.unlink()
        checkpoint.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    key = client.get("/v1/items").json()["items"][0]["id"]
    response = client.post("/v1/erase", json={"ids": [key]})
    report = response.json()
    assert (response.status_code, report["pictures"], report["left"]) == (200, 1, 2)
    assert report["learnt"] == (None if damaged else 1)

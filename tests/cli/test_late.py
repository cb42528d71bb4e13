"""The commands, and the server, with a run that re-ranks by late interaction."""

import json
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import limner
from limner.server.app import create_app
from tests.cli.command import Limner, refused


def test_from_evaluation_to_search(limner: Limner, late_run: Path, pictures: Path, tmp_path: Path) -> None:
    data, report = f"folder:{pictures}", tmp_path / "report.json"
    for asked, said in (((), 4), (("--rerank", "all"), "all"), (("--rerank", 0), 0)):
        assert limner("evaluate", late_run, "--data", data, "--report", report, *asked).code == 0
        assert json.loads(report.read_text(encoding="utf-8"))["provenance"]["reranked"] == said
    store = tmp_path / "store"
    assert limner("index", late_run, store, pictures).code == 0
    assert limner("store", "verify", store).code == 0
    found = limner("search", store, "a red square on white", "-k", 6, "--json", "--explain")
    hits = json.loads(found.out)["hits"]
    assert [hit["confidence"] is None for hit in hits] == [False] * 4 + [True] * 2
    assert hits[0]["attention"]["words"] == ["a", "red", "square", "on", "white"]
    of_regions = hits[0]["attention"]["of_regions"]
    assert sum(map(sum, of_regions[1])) == pytest.approx(1, abs=1e-5)
    assert "%" not in limner("search", store, "a red square on white", "--rerank", 0).out
    explained = limner("explain", store, "a red square on white", hits[0]["id"], "--json")
    attention = json.loads(explained.out)["attention"]
    assert attention["words"] == hits[0]["attention"]["words"]
    np.testing.assert_allclose(attention["of_regions"], of_regions, atol=1e-5)
    picture = next(iter(sorted(pictures.glob("*.png"))))
    refused(limner("search", store, "--image", picture, "--rerank", 3), "not a picture")


def test_the_server_re_ranks_and_explains(late_run: Path, pictures: Path, tmp_path: Path) -> None:
    limner.index(limner.load(late_run, device="cpu"), tmp_path / "store", pictures)
    client = TestClient(create_app(limner.open_store(tmp_path / "store", device="cpu")))
    info = client.get("/v1/info").json()
    assert (info["model"]["system"], info["explains"], info["reranks"]) == ("pretrained", "attention", True)
    answer = client.post("/v1/search", json={"text": "a red bar on white", "rerank": 3, "k": 5}).json()
    hits = answer["hits"]
    assert [hit["confidence"] is None for hit in hits] == [False] * 3 + [True] * 2
    found = client.post("/v1/explain", json={"id": hits[0]["id"], "text": "a red bar"}).json()
    assert found["attention"]["words"] == ["a", "red", "bar"]
    assert found["confidence"] is not None

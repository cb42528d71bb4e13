"""A plain installation has neither pyarrow nor LanceDB: what it does without them, and what says that it needs them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import SettingsError, install_hint
from limner.evaluation.per_query import expect_writable, read_queries, write_queries
from limner.evaluation.results_table import read_results_table
from limner.search.store_export import export_store
from limner.search.vector_files import read_faiss, read_lance, read_parquet
from limner.store.files import StoreFiles
from limner.tables import arrow_table
from tests.toy import toy_recipe

REFUSE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("lancedb", "pyarrow"):
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)
sys.meta_path.insert(0, Refused())
"""

WHOLE_WAY = """
import json
from pathlib import Path
from fastapi.testclient import TestClient
import limner
from limner.evaluation.per_query import read_queries, write_queries
from limner.server.app import create_app
from limner.store.verify import verify
recipe, data, folder = sys.argv[1:]
run = limner.train(recipe, data, f"{folder}/run", cpu=True)
write_queries(Path(folder, "queries.csv"), limner.evaluate(run, data, "val").queries)
indexed = limner.index(run, f"{folder}/store", data.removeprefix("folder:")).added
with limner.open_store(f"{folder}/store") as store:
    first, second = store.search("a red circle", k=2).hits
    erased = store.erase(first.id)
    best = store.search("a red circle", k=1).hits[0].id
    with TestClient(create_app(store)) as client:
        served = client.post("/v1/search", json={"text": "a red circle", "k": 1}).json()["hits"][0]["id"]
    print(json.dumps({
        "queries": sorted(read_queries(Path(folder, "queries.csv"))),
        "indexed": indexed,
        "left": len(store),
        "erased": [erased.pictures, erased.found],
        "best": [best == second.id, served == second.id],
        "sound": verify(store.files, hashes=True).sound,
    }))
"""


def test_the_whole_way(toys: Dataset, tmp_path: Path) -> None:
    """Train, evaluate, index, search, erase, serve and verify."""
    pictures = toys.records[0].image.parent
    (tmp_path / "toy.json").write_text(toy_recipe().model_dump_json(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", REFUSE + WHOLE_WAY, tmp_path / "toy.json", f"folder:{pictures}", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    count = len(list(pictures.glob("*.png")))
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "queries": ["image_to_text", "text_to_image"],
        "indexed": count,
        "left": count - 1,
        "erased": [1, []],
        "best": [True, True],
        "sound": True,
    }


TABLE = Path("queries.parquet")


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        (lambda: arrow_table([]), "parquet"),
        (lambda: expect_writable(TABLE), "parquet"),
        (lambda: write_queries(TABLE, {}), "parquet"),
        (lambda: read_queries(TABLE), "parquet"),
        (lambda: read_results_table(TABLE), "parquet"),
        (lambda: read_results_table(Path("table.csv")), "parquet"),
        (lambda: open_dataset(f"parquet:{TABLE}"), "parquet"),
        (lambda: read_parquet(TABLE), "parquet"),
        (lambda: read_faiss(Path("exported")), "parquet"),
        (lambda: read_lance(Path("table.lance")), "lance"),
        (lambda: export_store("store", "new.jsonl", "qdrant-jsonl"), "parquet"),
        (lambda: StoreFiles.open("s3://bucket/store"), "lance"),
    ],
)
def test_the_error_says_what_to_install(
    call: Callable[[], Any], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "lancedb"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    for file in (TABLE, Path("table.csv")):
        file.touch()
    Path("table.lance").mkdir()
    with pytest.raises(SettingsError) as caught:
        call()
    assert install_hint(extra) in str(caught.value)
    assert "\n" not in str(caught.value)

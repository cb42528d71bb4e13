"""`limner store`, on a store of toys."""

import json
import shutil
from pathlib import Path

import pytest

from limner.search.store_files import StoreFiles
from tests.cli.command import Limner, refused


@pytest.fixture
def own(store: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(store, tmp_path / "store"))


def test_info(limner: Limner, store: Path, toy_run: Path) -> None:
    facts = json.loads(limner("store", "info", store, "--json").out)
    assert facts["pictures"] == len(StoreFiles.open(store))
    assert facts["map"] is None
    said = limner("store", "info", store).out
    assert f"{facts['pictures']} pictures" in said
    assert facts["fingerprint"][:12] in said


def test_list(limner: Limner, store: Path) -> None:
    every = json.loads(limner("store", "list", store, "--json").out)
    assert [row["path"] for row in every] == sorted(StoreFiles.open(store).entries())
    lines = limner("store", "list", store).out.splitlines()
    assert lines[0].startswith(f"{every[0]['id']}  {every[0]['path']}")
    someone = every[0]["identity"]
    some = json.loads(limner("store", "list", store, "--identity", someone, "--json").out)
    assert some == [row for row in every if row["identity"] == someone]
    nobody = limner("store", "list", store, "--identity", "nobody")
    assert (nobody.code, nobody.out) == (0, "")
    assert "no such picture" in nobody.err


def test_delete_by_path_and_key_leaves_the_files(limner: Limner, own: Path) -> None:
    first, second, *rest = sorted(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    would = limner("store", "delete", own, first.path, "--id", second.id, "--dry-run")
    assert would.out.splitlines()[:2] == [first.path, second.path]
    assert len(StoreFiles.open(own)) == len(rest) + 2
    done = limner("store", "delete", own, first.path, "--id", second.id)
    assert done.out == f"{own}: 2 deleted, {len(rest)} left\n"
    assert Path(first.path).exists()
    assert sorted(StoreFiles.open(own).entries()) == [entry.path for entry in rest]


def test_compact_purges(limner: Limner, own: Path) -> None:
    count = len(StoreFiles.open(own))
    assert limner("store", "compact", own, "--purge").out.startswith(f"{own}: {count} pictures, ")
    assert limner("store", "verify", own).code == 0


def test_delete_all_below_a_folder(limner: Limner, own: Path) -> None:
    folder = Path(next(iter(StoreFiles.open(own).entries()))).parent
    assert limner("store", "delete", own, folder).out.endswith(" 0 left\n")
    assert "the store is empty" in limner("store", "list", own).err
    assert limner("store", "verify", own).code == 0


def test_delete_what_is_missing(limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = min(StoreFiles.open(own).entries())
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != lost)
    limner("store", "delete", own, "--missing")
    assert lost not in StoreFiles.open(own).entries()


def test_verify(limner: Limner, own: Path) -> None:
    whole = limner("store", "verify", own, "--hashes")
    assert (whole.code, whole.out) == (
        0,
        f"{own}: {len(StoreFiles.open(own))} pictures, whole, each picture once\n",
    )
    table = StoreFiles.open(own).table.opened()
    table.add(table.search().limit(1).to_arrow())
    damaged = limner("store", "verify", own)
    assert damaged.code == 1
    assert damaged.out.startswith("damaged: pictures that stand in the table more than once: 1, e.g. /")
    report = json.loads(limner("store", "verify", own, "--json").out)
    assert report["found"]["twice"]["count"] == 1
    assert not report["sound"]


def test_compact(limner: Limner, own: Path) -> None:
    before = StoreFiles.open(own).entries()
    assert limner("store", "compact", own).code == 0
    assert StoreFiles.open(own).entries() == before


def test_mistakes(limner: Limner, own: Path, tmp_path: Path) -> None:
    refused(limner("store", "delete", own), "name pictures to delete")
    refused(limner("store", "delete", own, "nowhere.jpg"), "nowhere.jpg: the store holds no such picture")
    refused(limner("store", "delete", own, "--id", "0" * 32), "--id 0+: the store holds no such picture")
    for command in ("info", "list", "verify", "compact"):
        refused(limner("store", command, tmp_path / "none"), "none")

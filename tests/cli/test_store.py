"""`limner store`, on a store of toys."""

import json
import shutil
from pathlib import Path

import numpy as np
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


def test_damage_and_repair(limner: Limner, own: Path, toy_run: Path) -> None:
    """One bit of one vector; its picture is encoded again."""
    files = StoreFiles.open(own)
    before = files.entries()
    first = min(before.values(), key=lambda entry: entry.path)
    vector = files.vectors([first.id])
    for file in (own / "pictures-1.lance" / "data").iterdir():
        content = bytearray(file.read_bytes())
        if (place := content.find(vector.tobytes())) >= 0:
            content[place] ^= 1
            file.write_bytes(content)
    refused(limner("search", own, "a red square", "--cpu"), "has changed.*limner store repair")
    damaged = limner("store", "verify", own)
    assert damaged.code == 1
    assert damaged.out.startswith("damaged: tables that are damaged or lost in part")
    report = json.loads(limner("store", "verify", own, "--json").out)
    assert (report["found"]["files"]["count"], report["sound"]) == (1, False)
    mended = limner("store", "repair", own, "--run", toy_run, "--cpu")
    assert mended.code == 0
    assert mended.out.splitlines()[0] == f"encoded again: {first.path}"
    assert mended.out.endswith(f"{len(before)} pictures and 0 sentences, 1 encoded again, 0 lost\n")
    assert limner("store", "verify", own, "--hashes").code == 0
    assert StoreFiles.open(own).entries() == before
    np.testing.assert_allclose(StoreFiles.open(own).vectors([first.id]), vector, atol=1e-4)


def test_compact(limner: Limner, own: Path) -> None:
    before = StoreFiles.open(own).entries()
    assert limner("store", "compact", own).code == 0
    assert StoreFiles.open(own).entries() == before


def test_mistakes(limner: Limner, own: Path, tmp_path: Path) -> None:
    refused(limner("store", "delete", own), "name pictures to delete")
    refused(limner("store", "delete", own, "nowhere.jpg"), "nowhere.jpg: the store holds no such picture")
    refused(limner("store", "delete", own, "--id", "0" * 32), "--id 0+: the store holds no such picture")
    for command in ("info", "list", "verify", "repair", "compact"):
        refused(limner("store", command, tmp_path / "none"), "none")

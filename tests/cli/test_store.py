"""`limner store`, on a store of toys."""

import hashlib
import json
import re
import shutil
import sqlite3
import unicodedata
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from limner.errors import SettingsError, StoreError
from limner.search.sentences import Sentence
from limner.server import audit
from limner.server.audit import AuditLog
from limner.store.entry import Place, StoredImage
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.sqlite_rows import SqliteRows
from limner.store.uploads import Uploads
from tests.cli.command import Limner, refused
from tests.search.fake import vectors_of


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
    # all that is held of a picture, whoever asks; the time of its file's last change is for indexing alone
    assert {field.name for field in fields(StoredImage)} - {"mtime", "key", "others"} <= every[0].keys()
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


def test_a_copy_is_listed_and_taken_out_alone(limner: Limner, own: Path) -> None:
    files = StoreFiles.open(own)
    first, *rest = files.images()
    with files.changing() as writer:
        writer.update([first.at([*first.places, Place("/copies/one.jpg", 1), Place("/copies/two.jpg", 1)])])
    assert json.loads(limner("store", "list", own, "--json").out)[0]["copies"] == [
        "/copies/one.jpg",
        "/copies/two.jpg",
    ]
    assert limner("store", "list", own).out.splitlines()[1].strip() == "/copies/one.jpg  (a copy)"
    would = limner("store", "delete", own, "/copies", first.path, "--dry-run").out
    assert would.endswith(f": would delete 1 of {len(rest) + 1} pictures\n")
    done = limner("store", "delete", own, "/copies/one.jpg", rest[0].path)
    assert done.out == f"{own}: 1 deleted, {len(rest)} left, and 1 copy of others\n"
    assert files.images()[0].paths == [first.path, "/copies/two.jpg"]


def test_compact_says_what_is_left(limner: Limner, own: Path) -> None:
    before = StoreFiles.open(own).entries()
    assert limner("store", "compact", own).out.startswith(f"{own}: {len(before)} pictures, ")
    assert StoreFiles.open(own).entries() == before
    assert limner("store", "verify", own).code == 0


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_one_of_41_that_was_deleted_is_purged(limner: Limner, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    entries = [StoredImage(f"/people/{rng.bytes(8).hex()}.jpg", rng.bytes(32).hex(), 1, 1) for _ in range(41)]
    vectors, small = rng.standard_normal((41, 8)).astype(np.float32), [rng.bytes(200) for _ in range(41)]
    store = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=8, run="run")
    store.add(entries, vectors, thumbnails=small)
    one = entries[3]
    needles = [vectors[3].tobytes(), small[3], one.path.encode(), one.id.encode(), one.sha256.encode()]
    assert limner("store", "delete", tmp_path / "store", "--id", one.id).code == 0
    assert limner("store", "compact", tmp_path / "store").code == 0
    assert not any(needle in bytes_of(tmp_path / "store") for needle in needles)
    assert len(StoreFiles.open(tmp_path / "store")) == 40


def test_erase(limner: Limner, own: Path) -> None:
    first, second, *rest = sorted(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    would = limner("store", "erase", own, "--path", first.path, "--id", second.id, "--dry-run")
    assert would.out.splitlines()[:2] == [first.path, second.path]
    assert first.path.encode() in bytes_of(own)
    done = limner("store", "erase", own, "--path", first.path, "--id", second.id)
    assert done.code == 0
    assert f"{own}: 2 pictures and 0 sentences erased, {len(rest)} left" in done.out
    assert "none is left" in done.out
    assert first.path.encode() not in bytes_of(own)
    assert Path(first.path).exists()
    assert limner("store", "verify", own).code == 0
    report = json.loads(limner("store", "erase", own, "--identity", str(rest[0].identity), "--json").out)
    assert report["pictures"] == sum(entry.identity == rest[0].identity for entry in rest)
    assert (report["found"], report["dry_run"]) == ([], False)
    nothing = limner("store", "erase", own, "--where", "identity=nobody")
    assert (nothing.code, "0 pictures" in nothing.out) == (1, True)


def test_erase_says_which_names_are_unknown(limner: Limner, own: Path, tmp_path: Path) -> None:
    first, second, *rest = sorted(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    (tmp_path / "link").symlink_to(Path(first.path).parent)
    by_link = tmp_path / "link" / Path(first.path).name
    for options in (("--dry-run",), ()):
        done = limner("store", "erase", own, "--path", by_link, "--id", second.id, "--id", "0" * 32, *options)
        assert done.code == 1
        for name in (by_link, "0" * 32):
            assert f"{name}: the store holds no such picture or sentence and none below it" in done.out
    # what it does hold is erased all the same, so that a call that was killed can be made again
    assert len(StoreFiles.open(own)) == 1 + len(rest)


def test_erase_says_what_meets_nothing(limner: Limner, own: Path) -> None:
    for dry in ([], ["--dry-run"]):
        done = limner("store", "erase", own, "--identity", "nobody", "--where", "camera=99", *dry)
        assert done.code == 1
        for condition in ("identity=nobody", "camera=99"):
            assert f"{condition}: no picture of the store meets it\n" in done.out
    name = next(entry.identity for entry in StoreFiles.open(own).entries().values() if entry.identity)
    shouted = limner("store", "erase", own, "--identity", name.upper())
    assert (shouted.code, f"not erased: {name!r}, which looks like" in shouted.out) == (1, True)
    assert limner("store", "erase", own, "--identity", name).code == 0


def test_erase_tells_which_sentences_still_name_somebody(limner: Limner, own: Path, tmp_path: Path) -> None:
    name = next(entry.identity for entry in StoreFiles.open(own).entries().values() if entry.identity)
    text = f"{name.upper()} walks"
    key = Sentence(text).id
    with StoreFiles.open(own).changing() as writer:
        writer.add_sentences([(key, text, None)], np.ones((1, StoreFiles.open(own).dim), np.float32))
    for dry in (["--dry-run"], []):
        done = limner("store", "erase", own, "--identity", name, *dry)
        assert done.code == 1
        assert done.out.endswith(f"this erases them: limner store erase {own} --id {key}\n")
    assert "none is left but in sentences that stay" in done.out
    done = limner("store", "erase", own, "--id", key)
    assert (done.code, "0 pictures and 1 sentence erased" in done.out) == (0, True)
    assert text.encode() not in bytes_of(own)


def test_the_call_after_one_that_failed_says_what_it_has_done(
    limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = next(iter(StoreFiles.open(own).entries().values()))
    scrub = SqliteRows.scrub

    def full(rows: SqliteRows) -> None:
        raise StoreError("the disk is full; make room on it", "full")

    monkeypatch.setattr(SqliteRows, "scrub", full)
    failed = limner("store", "erase", own, "--id", one.id)
    assert failed.code == 2
    assert "1 picture and 0 sentences are deleted, but their bytes may still be on the disk" in failed.err
    monkeypatch.setattr(SqliteRows, "scrub", scrub)
    done = limner("store", "erase", own, "--id", one.id)
    assert (done.code, "none is left\n" in done.out) == (1, True)
    assert (
        "if an earlier erasure of these failed or was killed, what it had deleted is off the disk now"
        in done.out
    )
    assert one.path.encode() not in bytes_of(own)


def test_erase_finds_what_a_deletion_left_in_the_uploads(limner: Limner, own: Path, tmp_path: Path) -> None:
    opened, uploads = StoreFiles.open(own), tmp_path / "uploads"
    refused(limner("store", "erase", own, "--uploads", uploads), "name the folder that `limner serve")
    uploads.mkdir()
    Uploads.claim(uploads, opened)
    file = uploads / f"{hashlib.sha256(b'a picture').hexdigest()}.png"
    for name in (("--path", file), ()):
        file.write_bytes(b"a picture")
        would = limner("store", "erase", own, *name, "--uploads", uploads, "--dry-run")
        assert would.code == 0
        assert f"{file} (no row names it)" in would.out
        assert file.exists()
        done = limner("store", "erase", own, *name, "--uploads", uploads)
        assert (done.code, "1 picture deleted that no row named" in done.out) == (0, True)
        assert not file.exists()


def test_erase_asks_on_a_terminal(limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answers = iter([False, True])

    def confirm(question: str, err: bool) -> bool:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", confirm)
    first, second, *_ = sorted(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    assert "nothing was erased" in limner("store", "erase", own, "--id", first.id).err
    assert StoreFiles.open(own).entry(first.id) is not None
    assert limner("store", "erase", own, "--id", first.id).code == 0
    assert limner("store", "erase", own, "--id", second.id, "--yes").code == 0
    assert len(asked) == 2
    assert "erase 1 of" in asked[0]


def test_erase_says_what_is_left(limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = min(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    (own / "notes.txt").write_text(f"a copy of {first.path}")
    done = limner("store", "erase", own, "--id", first.id)
    assert done.code == 1
    assert "left in notes.txt: path (1)" in done.out


def test_erase_from_the_audit_log(limner: Limner, own: Path, tmp_path: Path) -> None:
    first = min(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    assert "no such file" in limner("store", "erase", own, "--id", first.id, "--audit", tmp_path / "log").err
    log = AuditLog(tmp_path / "log")
    log.append({"request": "search", "text": "a coat", "found": [first.id, "0" * 32]})
    log.append({"request": "search", "text": "a hat", "found": ["0" * 32]})
    log.close()
    done = limner("store", "erase", own, "--id", first.id, "--audit", tmp_path / "log")
    assert (done.code, "1 line of the audit log changed" in done.out) == (0, True)
    text = (tmp_path / "log").read_text()
    assert ("a coat" in text, first.id in text, "a hat" in text) == (False, False, True)
    assert audit.verify(tmp_path / "log").sound


def test_delete_all_below_a_folder(limner: Limner, own: Path) -> None:
    folder = Path(next(iter(StoreFiles.open(own).entries()))).parent
    assert limner("store", "delete", own, folder).out.endswith(" 0 left\n")
    assert "the store is empty" in limner("store", "list", own).err
    assert limner("store", "verify", own).code == 0


def test_delete_what_is_missing(limner: Limner, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = StoreFiles.open(own).entries()
    away = {min(entries)}
    monkeypatch.setattr("limner.store.missing.is_gone", lambda path: path in away)
    limner("store", "delete", own, "--missing")
    assert StoreFiles.open(own).entries().keys() == entries.keys() - away
    # a disk that is not mounted
    away = {*entries, str(Path(min(entries)).parent)}
    wrong = limner("store", "delete", own, "--missing")
    refused(
        wrong,
        f"would delete {len(entries) - 1} of {len(entries) - 1} pictures, but the folder .* is not there",
    )
    assert limner("store", "delete", own, "--missing", "--dry-run").code == 0
    assert len(StoreFiles.open(own)) == len(entries) - 1
    assert limner("store", "delete", own, "--missing", "--yes").out.endswith(" 0 left\n")


def test_verify(limner: Limner, own: Path) -> None:
    whole = limner("store", "verify", own, "--hashes")
    assert (whole.code, whole.out) == (
        0,
        f"{own}: {len(StoreFiles.open(own))} pictures, whole, each picture once\n",
    )


def test_of_a_file_that_sqlite_cannot_read_nothing_is_called_whole(limner: Limner, own: Path) -> None:
    file = own / "store.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name='pictures'").fetchone()
    content = bytearray(file.read_bytes())
    content[(root - 1) * 16384 : root * 16384] = b"\xff" * 16384
    file.write_bytes(content)
    found = limner("store", "verify", own)
    assert found.code == 1
    assert "whole" not in found.out
    assert found.out.endswith("damaged: put back a copy of the store, or index into a new folder\n")


def test_a_list_prints_a_line_a_picture(limner: Limner, own: Path) -> None:
    files = StoreFiles.open(own)
    entry = StoredImage("/a\nb\x1b[2J.png", "0" * 64, 1, 1, identity="c\td")
    files.add([entry], np.ones((1, files.dim), np.float32))
    assert f"{entry.id}  /a\\nb\\x1b[2J.png  [c\\td]" in limner("store", "list", own).out.splitlines()
    assert entry.path in [one["path"] for one in json.loads(limner("store", "list", own, "--json").out)]
    assert limner("store", "delete", own, "--id", entry.id, "--dry-run").out.startswith(
        "/a\\nb\\x1b[2J.png\n"
    )


def test_damage_and_repair(limner: Limner, own: Path, toy_run: Path) -> None:
    """One bit of one vector; its picture is encoded again."""
    files = StoreFiles.open(own)
    before = files.entries()
    first = min(before.values(), key=lambda entry: entry.path)
    vector = vectors_of(files, [first.id])
    content = bytearray(vector.tobytes())
    content[0] ^= 1
    assert changed(own, "UPDATE vectors SET vector=? WHERE vector=?", (content, vector.tobytes())) == 1
    refused(limner("search", own, "a red square", "--cpu"), "has changed.*limner store verify")
    damaged = limner("store", "verify", own)
    assert damaged.code == 1
    assert damaged.out.startswith("damaged: embeddings that are lost, have changed")
    report = json.loads(limner("store", "verify", own, "--json").out)
    assert (report["found"]["vector"]["count"], report["sound"]) == (1, False)
    mended = limner("store", "repair", own, "--run", toy_run, "--cpu")
    assert mended.code == 0
    assert mended.out.splitlines()[0] == f"encoded again: {first.path}"
    assert mended.out.endswith(f"{len(before)} pictures and 0 sentences, 1 encoded again\n")
    assert limner("store", "verify", own, "--hashes").code == 0
    assert StoreFiles.open(own).entries() == before
    np.testing.assert_allclose(vectors_of(StoreFiles.open(own), [first.id]), vector, atol=1e-4)


def test_a_repair_that_would_lose_rows(limner: Limner, own: Path, toy_run: Path) -> None:
    first = min(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    assert changed(own, "UPDATE pictures SET metadata='{}', identity='x' WHERE id=?", (first.id,)) == 1
    left = limner("store", "repair", own, "--run", toy_run)
    assert left.code == 1
    assert left.out.startswith(f"would be lost: {first.path}: its row is damaged")
    assert re.search("nothing was changed, since not all can be restored.*--accept-loss", left.out)
    given_up = limner("store", "repair", own, "--run", toy_run, "--accept-loss", "--cpu")
    assert given_up.code == 1
    assert given_up.out.splitlines()[0].startswith(f"lost: {first.path}")
    assert given_up.out.endswith("0 encoded again; index the folders of this store again\n")
    assert limner("store", "verify", own).code == 0


def changed(store: Path, statement: str, values: tuple[object, ...]) -> int:
    """Change rows as no writing of limner does, and return how many."""
    database = sqlite3.connect(store / "store.sqlite")
    count = database.execute(statement, values).rowcount
    database.commit()
    database.close()
    return count


def test_what_a_repair_leaves_to_others(limner: Limner, own: Path, toy_run: Path) -> None:
    StoreFiles.open(own).rows.set_text("calibration", "{}")
    count = len(StoreFiles.open(own))
    found = limner("store", "verify", own)
    assert (found.code, "limner store repair" in found.out) == (1, False)
    assert found.out.endswith(
        f"{count} pictures, whole, each picture once, but not what lies beside its rows\n"
    )
    left = limner("store", "repair", own)
    assert left.code == 1
    assert "not repaired: the store's calibration: fit it anew" in left.out
    assert limner("store", "repair", own, "--json").code == 1


def test_mistakes(limner: Limner, own: Path, tmp_path: Path) -> None:
    refused(limner("store", "delete", own), "give PICTURES, --id or --missing")
    refused(limner("store", "delete", own, "nowhere.jpg"), "nowhere.jpg: the store holds no such picture")
    refused(limner("store", "delete", own, "--id", "0" * 32), "--id 0+: the store holds no such picture")
    for command in ("info", "list", "verify", "repair", "compact"):
        refused(limner("store", command, tmp_path / "none"), "none")


def test_an_empty_path_is_not_the_current_folder(
    limner: Limner, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--path "$UNSET"` in the pictures' own folder."""
    own = shutil.copytree(store, tmp_path / "own")
    files = StoreFiles.open(own)
    monkeypatch.chdir(Path(next(iter(files.entries()))).parent)
    refused(limner("store", "erase", own, "--path", "", "--yes"), "got an empty text")
    refused(limner("store", "delete", own, ""), "got an empty text")
    with pytest.raises(SettingsError, match="got an empty text"):
        erase(files, paths="")
    assert len(StoreFiles.open(own)) == len(files) > 0


def test_a_file_that_is_no_audit_log_is_left_alone(limner: Limner, store: Path, tmp_path: Path) -> None:
    own = shutil.copytree(store, tmp_path / "own")
    picture = next(iter(StoreFiles.open(own).entries()))
    for name, content in (
        ("photo.png", Path(picture).read_bytes()),
        ("one.txt", b"Ann wrote this"),
        ("lines.txt", b"Ann wrote this\nand that\n"),
        ("long.txt", b"Ann" * 40_000),
        ("data.json", b'{"time": "2026-11-24", "Ann": 1}\n'),
    ):
        other = tmp_path / name
        other.write_bytes(content)
        refused(limner("store", "erase", own, "--path", picture, "--audit", other, "--yes"), "no audit log")
        refused(limner("audit", "forget", other, "--text", "Ann"), "no audit log")
        with pytest.raises(SettingsError, match="no audit log"):
            AuditLog(other)
        assert other.read_bytes() == content
    # and nothing of an object storage
    refused(
        limner("store", "erase", own, "--path", picture, "--audit", tmp_path, "--yes"),
        r"the audit log: cannot be written \(Is a directory\)",
    )
    assert picture in StoreFiles.open(own).entries()


def test_erase_says_where_the_model_cannot_tell(limner: Limner, own: Path) -> None:
    """The erasure is made all the same."""
    one, other, *rest = sorted(StoreFiles.open(own).entries().values(), key=lambda entry: entry.path)
    unknown = "not known whether the store's model has learnt from these pictures"
    assert unknown not in limner("store", "erase", own, "--path", one.path).out
    (checkpoint,) = (own / "model").glob("*.safetensors")
    whole = checkpoint.read_bytes()
    checkpoint.unlink()
    checkpoint.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert unknown not in limner("store", "erase", own, "--path", other.path, "--dry-run").out
    done = limner("store", "erase", own, "--path", other.path)
    assert done.code == 0
    assert f"1 picture and 0 sentences erased, {len(rest)} left" in done.out
    assert unknown in done.out
    assert limner("store", "verify", own).code == 1
    report = json.loads(limner("store", "erase", own, "--path", rest[0].path, "--json").out)
    assert (report["pictures"], report["learnt"], report["found"]) == (1, None, [])


@pytest.mark.parametrize(("disk", "typed"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_names_may_be_typed_with_their_accents_in_one_sign_or_two(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path, disk: Literal["NFC", "NFD"], typed: Any
) -> None:
    folder, store = tmp_path / unicodedata.normalize(disk, "Köln"), tmp_path / "store"
    folder.mkdir()
    first, second, *_ = sorted(pictures.glob("*.*"))
    name = unicodedata.normalize(disk, "é.png")
    for source, target in ((first, name), (second, "b.png")):
        shutil.copy(source, folder / target)
    table = tmp_path / "facts.csv"
    table.write_text(
        unicodedata.normalize(typed, "file;identity;Straße\nKöln/é.png;Zoë;Gülşen\n"), encoding="utf-8"
    )
    done = limner("index", toy_run, store, folder, "--metadata", table)
    assert (done.code, "name none of these pictures" in done.err) == (0, False)
    asked = unicodedata.normalize(typed, str(folder / name))
    assert asked != str(folder / name)
    assert str(folder / name) not in limner("search", store, "--like", asked).out.splitlines()[0]
    for condition in ("identity=Zoë", "Straße=Gülşen", "path~*/é.png"):
        found = limner("search", store, "a square", "--where", unicodedata.normalize(typed, condition))
        assert [
            line.endswith("[" + unicodedata.normalize(typed, "Zoë") + "]") for line in found.out.splitlines()
        ] == [True]
    would = limner("store", "delete", store, asked, "--dry-run")
    assert would.out.splitlines()[0] == str(folder / name)
    erased = limner("store", "erase", store, "--path", asked)
    assert (erased.code, "1 picture and 0 sentences erased, 1 left" in erased.out) == (0, True)
    # a folder means all below it
    assert limner("store", "delete", store, str(Path(asked).parent)).out == f"{store}: 1 deleted, 0 left\n"

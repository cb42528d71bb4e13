from datetime import datetime
from pathlib import Path

from limner.search.index import index_pictures, reindex
from limner.store.entry import key_of
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw, vectors_of


def test_facts_go_along_and_vectors_are_new(tmp_path: Path) -> None:
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(5)]
    first, second = FakeEncoder(), FakeEncoder("b" * 64, dim=6)
    old = StoreFiles.create(tmp_path / "old", fingerprint=first.fingerprint, dim=DIM, run="run")
    facts = {str(pictures[1]): {"identity": "p1", "camera": 3, "taken": "2026-11-20T08:15:00.25"}}
    index_pictures(first, old, pictures, metadata=facts)
    new = StoreFiles.create(tmp_path / "new", fingerprint=second.fingerprint, dim=6, run="other")
    assert reindex(old, second, new).added == 5
    assert new.entries() == old.entries()
    entry = new.entries()[str(pictures[1])]
    assert (entry.taken, entry.metadata) == (datetime(2026, 11, 20, 8, 15, 0, 250_000), {"camera": 3})
    assert vectors_of(new, [entry.id]).shape == (1, 6)
    # what is no longer told of a picture goes from the new store, too
    index_pictures(first, old, pictures[:2], metadata={str(pictures[1]): {"camera": None, "taken": None}})
    assert reindex(old, second, new).updated == 1
    assert new.entries() == old.entries()


def test_files_that_are_gone_are_listed(tmp_path: Path) -> None:
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(3)]
    encoder = FakeEncoder()
    old = StoreFiles.create(tmp_path / "old", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, old, pictures)
    pictures[1].unlink()
    other = FakeEncoder("b" * 64)
    new = StoreFiles.create(tmp_path / "new", fingerprint=other.fingerprint, dim=DIM, run="other")
    summary = reindex(old, other, new)
    assert (summary.added, summary.skipped) == (2, ((str(pictures[1]), "its file is gone"),))
    for picture in pictures[::2]:
        picture.unlink()
    assert len(reindex(old, other, new).skipped) == 3


def test_only_files_that_were_in_the_store_are_taken(tmp_path: Path) -> None:
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(3)]
    encoder = FakeEncoder()
    old = StoreFiles.create(tmp_path / "old", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, old, pictures)
    pictures[0].unlink()
    pictures[0].symlink_to(tmp_path / "nowhere.png")
    pictures[1].unlink()
    draw(pictures[1] / "another.png", 9)
    other = FakeEncoder("b" * 64)
    new = StoreFiles.create(tmp_path / "new", fingerprint=other.fingerprint, dim=DIM, run="other")
    summary = reindex(old, other, new)
    assert list(new.entries()) == [str(pictures[2])]
    assert summary.skipped == (
        (str(pictures[0]), "its file is gone"),
        (str(pictures[1]), "not a regular file"),
    )


def test_what_was_deleted_between_two_calls_is_counted_and_goes_if_asked(tmp_path: Path) -> None:
    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(4)]
    encoder, other = FakeEncoder(), FakeEncoder("b" * 64)
    old = StoreFiles.create(tmp_path / "old", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, old, pictures[:3])
    new = StoreFiles.create(tmp_path / "new", fingerprint=other.fingerprint, dim=DIM, run="other")
    assert reindex(old, other, new).others == 0
    # a writer goes on with the old store
    old.delete([key_of(str(pictures[0]))])
    index_pictures(encoder, old, pictures[3:])
    report = reindex(old, other, new)
    assert (report.added, report.unchanged, report.others) == (1, 2, 1)
    assert len(new) == 4
    report = reindex(old, other, new, delete=True)
    assert (report.added, report.unchanged, report.others) == (0, 3, 1)
    assert new.entries() == old.entries()
    old.delete([entry.id for entry in old.entries().values()])
    assert reindex(old, other, new, delete=True).others == 3
    assert not new.entries()

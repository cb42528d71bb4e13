"""Sentences of pictures that are gone, or were replaced by pictures of somebody else."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from limner.search.foreign_vectors import ForeignVectors, index_vectors
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.store.entry import key_of
from limner.store.erase import erase
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder, draw


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    return [draw(folder / f"{number}.png", number) for number in range(4)]


def indexed(folder: Path, pictures: list[Path], **identities: str) -> StoreFiles:
    """A store of these pictures, two sentences each; `identities` by file name."""
    encoder = FakeEncoder()
    files = StoreFiles.create(folder, fingerprint=encoder.fingerprint, dim=encoder.dim, run="run")
    index_pictures(encoder, files, pictures, metadata=named(pictures, identities))
    sentences = [
        Sentence(f"a red coat {number} of {path.stem}", str(path)) for path in pictures for number in "ab"
    ]
    SentenceTable(files).index(encoder, sentences)
    return files


def named(pictures: list[Path], identities: dict[str, str]) -> dict[str, dict[str, str]]:
    return {
        str(path): {"identity": identities[f"p{path.stem}"]}
        for path in pictures
        if f"p{path.stem}" in identities
    }


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def lose(files: StoreFiles, picture: Path) -> None:
    """Take out a picture alone, as a repair may have to."""
    told = [one for one in SentenceTable(files).describing()[0] if one.path == str(picture)]
    files.delete([key_of(str(picture))])
    SentenceTable(files).index(FakeEncoder(), told)


def test_a_file_that_is_now_of_another_identity_has_its_sentences_no_longer(
    tmp_path: Path, pictures: list[Path]
) -> None:
    files = indexed(tmp_path / "store", pictures, p0="anna", p1="anna", p2="bert")
    shutil.copy(draw(tmp_path / "new.png", 77), pictures[0])
    report = index_pictures(FakeEncoder(), files, pictures, metadata={str(pictures[0]): {"identity": "cleo"}})
    assert (report.updated, report.forgotten) == (1, 2)
    assert len(SentenceTable(files)) == 6
    erased = erase(files, identity="anna")
    assert (erased.pictures, erased.sentences, erased.found) == (1, 2, ())
    assert b" of 0" not in contents(tmp_path / "store")
    assert b" of 2" in contents(tmp_path / "store")


@pytest.mark.parametrize("edited", [True, False])
def test_an_edited_picture_keeps_them_and_so_does_one_that_is_renamed(
    tmp_path: Path, pictures: list[Path], edited: bool
) -> None:
    files = indexed(tmp_path / "store", pictures, p0="anna")
    if edited:
        shutil.copy(draw(tmp_path / "new.png", 77), pictures[0])
    identity = "anna" if edited else "anne"
    report = index_pictures(
        FakeEncoder(), files, pictures, metadata={str(pictures[0]): {"identity": identity}}
    )
    assert (report.updated, report.forgotten) == (1, 0)
    assert len(SentenceTable(files)) == 8


def test_foreign_vectors_forget_them_too(tmp_path: Path, pictures: list[Path]) -> None:
    files = indexed(tmp_path / "store", pictures, p0="anna")
    shutil.copy(draw(tmp_path / "new.png", 77), pictures[0])
    given = ForeignVectors(
        paths=(str(pictures[0]),),
        vectors=np.eye(1, files.dim, dtype=np.float32),
        facts=({"identity": "cleo"},),
    )
    assert index_vectors(files, given).forgotten == 2


def test_sentences_whose_picture_is_not_there_are_told(tmp_path: Path, pictures: list[Path]) -> None:
    """A repair may have lost it; nobody can tell then whose they are."""
    files = indexed(tmp_path / "store", pictures, p0="anna", p1="anna", p2="bert")
    lose(files, pictures[0])
    for asked in ({"identity": "bert"}, {"where": "identity=anna"}):
        report = erase(files, **asked)  # type: ignore[arg-type]
        assert report.pictures == 1
        assert [(one.kind.startswith("sentences of pictures that"), one.count) for one in report.found] == [
            (True, 2)
        ]
    # nothing of these is meant by an erasure that names pictures
    assert erase(files, paths=pictures[3]).found == ()


@pytest.mark.parametrize("by", ["path", "id", "folder"])
def test_and_erased_by_path_or_key(tmp_path: Path, pictures: list[Path], by: str) -> None:
    files = indexed(tmp_path / "store", pictures, p0="anna")
    lose(files, pictures[0])
    arguments = {
        "path": {"paths": pictures[0]},
        "id": {"ids": key_of(str(pictures[0]))},
        "folder": {"paths": pictures[0].parent},
    }
    report = erase(files, **arguments[by])  # type: ignore[arg-type]
    assert report.sentences == (8 if by == "folder" else 2)
    assert report.found == ()
    assert b" of 0" not in contents(tmp_path / "store")
    assert erase(files, identity="anna").found == ()

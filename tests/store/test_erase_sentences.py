"""Sentences of pictures that are gone or were replaced by pictures of somebody else, and sentences of no picture."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.search.foreign_vectors import ForeignVectors, index_vectors
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.store.entry import key_of
from limner.store.erasable import erasable
from limner.store.erase import erase
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder, draw
from tests.store.erasing import Encoder, answers, left_of, made, store_of


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


NAMED = "a man in a red coat, zebediah QUUX, walks"


def named_in_a_text(folder: Path, pictures: list[Path], *texts: str) -> StoreFiles:
    """A store with sentences of no picture, beside those of its pictures."""
    files = indexed(folder, pictures, p0="Zebediah Quux", p1="Ann", p2="Ann")
    SentenceTable(files).index(FakeEncoder(), [Sentence(text) for text in texts])
    return files


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(1, 40), share=st.floats(0.01, 1), seed=st.integers(0, 99))
def test_by_its_key_nothing_is_left_of_a_sentence(rows: int, share: float, seed: int, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    some = [made(number, seed, False) for number in range(4)]
    files = store_of(tmp_path / "store", some)
    rng = np.random.default_rng(seed)
    texts = [f"somebody at {rng.bytes(8).hex()} {'and on ' * rng.integers(200)}" for _ in range(rows)]
    with files.changing() as writer:
        vectors = Encoder().encode_texts(texts)
        writer.add_sentences([(Sentence(text).id, text, None) for text in texts], vectors)
    before = answers(files, some)
    gone, stays = texts[: math.ceil(rows * share)], texts[math.ceil(rows * share) :]
    kept = [text.encode() for text in stays]
    needles = [
        needle
        for text in gone
        for needle in (text.encode(), Sentence(text).id.encode(), Encoder().encode_texts([text])[0].tobytes())
    ]
    assert {needle for _, needle in left_of(files.folder, needles)} == set(needles)
    # keys of pictures beside those of sentences, and one of neither
    report = erase(files, [*(Sentence(text).id for text in gone), some[0].entry.id, "0" * 32])
    assert (report.pictures, report.sentences, report.unknown) == (1, len(gone) + 1, ("0" * 32,))
    assert report.found == ()
    assert report.traces.searched >= 3 * len(gone)
    assert left_of(files.folder, needles) == set()
    assert answers(files, some[1:])["sentences"] == before["sentences"][1:]
    assert len(SentenceTable(files)) == 3 + 1 + len(stays)
    assert {needle for _, needle in left_of(files.folder, kept)} == set(kept)


def test_one_sentence_of_a_picture_goes_without_the_others(tmp_path: Path, pictures: list[Path]) -> None:
    files = indexed(tmp_path / "store", pictures)
    one, *others = SentenceTable(files).describing()[0]
    report = erase(files, one.id)
    assert (report.pictures, report.sentences, report.unknown, report.found) == (0, 1, (), ())
    assert SentenceTable(files).describing()[0] == others


def test_sentences_that_name_who_was_erased_are_told_and_erased_by_their_keys(
    tmp_path: Path, pictures: list[Path]
) -> None:
    files = named_in_a_text(tmp_path / "store", pictures, NAMED, "a man, Zebediah Quuxford", "Ann walks")
    planned = erasable(files, identity="Zebediah Quux").naming
    report = erase(files, identity="Zebediah Quux")
    assert (report.pictures, report.found) == (1, ())
    assert report.naming == planned == (Sentence(NAMED).id,)
    # whoever may not search learns nothing of what stays
    assert report.without_clues().naming == ()
    assert erase(files, report.naming).sentences == 1
    assert NAMED.encode() not in contents(tmp_path / "store")
    assert erase(files, identity="Zebediah Quux").naming == ()
    # she has another picture
    assert erase(files, paths=pictures[1]).naming == ()
    # now she has none, by whatever the last one was named
    assert erase(files, paths=pictures[2]).naming == (Sentence("Ann walks").id,)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("Ann", "planned by hand", False),
        ("Ann", "this is ANN's", True),
        ("2", "2 bags", False),
        ("12345678", "number 12345678", True),
        ("Jose\u0301 Mun\u0303oz", "jos\u00e9 mu\u00f1oz runs", True),
        ("\u5f20\u4f1f", "\u5f20\u4f1f\u5728\u8d70\u8def", True),
        ("???", "who???", False),
    ],
)
def test_what_names_somebody(tmp_path: Path, pictures: list[Path], name: str, text: str, told: bool) -> None:
    files = indexed(tmp_path / "store", pictures[:1])
    SentenceTable(files).index(FakeEncoder(), [Sentence(text)])
    assert erasable(files, identity=name).naming == ((Sentence(text).id,) if told else ())

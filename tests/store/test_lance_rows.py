"""LanceDB's tables hold what SQLite's do, whatever is done to them, and a kill leaves what the last commit did."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limner.errors import DataError, LimnerError, SettingsError, StoreError
from limner.search.sentences import SentenceTable
from limner.store import lance_rows, lance_tables
from limner.store.contents import region_features, thumbnails
from limner.store.entry import Place, StoredImage, key_of
from limner.store.files import StoreFiles
from limner.store.lance_head import FILE
from limner.store.lance_rows import LanceReading, LanceRows
from limner.store.manifest import StoreManifest, texts_of
from limner.store.rows import Picture, Reading, Rows, Writing
from limner.store.snapshot import Snapshot
from limner.store.sqlite_rows import SqliteRows

pytest.importorskip("lancedb")

DIM = 4
TEXTS = {"id": "a", "description": "b"}
NUMBERS = st.lists(st.integers(0, 4), min_size=1, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("add"), NUMBERS, st.integers(0, 99)),
    st.tuples(st.just("update"), NUMBERS, st.integers(0, 99)),
    st.tuples(st.just("delete"), NUMBERS),
    st.tuples(st.just("add_sentences"), NUMBERS),
    st.tuples(st.just("delete_sentences"), NUMBERS),
    st.tuples(st.just("delete_sentences_of"), NUMBERS),
    st.tuples(st.sampled_from(["commit", "commit", "abandon", "scrub", "recount", "open"])),
)


def path_of(number: int) -> str:
    # what SQL must be told of, and what only UTF-8 holds
    return f"/pictures/{number}'é\"%_\\ \n.jpg"


def image_of(number: int, seed: int) -> StoredImage:
    # a second place has sentences, too, which go with the image
    others = (Place(path_of(number + 1), seed),) if seed % 2 else ()
    facts = (None, None, f"it's {seed}", {"seed": seed})
    return StoredImage(path_of(number), f"{seed:064x}", seed, 2**62 + seed, *facts, others)


def picture_of(number: int, seed: int) -> Picture:
    draws = np.random.default_rng([number, seed])
    thumbnail = draws.bytes(40) if (number + seed) % 3 else None
    regions = draws.standard_normal((1, 2, 3)).astype(np.float16) if (number + seed) % 2 else None
    return Picture(image_of(number, seed), draws.standard_normal(DIM).astype(np.float32), thumbnail, regions)


def change(writing: Writing, name: str, numbers: list[int], seed: int = 0) -> object:
    """One step of a change; what it returns, or the kind of its error."""
    ids = [key_of(path_of(number)) for number in numbers]
    vectors = np.random.default_rng(numbers).standard_normal((len(numbers), DIM)).astype(np.float32)
    texts = [
        (f"s'{number}", f"Satz {number} – ü", path_of(number) if number % 2 else None) for number in numbers
    ]
    steps: dict[str, Callable[[], object]] = {
        "add": lambda: writing.add([picture_of(number, seed) for number in numbers]),
        "update": lambda: writing.update([image_of(number, seed) for number in sorted(set(numbers))]),
        "delete": lambda: writing.delete(ids),
        "add_sentences": lambda: writing.add_sentences(texts, vectors),
        "delete_sentences": lambda: writing.delete_sentences([key for key, _, _ in texts]),
        "delete_sentences_of": lambda: writing.delete_sentences(
            paths=[path_of(number) for number in numbers]
        ),
    }
    try:
        return steps[name]()
    except (DataError, StoreError) as error:
        return type(error)


def content(reading: Reading) -> dict[str, Any]:
    """All that a store says of its rows."""
    pictures = sorted(reading.pictures())
    numbers = np.array([row.number for row in pictures], np.int64)
    some = numbers[:1]
    vectors: dict[tuple[int, int], bytes] = {}
    for wanted in (numbers, some):
        for places, rows in reading.vectors(wanted):
            vectors |= {(len(wanted), place): row for place, row in zip(places.tolist(), rows, strict=True)}
    return {
        "states": [reading.state(table)[1:] for table in ("pictures", "sentences")],
        "pictures": pictures,
        "some": sorted(reading.pictures([row.id for row in pictures[::2]] + ["' OR 1=1 --"])),
        "sentences": sorted(reading.sentences()),
        "vectors": vectors,
        "thumbnails": reading.thumbnails(numbers.tolist()),
        "regions": reading.regions(numbers.tolist()),
        "snapshot": Snapshot.read(Path("store"), reading, "a", DIM).state,
    }


def content_of(rows: Rows) -> dict[str, Any]:
    with rows.reading() as reading:
        return content(reading)


WHOLE = [
    ("add", [0, 1, 3], 0),
    ("add_sentences", [1, 2, 3]),
    ("commit",),
    ("add", [1], 5),
    ("delete", [1]),
    ("update", [3], 6),
    ("commit",),
    ("delete_sentences_of", [3]),
    ("abandon",),
    ("add", [3], 7),
    ("scrub",),
    ("add", [3], 7),
    ("delete_sentences_of", [3]),
]


ADDED_BETWEEN = [("add", [0, 1], 0), ("commit",), ("scrub",), ("add", [2], 0), ("commit",), ("scrub",)]


@example(steps=WHOLE)
@example(steps=ADDED_BETWEEN)
@settings(max_examples=25)
@given(steps=st.lists(STEPS, max_size=14))
def test_both_engines_hold_the_same(
    steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = tmp_path_factory.mktemp("sqlite"), tmp_path_factory.mktemp("lance")
    both: list[Rows] = [SqliteRows.create(folders[0], TEXTS), LanceRows.create(folders[1], TEXTS)]
    changes = [rows.begin() for rows in both]
    for step in [*steps, ("commit",)]:
        name, *given_values = step
        if given_values:
            before = [content_of(rows) for rows in both]
            assert change(changes[0], *step) == change(changes[1], *step)
            # nothing is seen of it
            assert [content_of(rows) for rows in both] == before
            continue
        if name in ("commit", "abandon", "recount"):
            for writing in changes:
                getattr(writing, name)()
        else:
            # what was not committed is gone, as after a kill
            changes[0].close()
            if name == "open":
                both = [SqliteRows(folders[0]), LanceRows.open(folders[1])]
            else:
                for rows in both:
                    rows.scrub()
            changes = [rows.begin() for rows in both]
        assert content_of(both[0]) == content_of(both[1])
        assert [rows.faults() for rows in both] == [[], []]
    for rows in both:
        rows.close()


class Killed(BaseException):
    """In the place of a kill."""


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """Ends whoever writes behind the given number of writes, counted from 0."""
    from lancedb.db import LanceDBConnection
    from lancedb.table import LanceTable

    done: list[str] = []

    def ending(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def once(*args: Any, **values: Any) -> Any:
            made = do(*args, **values)
            done.append(name)
            if len(done) == step + 1:
                raise Killed
            return made

        return once

    with pytest.MonkeyPatch.context() as patch:
        for kind, names in (
            (LanceTable, ("add", "delete", "optimize", "create_index", "restore")),
            (LanceDBConnection, ("create_table",)),
            (lance_rows, ("put_head",)),
        ):
            for name in names:
                patch.setattr(kind, name, ending(name, getattr(kind, name)))
        yield done


def two_pictures(rows: LanceRows) -> None:
    writing = rows.begin()
    for name, numbers, seed in (
        ("add", [1, 2, 3], 7),
        ("add_sentences", [4, 5], 0),
        ("delete", [1], 0),
        ("update", [2], 8),
        ("add_sentences", [3], 0),
    ):
        change(writing, name, numbers, seed)
    writing.commit()
    writing.close()


@pytest.mark.parametrize("do", [two_pictures, LanceRows.scrub], ids=["change", "scrub"])
def test_a_kill_at_every_step(
    do: Callable[[LanceRows], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # files are joined at each commit, too
    monkeypatch.setattr("limner.store.lance_rows.pays", lambda stats: True)

    def prepared(name: str) -> LanceRows:
        rows = LanceRows.create(tmp_path / name, TEXTS)
        writing = rows.begin()
        change(writing, "add", [1, 2], 0)
        change(writing, "add_sentences", [1], 0)
        writing.commit()
        change(writing, "delete", [2], 0)
        writing.commit()
        return rows

    (tmp_path / "whole").mkdir()
    whole = prepared("whole")
    before = content_of(whole)
    do(whole)
    after = content_of(whole)
    step = 0
    while True:
        (tmp_path / str(step)).mkdir()
        rows = prepared(str(step))
        try:
            with killed_at(step) as done:
                do(rows)
            break
        except Killed:
            pass
        left = LanceRows.open(rows.folder)
        put = done.count("put_head")
        assert content_of(left) == (after if put else before), done
        assert left.faults() == []
        # the next writer
        if not put or do is not two_pictures:
            do(left)
        assert content_of(left) == after, done
        left.scrub()
        assert (content_of(LanceRows.open(rows.folder)), left.faults()) == (after, [])
        step += 1
    assert step > 5


def test_a_reader_stays_at_its_moment(tmp_path: Path) -> None:
    rows = LanceRows.create(tmp_path, TEXTS)
    writing = rows.begin()
    change(writing, "add", [1, 2, 3], 1)
    writing.commit()
    with rows.reading() as reading:
        first, identity = content(reading), rows.identity()
        change(writing, "delete", [1, 2], 1)
        change(writing, "add_sentences", [3], 1)
        writing.commit()
        assert (content(reading), content_of(rows), rows.identity()) == (first, first, identity)
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.extend([content_of(rows), rows.identity()]))
        thread.start()
        thread.join()
    assert seen == [content_of(rows), rows.identity()]
    assert (seen[0] != first, [kept.commits for kept in seen[1][1:]]) == (True, [2, 1])
    # what `scrub` has taken away is no damage
    with rows.reading() as reading:
        change(writing, "delete", [3], 1)
        writing.commit()
        LanceRows.open(tmp_path).scrub()
        rows.close()
        with pytest.raises(StoreError, match="try again") as caught:
            content(reading)
        assert caught.value.trouble == "other"
    assert content_of(rows)["pictures"] == []


@pytest.mark.parametrize("read", ["snapshot", "entries", "thumbnails", "regions", "sentences"])
def test_what_goes_while_it_is_read_is_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Another process erases between a server's look at the store and its reading of the rows."""
    manifest = StoreManifest(fingerprint="a", dim=DIM, map=(1, 2, 3), run="run", created="now", id="a")
    rows = LanceRows.create(tmp_path, texts_of(manifest))
    writing = rows.begin()
    # of each of these numbers and seeds there are a thumbnail and region features
    writing.add([picture_of(number, 1) for number in (0, 4)])
    writing.add_sentences([("s", "a sentence", path_of(4))], np.ones((1, DIM), np.float32))
    writing.commit()
    files, scan = StoreFiles(tmp_path, LanceRows.open(tmp_path)), LanceReading.scan
    left, expected_regions = image_of(4, 1), picture_of(4, 1).regions
    assert expected_regions is not None
    calls: dict[str, Callable[[], object]] = {
        "snapshot": lambda: files.snapshot().keys == [left.id],
        "entries": lambda: list(files.entries()) == left.paths,
        "thumbnails": lambda: thumbnails(files, [left.id]) == [picture_of(4, 1).thumbnail],
        "regions": lambda: np.array_equal(region_features(files, [left.id])[0], expected_regions),
        "sentences": lambda: [one.text for one in SentenceTable(files).describing()[0]] == ["a sentence"],
    }
    times = [1]

    def late(reading: LanceReading, *given: Any) -> Iterator[Any]:
        while times[0]:
            times[0] -= 1
            writing.delete([key_of(path_of(0))])
            writing.update([left])
            writing.commit()
            rows.scrub()
        yield from scan(reading, *given)

    monkeypatch.setattr(LanceReading, "scan", late)
    assert calls[read]()
    assert times == [0]


def test_deleted_rows_leave_the_storage(tmp_path: Path) -> None:
    rows = LanceRows.create(tmp_path, TEXTS)
    writing = rows.begin()
    # one of many: LanceDB would leave it in its file
    pictures = [picture_of(number, 1) for number in range(200)]
    gone = pictures[1]
    writing.add(pictures)
    writing.add_sentences([("s", "an unusual sentence", gone.image.path)], np.ones((1, DIM), np.float32))
    writing.commit()
    assert gone.thumbnail is not None
    traces = (
        gone.thumbnail,
        gone.vector.tobytes(),
        gone.image.id.encode(),
        gone.image.path.encode(),
        b"an unusual",
    )

    def found() -> set[bytes]:
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        return {trace for trace in traces for file in files if trace in file}

    assert found() == set(traces)
    writing.delete([gone.image.id])
    writing.commit()
    left = content_of(rows)
    assert found() == set(traces)
    rows.scrub()
    assert (found(), content_of(rows)) == (set(), left)
    # what stays is still there in the same form
    assert (pictures[3].thumbnail or b"?") in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*.lance") if path.is_file()
    )


def test_what_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    rows = LanceRows.create(tmp_path, TEXTS)
    writing = rows.begin()
    change(writing, "add", [1, 2], 1)
    writing.commit()
    for file in (tmp_path / "contents.lance" / "data").iterdir():
        file.unlink()
    (line,) = LanceRows.open(tmp_path).faults()
    assert "contents" in line
    with pytest.raises(StoreError, match="is damaged"):
        content_of(LanceRows.open(tmp_path))
    text = (tmp_path / FILE).read_text()
    for broken in (text.replace('"number": 2', '"number": 3'), text[:99], "[]", "1", "[" * 9999):
        (tmp_path / FILE).write_text(broken)
        with pytest.raises(StoreError, match="is damaged"):
            LanceRows.open(tmp_path)
    (tmp_path / FILE).write_text('{"format": 4, "dim": 3}')
    with pytest.raises(StoreError, match="an earlier limner; index into a new folder"):
        LanceRows.open(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(StoreError, match="no such store") as caught:
        LanceRows.open(tmp_path)
    assert caught.value.trouble == "missing"


def test_a_writer_that_was_taken_over_commits_nothing(tmp_path: Path) -> None:
    first = LanceRows.create(tmp_path, TEXTS).begin()
    change(first, "add", [1], 1)
    second = LanceRows.open(tmp_path).begin()
    change(second, "add", [2], 1)
    second.commit()
    with pytest.raises(StoreError, match="taken over"):
        first.commit()
    left = content_of(LanceRows.open(tmp_path))
    assert [row.path for row in left["pictures"]] == [path_of(2)]
    # whose rows LanceDB lets into the table that is written
    change(second, "delete", [2])
    table = LanceRows.open(tmp_path).database.open_table("contents")
    table.add(lance_tables.to_arrow("contents", [(9, b"\0" * 4 * DIM, None, None)]))
    change(second, "add", [3])
    with pytest.raises(StoreError, match="taken over"):
        second.commit()
    assert content_of(LanceRows.open(tmp_path)) == left


def test_texts(tmp_path: Path) -> None:
    rows = LanceRows.create(tmp_path, TEXTS)
    writing = rows.begin()
    change(writing, "add", [1], 1)
    rows.set_text("calibration", "ü")
    assert rows.changed_at() is None
    writing.commit()
    assert (rows.text("calibration"), rows.text("id"), rows.text("other")) == ("ü", "a", None)
    rows.set_text("calibration", None)
    assert (rows.text("calibration"), len(content_of(rows)["pictures"])) == (None, 1)
    assert rows.changed_at() is not None
    with pytest.raises(LimnerError, match="tools of the storage"):
        rows.copy(tmp_path / "copy")


def test_commits_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LanceDB keeps what it reads of each commit; without a limit 30 adds and deletes leave 1.5 MB there."""
    limit = 2**18
    monkeypatch.setattr(lance_tables, "CACHED", limit)
    sessions: list[Any] = []
    library = lance_tables.lancedb()
    kind = library.Session

    def session(**limits: int) -> Any:
        sessions.append(kind(**limits))
        return sessions[-1]

    monkeypatch.setattr(library, "Session", session)
    rows = LanceRows.create(tmp_path, TEXTS)
    writing = rows.begin()
    for _ in range(30):
        for name in ("add", "delete"):
            change(writing, name, [1], 1)
            writing.commit()
        content_of(rows)
    # it has been used, and it has been emptied
    assert limit / 4 < sessions[0].size_bytes < 1.5 * limit


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[lance\]'"):
        LanceRows(tmp_path)


@pytest.mark.parametrize(
    ("error", "doing", "said", "trouble"),
    [
        (RuntimeError("Generic S3 error: error sending request for url"), "read", "the endpoint is", "disk"),
        (
            RuntimeError("lance error: No space left (os error 28), lib.rs"),
            "written",
            "cannot be written",
            "full",
        ),
        (
            RuntimeError("lance error: what nobody knows\nsecond line"),
            "written",
            "what nobody knows",
            "other",
        ),
        (ValueError("Version 3 no longer exists"), "read", "is damaged", "damaged"),
        (PermissionError(13, "Access Denied"), "read", "cannot be read", "forbidden"),
    ],
)
def test_errors_of_the_engine(error: Exception, doing: str, said: str, trouble: str) -> None:
    with pytest.raises(StoreError, match=said) as caught, lance_tables.told(Path("store"), doing):
        raise error
    assert (caught.value.trouble, "\n" in str(caught.value)) == (trouble, False)
    # a mistake of ours keeps its trace
    with pytest.raises(ValueError, match="ours"), lance_tables.told(Path("store"), "written"):
        raise ValueError("ours")

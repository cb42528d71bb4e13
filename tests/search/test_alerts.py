"""`limner.search.alerts`: each new picture that fits is told once, whatever happens to files, store and process."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limner.alert_reports import AlertReport
from limner.errors import DataError, SettingsError, StoreError
from limner.search import alerts as module
from limner.search.alerts import Alerting, save_alert
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.sync import SyncSettings, sync
from limner.search.watch import watch
from limner.store.alerts import Alert, alerts_of, change_alerts
from limner.store.backup import backup
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.manifest import texts_of
from tests.forked import started
from tests.search.fake import FakeEncoder, calibration, unit
from tests.search.test_places import made
from tests.search.test_watch import LONG, until

WORDS = {"red": 0, "green": 1, "blue": 2}


class Colours(FakeEncoder):
    """Its words are the three colours, and a picture fits the colour that it has."""

    def encode_texts(self, sentences: Any, *, check: bool = True) -> Any:
        rows = np.full((len(sentences), self.dim), 1e-3, np.float32)
        for row, sentence in zip(rows, sentences, strict=True):
            for word in sentence.split():
                row[WORDS[word] :: 3] += 1
        return unit(rows)


def paint(path: Path, colour: str, seed: int = 0) -> Path:
    """A picture of one colour; the seed makes its bytes others."""
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., WORDS[colour]] = 200 + seed % 50
    pixels[0, 0] = seed % 256, seed // 256, 0
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


class Told:
    def __init__(self) -> None:
        self.reports: list[AlertReport] = []
        self.lines: list[str] = []

    def __call__(self, told: AlertReport | str) -> None:
        if isinstance(told, str):
            self.lines.append(told)
        else:
            self.reports.append(told)

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(report.alert, hit.name) for report in self.reports for hit in report.hits]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    for number in range(12):
        paint(folder / f"old-{number}.png", "red", number)
    return folder


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> StoreFiles:
    store = made(tmp_path / "store")
    index_pictures(Colours(), store, [folder])
    return store


def engine_of(store: StoreFiles, **more: Any) -> Engine:
    return Engine(StoreFiles.open(store.folder), Colours(), **more)


def saved(
    store: StoreFiles, name: str = "reds", text: str = "red", at_least: float = 0.9, **more: Any
) -> None:
    save_alert(engine_of(store), Alert(name=name, text=text, at_least=at_least, **more))


def looked(store: StoreFiles, **more: Any) -> list[tuple[str, str]]:
    """What a process that begins now tells."""
    told = Told()
    Alerting(engine_of(store), told, **more).look()
    assert not told.lines
    return told.names


def synced(store: StoreFiles) -> None:
    sync(Colours(), store, SyncSettings(yes=True))


def test_each_new_picture_is_told_once(store: StoreFiles, folder: Path) -> None:
    saved(store)
    saved(store, "greens", "green")
    assert looked(store) == []
    paint(folder / "a.png", "red", 100)
    paint(folder / "b.png", "green", 101)
    paint(folder / "c.png", "blue", 102)
    synced(store)
    assert looked(store) == [("greens", "b.png"), ("reds", "a.png")]
    # of the process that told, and of another one
    assert looked(store) == []
    # moved, and gone and back
    (folder / "a.png").rename(folder / "moved.png")
    (folder / "b.png").rename(folder.parent / "b.png")
    synced(store)
    assert looked(store) == []
    (folder.parent / "b.png").rename(folder / "back.png")
    # a copy is the same picture
    shutil.copy(folder / "moved.png", folder / "copy.png")
    synced(store)
    assert looked(store) == []
    # other bytes are another picture
    paint(folder / "c.png", "red", 103)
    synced(store)
    assert looked(store) == [("reds", "c.png")]


def test_better_ones_that_are_there_hide_none(store: StoreFiles, folder: Path) -> None:
    """A search for the first hundred would have found the old ones alone."""
    for number in range(150):
        paint(folder / f"more-{number}.png", "red", number + 200)
    synced(store)
    saved(store, at_least=0.5)
    pixels = np.full((8, 8, 3), 90, np.uint8)
    pixels[..., 0] = 200
    Image.fromarray(pixels).save(folder / "reddish.png")
    synced(store)
    assert looked(store) == [("reds", "reddish.png")]


def test_conditions_and_quotes(store: StoreFiles, folder: Path) -> None:
    saved(store, "named", where=["path~*/in/*"])
    paint(folder / "in" / "a.png", "red", 100)
    paint(folder / "b.png", "red", 101)
    synced(store)
    assert looked(store) == [("named", "a.png")]


def test_a_calibrated_model_goes_by_the_probability(store: StoreFiles, folder: Path) -> None:
    engine = engine_of(store, calibration=calibration())
    kept, fits = save_alert(engine, Alert(name="reds", text="red", at_least=0.7))
    assert (kept.by, fits) == ("probability", 12)
    weighed, _ = save_alert(engine, Alert(name="weighed", text="red -green", at_least=0.7))
    assert weighed.by == "cosine"
    change_alerts(engine.files, lambda alerts: {"reds": alerts["reds"]})
    paint(folder / "a.png", "red", 100)
    paint(folder / "b.png", "green", 101)
    synced(store)
    told = Told()
    Alerting(engine_of(store), told).look()
    # without a calibration `at_least` would mean something else
    assert told.lines == [
        "alerts: reds goes by the probability, and the model is not calibrated; trying again"
    ]
    Alerting(engine, told).look()
    assert told.names == [("reds", "a.png")]
    (hit,) = told.reports[0].hits
    answer = engine.answer(kept.request.replace(k=100))
    assert hit.probability == next(one.probability for one in answer.hits if one.id == hit.id)
    assert told.reports[0].lines(20) == [f"alert reds: a.png, probability {hit.probability:.2f}"]


def test_one_that_fails_leaves_the_others_alone(store: StoreFiles, folder: Path) -> None:
    save_alert(engine_of(store, calibration=calibration()), Alert(name="a", text="red", at_least=0.1))
    saved(store, "b")
    paint(folder / "a.png", "red", 100)
    synced(store)
    told = Told()
    alerting = Alerting(engine_of(store), told)
    for _ in range(3):
        alerting.look()
    assert (told.names, len(told.lines)) == ([("b", "a.png")], 1)
    assert alerts_of(store)["b"].seen > alerts_of(store)["a"].seen


def test_pictures_of_a_record_that_fails_are_told_later(store: StoreFiles, folder: Path) -> None:
    saved(store)
    paint(folder / "a.png", "red", 100)
    synced(store)
    told, faults = Told(), [OSError("disk full")]

    def record(alert: Alert, report: AlertReport) -> None:
        if faults:
            raise faults.pop()

    alerting = Alerting(engine_of(store), told, record)
    alerting.look()
    assert (told.names, told.lines) == ([], ["alerts: disk full; trying again"])
    alerting.look()
    assert told.names == [("reds", "a.png")]


def test_another_process_that_writes(store: StoreFiles, folder: Path) -> None:
    saved(store)
    paint(folder / "a.png", "red", 100)
    synced(store)
    told = Told()
    alerting = Alerting(engine_of(store), told)
    with store.writing():
        alerting.look()
        alerting.look()
        assert told.names == [("reds", "a.png")]
        assert alerts_of(store)["reds"].seen == 12
    alerting.look()
    assert (told.names, told.lines) == ([("reds", "a.png")], [])
    assert alerts_of(store)["reds"].seen == 13


def _told_and_killed(store: Path, written: Path) -> None:
    setattr(module, "change_alerts", lambda *given: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010

    def told(report: AlertReport | str) -> None:
        assert isinstance(report, AlertReport)
        written.write_text(report.hits[0].name)

    Alerting(Engine(StoreFiles.open(store), Colours()), told).look()


def test_a_kill_between_the_telling_and_the_writing(store: StoreFiles, folder: Path) -> None:
    """It is told once more, and none is lost: at least once."""
    saved(store)
    paint(folder / "a.png", "red", 100)
    synced(store)
    process = started(_told_and_killed, store.folder, folder.parent / "told")
    process.join(LONG)
    assert process.exitcode == -signal.SIGKILL
    assert (folder.parent / "told").read_text() == "a.png"
    assert looked(store) == [("reds", "a.png")]
    assert looked(store) == []


def test_numbers_of_erased_pictures_are_not_given_again(store: StoreFiles, folder: Path) -> None:
    saved(store)
    last = paint(folder / "a.png", "red", 100)
    synced(store)
    assert looked(store) == [("reds", "a.png")]
    last.unlink()
    erase(store, paths=last)
    paint(folder / "b.png", "red", 101)
    synced(store)
    assert looked(store) == [("reds", "b.png")]


def test_a_copy_that_is_put_back(store: StoreFiles, folder: Path, tmp_path: Path) -> None:
    """It gives numbers anew, and its alerts are as old as its pictures."""
    saved(store)
    own = Path(str(store.folder))
    backup(own, tmp_path / "copy")
    told = Told()
    alerting = Alerting(engine_of(store), told)
    paint(folder / "a.png", "red", 100)
    synced(store)
    alerting.look()
    shutil.rmtree(own)
    shutil.copytree(tmp_path / "copy", own)
    (folder / "a.png").unlink()
    paint(folder / "b.png", "red", 101)
    synced(StoreFiles.open(store.folder))
    alerting.look()
    assert told.names == [("reds", "a.png"), ("reds", "b.png")]


def test_a_store_of_lancedb(store: StoreFiles, folder: Path, tmp_path: Path) -> None:
    """As on an object storage: numbers grow over erasures there, too."""
    pytest.importorskip("lancedb")
    from limner.store.lance_rows import LanceRows

    place = tmp_path / "lance"
    place.mkdir()
    lance = StoreFiles(place, LanceRows.create(place, texts_of(store.manifest)))
    engine = Engine(lance, Colours())
    index_pictures(Colours(), lance, [folder])
    save_alert(engine, Alert(name="reds", text="red", at_least=0.9))
    told = Told()
    alerting = Alerting(engine, told)
    for number in range(2):
        paint(folder / f"new-{number}.png", "red", 100 + number)
        sync(Colours(), lance, SyncSettings(yes=True))
        alerting.look()
        erase(lance, paths=folder / f"new-{number}.png")
        (folder / f"new-{number}.png").unlink()
    assert told.names == [("reds", "new-0.png"), ("reds", "new-1.png")]
    assert alerts_of(StoreFiles(place, LanceRows.open(place)))["reds"].seen > 12


def test_an_erasure_leaves_no_name_in_alerts(store: StoreFiles, folder: Path) -> None:
    paths = [paint(folder / f"{name}.png", "red", 100 + place) for place, name in enumerate(("x", "y", "z"))]
    facts = {"annabel": paths[0], "bo": paths[1], "7": paths[2]}
    index_pictures(
        Colours(), store, [folder], metadata={str(path): {"identity": name} for name, path in facts.items()}
    )
    saved(store, "one", where=["identity=annabel"])
    saved(store, "two", where=["identity=7|8"])
    saved(store, "of Bo")
    saved(store, "a file", where=[f"path={paths[0]}"])
    saved(store, "other", where=["identity=9"])
    report = erase(store, identity="annabel")
    assert (report.alerts, report.sound) == (2, True)
    assert erase(store, identity="bo").alerts == 1
    assert erase(store, identity="7").alerts == 1
    assert list(alerts_of(store)) == ["other"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at_least": 1.5}, "at_least"),
        ({"name": "a/b"}, "setting 'name': expected up to 60 letters"),
        ({"name": ".a"}, "behind a letter or digit"),
        ({"name": "a" * 61}, "up to 60"),
        ({"hook": "ftp://example.org/x"}, "hook: expected an address"),
        ({"hook": "https://me:secret@example.org/x"}, "hook: expected an address"),
        ({"hook": "http://example.org:99999/"}, "hook: expected an address"),
        ({"hook": "http://exam ple.org/"}, "hook: expected an address"),
        ({"send_picture": True}, "send_picture: there is no web hook"),
        ({"where": ["camera"]}, "camera"),
        ({"text": "-red"}, "only what is not wanted"),
        ({"at_last": 0.5}, "did you mean 'at_least'"),
    ],
)
def test_a_mistake_is_one_line(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Alert.parse({"name": "a", "text": "red", "at_least": 0.5, **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["red", "ein Mantel", "नीली जैकेट", "áo đỏ", "红色", "3.b_c-d"])
def test_names_of_all_languages(name: str) -> None:
    assert Alert(name=name, text="red", at_least=0.5).name == name


def test_what_cannot_be_saved(store: StoreFiles) -> None:
    path = next(iter(store.images())).path
    index_pictures(Colours(), store, [path], metadata={path: {"camera": 3}})
    with pytest.raises(SettingsError, match="no picture has 'camra'; is it 'camera'"):
        saved(store, where=["camra=3"])
    with pytest.raises(DataError, match="empty"):
        saved(store, text=" ")
    saved(store)
    with pytest.raises(SettingsError, match="there is an alert 'reds' already"):
        save_alert(engine_of(store), Alert(name="reds", text="green", at_least=0.5), anew=False)
    assert alerts_of(store)["reds"].text == "red"
    more = {str(number): Alert(name=str(number), text="red", at_least=0.5) for number in range(99)}
    change_alerts(store, lambda own: own | more)
    with pytest.raises(SettingsError, match="at most 100 alerts"):
        saved(store, "one more")


def test_damaged_alerts_are_an_error(store: StoreFiles, folder: Path) -> None:
    saved(store)
    with store.writing():
        store.rows.set_text("alerts", (store.rows.text("alerts") or "").replace('"red"', '"rad"'))
    with pytest.raises(StoreError, match="its alerts are damaged"):
        alerts_of(store)
    # which ends no watching
    told = Told()
    Alerting(engine_of(store), told).look()
    assert [line.partition(": ")[2] for line in told.lines] == [
        f"{store.folder}: its alerts are damaged; put back a copy of the store; trying again"
    ]


@contextmanager
def followed(store: StoreFiles) -> Iterator[Told]:
    """A thread that watches, as `limner watch` does."""
    told, stop = Told(), threading.Event()
    engine = engine_of(store)
    alerting = Alerting(engine, told)

    def run() -> None:
        watch(engine.encoder, engine.files, lambda report: None, stop=stop, after=alerting.look)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join(LONG)
    assert not thread.is_alive()


def patiently(change: Callable[[], object]) -> None:
    """Change the store when the other process lets go of it."""

    def is_done() -> bool:
        with suppress(StoreError):
            change()
            return True
        return False

    until(is_done)


def test_the_loop_tells_of_files_and_of_what_others_index(
    store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("watchfiles")
    saved(store)
    with followed(store) as told:
        paint(folder / "a.png", "red", 100)
        until(lambda: told.names == [("reds", "a.png")])
        other = paint(tmp_path / "other.png", "red", 101)
        patiently(lambda: index_pictures(Colours(), StoreFiles.open(store.folder), [other]))
        until(lambda: told.names[1:] == [("reds", "other.png")])
        # nothing goes by the clock of the day
        monkeypatch.setattr(time, "time", lambda: 4e9)
        paint(folder / "b.png", "red", 102)
        until(lambda: told.names[2:] == [("reds", "b.png")])
        monkeypatch.setattr(time, "time", lambda: 1e9)
        patiently(lambda: saved(store, "greens", "green"))
        paint(folder / "c.png", "green", 103)
        until(lambda: told.names[3:] == [("greens", "c.png")])
    assert not told.lines


def test_very_many_at_once(store: StoreFiles, folder: Path) -> None:
    saved(store)
    for number in range(3000):
        paint(folder / "many" / f"{number}.png", "red", number + 1000)
    synced(store)
    began = time.monotonic()
    told = looked(store)
    assert len(told) == len(set(told)) == 3000
    assert time.monotonic() - began < 5

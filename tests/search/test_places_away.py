"""A place in a folder that is away stays a place of its picture, whatever happens to the other places."""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from limner.search.index import index_pictures
from limner.search.sync import SyncSettings, sync
from limner.store.files import StoreFiles
from limner.store.verify import verify
from limner.store_reports import SyncReport
from tests.search.fake import FakeEncoder
from tests.search.test_places import bytes_of, made, put
from tests.search.test_sync import found

MOUNTS = ("a", "b", "b/disk")
PATHS = [f"{mount}/{name}.png" for mount in MOUNTS for name in ("x", "y")]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write 1", "write 2", "copy", "move", "delete", "away", "back", "back"]),
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
    ),
    max_size=6,
)

AWAY = ("away", "b/disk/x.png", "a/x.png")
TWO_AWAY = [
    ("write 1", "a/x.png", "a/x.png"),
    ("copy", "a/x.png", "b/disk/x.png"),
    ("copy", "a/x.png", "b/disk/y.png"),
]
"""A picture at two places on the disk and at one that is there."""


def places(store: StoreFiles) -> dict[str, set[str]]:
    """Paths of all pictures by digest, also of those that wait for their files."""
    return {image.sha256: set(image.paths) for image in store.images()}


def synced(store: StoreFiles, *, yes: bool = False) -> tuple[SyncReport, int]:
    encoder = FakeEncoder()
    return sync(encoder, store, SyncSettings(yes=yes)), encoder.encoded


class World:
    """Two folders that are followed, and a disk in one of them, each of which can be away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.away = folder, set[str]()
        for number, mount in enumerate(MOUNTS, start=4):
            put(folder / "there" / mount / "always.png", bytes_of(folder.parent, number))

    def holding(self, path: Path) -> str | None:
        """What is away with a file."""
        folder = path.parent.relative_to(self.folder / "there").as_posix()
        above = (folder, folder.partition("/")[0])
        return next((one for one in sorted(above) if one in self.away), None)

    def do(self, what: str, first: str, second: str) -> None:
        """Do what people and disks do; a step on what is not there does nothing."""
        one, two = (self.folder / "there" / path for path in (first, second))
        mount = first.rpartition("/")[0]
        place, aside = one.parent, self.folder / mount.replace("/", "-")
        if what == "back" and mount in self.away and self.holding(place.parent / "x") in (None, mount):
            if place.exists():
                place.rmdir()
            aside.rename(place)
            self.away.remove(mount)
        elif self.holding(one) or self.holding(two):
            return
        elif what == "away":
            place.rename(aside)
            self.away.add(mount)
            # the place of a mounted disk is there without it
            if mount == "b/disk":
                place.mkdir()
        elif what.startswith("write"):
            put(one, bytes_of(self.folder.parent, int(what[-1])))
        elif one.exists() and what == "copy" and one != two:
            put(two, one.read_bytes())
        elif one.exists() and what == "move":
            one.rename(two)
        elif what == "delete":
            one.unlink(missing_ok=True)

    def files(self) -> dict[str, set[str]]:
        """The files that are there, by the digest of their bytes."""
        known: dict[str, set[str]] = {}
        for path in (self.folder / "there").rglob("*.png"):
            known.setdefault(sha256(path.read_bytes()).hexdigest(), set()).add(str(path))
        return known


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(rounds=st.lists(STEPS, min_size=2, max_size=6))
@example(rounds=[TWO_AWAY, [AWAY, ("copy", "a/x.png", "a/y.png")]])
@example(rounds=[TWO_AWAY, [AWAY, ("move", "a/x.png", "a/y.png")]])
@example(rounds=[TWO_AWAY, [("delete", "a/x.png", "a/x.png"), AWAY], [("write 1", "a/y.png", "a/y.png")]])
def test_histories_with_folders_away(
    rounds: list[list[tuple[str, str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a tenth of so few pictures is less than one
    monkeypatch.setattr("limner.search.sync.many", lambda gone, total: False)
    for used in ("world", "store"):
        shutil.rmtree(tmp_path / used, ignore_errors=True)
    world, store = World(tmp_path / "world"), made(tmp_path / "store")
    tops = {name: tmp_path / "world" / "there" / name for name in "ab"}
    index_pictures(FakeEncoder(), store, [*tops.values()])
    for steps in rounds:
        before = places(store)
        for step in steps:
            world.do(*step)
        report, encoded = synced(store)
        files = world.files()
        assert encoded == len(files.keys() - before.keys())
        now = {image.sha256: image for image in store.images()}
        whole = dict[str, set[str]]()
        for digest in files.keys() | before.keys():
            seen, known = files.get(digest, set()), before.get(digest, set())
            away = {path for path in known if world.holding(Path(path))}
            # a new file is one that has moved out of a folder before that went away, unless it may be a copy
            moved = 0 if seen & known else max(0, len(seen - known) - len(known - away - seen))
            held = set(now[digest].paths) if digest in now and now[digest].gone is None else set()
            assert held >= seen
            assert held - seen <= away
            assert not report.gone or not away & set(report.gone)
            if seen or digest in whole:
                assert len(held - seen) == max(0, len(away) - moved)
            whole[digest] = held
        everywhere = set().union(*whole.values())
        assert found(store) == everywhere
        missed = {str(world.holding(Path(path))) for path in everywhere if world.holding(Path(path))}
        told = {Path(path).relative_to(tmp_path / "world" / "there").as_posix() for path, _ in report.away}
        assert told == missed | (world.away & tops.keys())
        assert report.sound is not bool(told)
    assert verify(store).sound
    report, _ = synced(store, yes=True)
    assert found(store) == set().union(*world.files().values())
    assert report.sound


def test_a_copy_on_a_disk_that_is_away_keeps_its_picture(tmp_path: Path) -> None:
    folders = tmp_path / "c1", tmp_path / "c2"
    for number, name in enumerate(("a", *map(str, range(12))), start=4):
        put(folders[0] / f"{name}.png", bytes_of(tmp_path, number))
    one, copy = folders[0] / "a.png", put(folders[1] / "copy.png", (folders[0] / "a.png").read_bytes())
    store = made(tmp_path / "store")
    index_pictures(FakeEncoder(), store, folders)
    folders[1].rename(tmp_path / "away")
    for look in (lambda: synced(store), lambda: index_pictures(FakeEncoder(), store, folders[:1])):
        look()
        assert store.entries()[str(one)].paths == [str(one), str(copy)]
    one.unlink()
    report, _ = synced(store)
    assert (report.gone, report.copies_gone, report.waiting) == ((), 1, 0)
    assert report.away == ((str(folders[1]), "is not there"),)
    # a new file tells of one that has moved: it cannot be told from a copy
    put(one, (tmp_path / "away" / "copy.png").read_bytes())
    assert synced(store)[0].moved == 1
    assert store.entries()[str(one)].paths == [str(one)]
    (tmp_path / "away").rename(folders[1])
    report, encoded = synced(store)
    assert (set(store.entries()[str(copy)].paths), encoded) == ({str(one), str(copy)}, 0)

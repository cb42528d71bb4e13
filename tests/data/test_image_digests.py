import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.data import image_digests as module
from limner.data.image_digests import FILE, content_fingerprint, image_digests
from limner.errors import ImageError


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table of this test; files count as settled at once."""
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_SETTLED", 0)
    return tmp_path / "cache" / FILE


def _files(folder: Path, count: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.jpg" for number in range(count)]
    for path in paths:
        path.write_bytes(b"content of " + path.name.encode())
    time.sleep(0.02)  # else they are as young as the clock's tick
    return paths


def _expected(paths: list[Path]) -> np.ndarray:
    return np.array([list(hashlib.sha256(path.read_bytes()).digest()[:16]) for path in paths], np.uint8)


def _never(path: Path) -> None:
    pytest.fail(f"{path} was read again")


def test_digests_are_the_beginnings_of_sha_256_and_files_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, told = _files(tmp_path / "images", 600), []
    first = image_digests(paths, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_array_equal(first, _expected(paths))
    assert told == [(256, 600), (512, 600), (600, 600)]
    monkeypatch.setattr(module, "_hashed", _never)
    np.testing.assert_array_equal(image_digests(paths), first)
    monkeypatch.chdir(tmp_path / "images")
    np.testing.assert_array_equal(image_digests([Path(path.name) for path in paths[:5]]), first[:5])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.binary(min_size=3, max_size=3)), min_size=1, max_size=12))
def test_whatever_is_written_the_digest_is_that_of_the_content(changes: list[tuple[int, bytes]]) -> None:
    """Equal size and time of modification throughout; the file stays the same one, or is replaced."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMNER_CACHE", name)
        # as it is in use: what was changed a moment ago is not remembered, whatever the clock's tick
        patch.setattr(module, "_SETTLED", 2_000_000_000)
        paths = [Path(name) / f"{number}.jpg" for number in range(5)]
        for path in paths:
            path.write_bytes(b"abc")
            os.utime(path, ns=(10**18, 10**18))
        for number, content in changes:
            if content[0] % 2:
                paths[number].write_bytes(content)
            else:
                beside = Path(name) / "beside"
                beside.write_bytes(content)
                beside.replace(paths[number])
            os.utime(paths[number], ns=(10**18, 10**18))
            np.testing.assert_array_equal(image_digests(paths), _expected(paths))


def test_a_file_that_was_changed_a_moment_ago_is_not_remembered(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SETTLED", 2_000_000_000)
    paths = _files(tmp_path / "images", 3)
    image_digests(paths)
    assert not table.exists()


def test_a_damaged_table_is_begun_anew(tmp_path: Path, table: Path) -> None:
    paths = _files(tmp_path / "images", 4)
    expected = image_digests(paths)
    whole = table.read_bytes()
    for place in (0, len(module._HEADER) + 3, len(module._HEADER) + 40, len(whole) - 1):
        table.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        np.testing.assert_array_equal(image_digests(paths), expected)
    table.write_bytes(whole[:-7])
    np.testing.assert_array_equal(image_digests(paths), expected)
    assert table.read_bytes()[:23] == module._HEADER


def test_a_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = _files(tmp_path / "images", 3)
    table.parent.write_text("a file where the folder should be")
    np.testing.assert_array_equal(image_digests(paths), _expected(paths))
    for name in ("LIMNER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    np.testing.assert_array_equal(image_digests(paths), _expected(paths))


def test_the_table_is_bounded_and_keeps_what_was_asked_for_last(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 6)
    paths = _files(tmp_path / "images", 9)
    for day, chosen in ((100, paths[:3]), (101, paths[3:6]), (120, paths[:2]), (121, paths[6:])):
        monkeypatch.setattr(module, "_today", lambda day=day: day)
        image_digests(chosen)
    assert len(table.read_bytes()) == len(module._HEADER) + 16 + 6 * module._ROW.itemsize
    read: list[str] = []
    hashed = module._hashed

    def counted(path: Path) -> tuple[bytes, tuple[int, int] | None]:
        read.append(path.name)
        return hashed(path)

    monkeypatch.setattr(module, "_hashed", counted)
    image_digests([*paths[:2], *paths[6:]])
    assert read == []
    image_digests(paths[2:3])
    assert read == ["2.jpg"]


def test_processes_that_add_at_once_lose_nothing(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = _files(tmp_path / "images", 60)
    code = (
        "import sys; from pathlib import Path; from limner.data import image_digests as m; m._SETTLED = 0\n"
        "for path in sys.argv[1:]: m.image_digests([Path(path)])"
    )
    shares = [list(map(str, paths[start::3])) for start in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(
            threads.map(
                lambda share: subprocess.run([sys.executable, "-c", code, *share], check=True), shares
            )
        )
    monkeypatch.setattr(module, "_hashed", _never)
    np.testing.assert_array_equal(image_digests(paths), _expected(paths))


def test_a_killed_process_leaves_what_it_had_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _files(tmp_path / "images", 600)
    monkeypatch.setattr(module, "_PAUSE", 0.0)

    def stop(done: int, total: int) -> None:
        if done == 600:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        image_digests(paths, progress=stop)
    told: list[int] = []
    image_digests(paths, progress=lambda done, total: told.append(done))
    assert told == [600]


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImageError, match=r"none\.jpg: missing picture \(No such file"):
        image_digests([tmp_path / "none.jpg"])
    with pytest.raises(ImageError, match="not a file"):
        image_digests([tmp_path])
    with pytest.raises(ImageError, match="missing picture"):
        image_digests([Path("a\0b")])
    path = _files(tmp_path / "images", 1)[0]
    digest = hashlib.file_digest

    def grows(file: object, name: str) -> object:
        with path.open("ab") as other:
            other.write(b"more")
        return digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", grows)
    with pytest.raises(ImageError, match="changed while it was read"):
        image_digests([path])


def test_no_images_have_no_digests() -> None:
    assert image_digests([]).shape == (0, 16)


def test_the_fingerprint_is_of_content_and_order(tmp_path: Path) -> None:
    paths = _files(tmp_path / "images", 3)
    copies = [Path(shutil.copy(path, tmp_path / f"copy-{path.name}")) for path in paths]
    assert content_fingerprint(image_digests(paths)) == content_fingerprint(image_digests(copies))
    assert content_fingerprint(image_digests(paths)) != content_fingerprint(image_digests(copies[::-1]))

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limner.compiled import compiled, compiler

SOURCE = """
extern "C" int answer() { return 42; }
"""
compiled_only = pytest.mark.skipif(compiler() is None, reason="no compiler")


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another user's cache, and nothing remembered before or after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler.cache_clear()
    compiled.cache_clear()
    yield
    compiler.cache_clear()
    compiled.cache_clear()


def _written(tmp_path: Path, text: str = SOURCE) -> Path:
    source = tmp_path / "some.cpp"
    source.write_text(text, encoding="utf-8")
    return source


def _kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "limner" / "compiled").iterdir())


@compiled_only
def test_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _written(tmp_path)
    library = compiled(source)
    assert library is not None
    assert library.answer() == 42
    (file,) = _kept(tmp_path)
    written = file.stat().st_mtime_ns
    compiled.cache_clear()
    assert compiled(source) is not None
    assert file.stat().st_mtime_ns == written
    compiled.cache_clear()
    _written(tmp_path, SOURCE.replace("42", "43"))
    changed = compiled(source)
    assert changed is not None
    assert changed.answer() == 43
    assert len(_kept(tmp_path)) == 2


@compiled_only
def test_what_does_not_compile_is_none_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"(?s)some\.cpp: not compiled, so PyTorch's .*error"):
        assert compiled(_written(tmp_path, "this is not C++")) is None
    assert _kept(tmp_path) == []


@compiled_only
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="Not a directory"):
        assert compiled(_written(tmp_path)) is None


@compiled_only
def test_a_folder_that_others_can_write_is_not_loaded_from(tmp_path: Path) -> None:
    source = _written(tmp_path)
    assert compiled(source) is not None
    compiled.cache_clear()
    (file,) = _kept(tmp_path)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.parent.chmod(0o770)
    with pytest.warns(UserWarning, match="can be written by others"):
        assert compiled(source) is None


@compiled_only
def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.warns(UserWarning, match="home directory"):
        assert compiled(_written(tmp_path)) is None


@compiled_only
@pytest.mark.parametrize("left", [0, 7, 4096, None])
def test_a_damaged_file_is_made_again(left: int | None, tmp_path: Path) -> None:
    """Whether it is cut short or has a page of zeros: to load it could end the process."""
    source = _written(tmp_path)
    assert _in_a_process(source).communicate()[0].strip() == "42"
    (file,) = _kept(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:left] if left is not None else whole[:4096] + bytes(4096) + whole[8192:])
    library = compiled(source)
    assert library is not None
    assert library.answer() == 42


@pytest.mark.parametrize(("name", "value"), [("LIMNER_COMPILE", "0"), ("PATH", "")])
def test_without_a_compiler(name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert compiler() is None
    assert compiled(_written(tmp_path)) is None
    assert not (tmp_path / "cache").exists()


@compiled_only
def test_several_processes_at_once(tmp_path: Path) -> None:
    source = _written(tmp_path)
    running = [_in_a_process(source) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["42"] * 3
    assert len(_kept(tmp_path)) == 1


def _in_a_process(source: Path) -> "subprocess.Popen[str]":
    script = (
        f"from pathlib import Path; from limner.compiled import compiled; "
        f"print(compiled(Path({str(source)!r})).answer())"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )

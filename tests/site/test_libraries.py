"""The page's libraries: the pinned bytes or none, from an archive, the cache or a registry."""

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from limner.errors import SettingsError
from limner.site.libraries import RUNTIME, TOKENIZERS, library_files, registry
from tests.site.npm import drawn


@pytest.fixture
def registry_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a registry on this machine hands out; nothing is in the cache."""
    folder = tmp_path / "registry"
    folder.mkdir()
    handler = partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def test_a_library_comes_from_the_registry_and_then_from_the_cache(
    registry_folder: Path, tmp_path: Path
) -> None:
    library, path = drawn(tmp_path, TOKENIZERS)
    place = registry_folder / library.address
    place.parent.mkdir(parents=True)
    path.rename(place)
    files, licence = library_files(library)
    assert files["tokenizers.js"] == b"@huggingface/tokenizers dist/tokenizers.min.mjs"
    assert licence == "@huggingface/tokenizers 0.2.0\n\n@huggingface/tokenizers LICENSE\n"
    place.unlink()
    assert library_files(library)[0] == files


def test_other_bytes_are_refused(registry_folder: Path, tmp_path: Path) -> None:
    _, path = drawn(tmp_path, RUNTIME)
    place = registry_folder / RUNTIME.address
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes())
    with pytest.raises(SettingsError, match="not what was released"):
        library_files(RUNTIME)
    with pytest.raises(SettingsError, match=r"--runtime .*: not onnxruntime-web 1\.30\.0.*npm pack"):
        library_files(RUNTIME, [path])
    assert not (tmp_path / "cache" / "npm" / RUNTIME.archive).exists()


def test_without_a_network_the_way_out_is_told(registry_folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"npm pack onnxruntime-web@1\.30\.0.*--runtime"):
        library_files(RUNTIME)


def test_a_damaged_copy_in_the_cache_is_fetched_anew(registry_folder: Path, tmp_path: Path) -> None:
    library, path = drawn(tmp_path, RUNTIME)
    kept = tmp_path / "cache" / "npm" / library.archive
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"half")
    place = registry_folder / library.address
    place.parent.mkdir(parents=True)
    path.rename(place)
    assert library_files(library)[0].keys() == set(library.files.values())
    assert kept.read_bytes() == place.read_bytes()


def test_the_registry_is_npms_own_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    assert registry() == "https://registry.npmjs.org/"
    monkeypatch.setenv("npm_config_registry", "https://mirror.example/npm")
    assert registry() == "https://mirror.example/npm/"
    monkeypatch.setenv("npm_config_registry", "file:///etc")
    assert registry() == "https://registry.npmjs.org/"

"""Indexing with a pretrained model where no network is: its folder, the hub's cache, or one line that says how."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import limner as library
from limner.store.files import StoreFiles
from limner.store.manifest import IN_STORE
from tests import towers
from tests.cli.command import Limner, refused

pytest.importorskip("transformers")

NAME = "somebody/tiny-siglip2"
RETRIES = 24
"""Seconds that the hub's library takes for one file of a hub that cannot be reached."""


def save_of_sentence_transformers(folder: Path) -> None:
    inner = folder / "0_CLIPModel"
    inner.mkdir()
    towers.save_clip(inner)
    module = {"idx": 0, "name": "0", "path": inner.name, "type": "sentence_transformers.models.CLIPModel"}
    (folder / "modules.json").write_text(json.dumps([module]))


def full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub is behind a proxy where nobody listens; the folder of its cache."""
    from huggingface_hub import close_session

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{unused.getsockname()[1]}"
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    close_session()
    return tmp_path / "home"


@pytest.mark.parametrize(
    "save", [towers.save_clip, towers.save_siglip, towers.save_open_clip, save_of_sentence_transformers]
)
def test_a_model_by_its_folder(
    limner: Limner, pictures: Path, tmp_path: Path, save: Callable[[Path], object]
) -> None:
    given, store, moved = (tmp_path / name for name in ("given", "store", "moved"))
    given.mkdir()
    save(given)
    done = limner("index", given, store, pictures)
    assert done.code == 0, done.err
    imported = tmp_path / "run"
    what = f"st:{given}" if (given / "modules.json").is_file() else given
    assert limner("import", what, imported).code == 0
    with library.open_store(store) as opened:
        assert opened.files.manifest.run == IN_STORE
        assert opened.files.fingerprint == library.load(imported, device="cpu").fingerprint
    again = limner("index", given, store, pictures, "--json")
    assert json.loads(again.out)["unchanged"] == 36
    # a model that was trained further since, or is another of this name, is not taken for the store's
    (given / "tokenizer_config.json").touch()
    refused(
        limner("index", given, store, pictures),
        r"newer files than; add with the one that it holds, `limner in",
    )
    os.utime(given / "tokenizer_config.json", (0, 0))
    other = tmp_path / "other"
    given.rename(other)
    refused(
        limner("index", other, store, pictures), r"built with .*given, not with .*other; index into a new"
    )
    store.rename(moved)
    assert limner("search", moved, "a red square").code == 0


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", None])
def test_a_failure_leaves_no_store(
    *,
    limner: Limner,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    there: bool,
) -> None:
    given, store = tmp_path / "given", tmp_path / "store"
    given.mkdir()
    towers.save_clip(given)
    if file is None:
        # as on a full disk, when the files have been read
        monkeypatch.setattr("limner.inference.checkpoint.save_file", full_disk)
    else:
        (given / file).write_bytes(b"{")
    if there:
        store.mkdir()
    refused(limner("index", given, store, pictures), "")
    # a folder of the user's own stays, as it was
    assert (list(store.iterdir()) == []) if there else not store.exists()


def test_absent_pictures_are_told_before_a_model_is_asked_for(
    limner: Limner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("limner.search.open_source.open_source", "limner.search.store.open_source"):
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("the model was asked for"))
    refused(
        limner("index", f"hf:{NAME}", tmp_path / "store", tmp_path / "none"), "none: no such file or folder"
    )
    with pytest.raises(library.LimnerError, match="none: no such file or folder"):
        library.index(f"hf:{NAME}", tmp_path / "store", tmp_path / "none")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "typed",
    [
        ("index", f"hf:{NAME}", "OUT", "PICTURES"),
        ("index", "st:clip-ViT-B-32", "OUT", "PICTURES"),
        ("import", f"hf:{NAME}", "OUT"),
        ("import", f"st:{NAME}", "OUT"),
        ("evaluate", f"hf:{NAME}", "--data", "folder:PICTURES"),
        ("train", "fine-tune", "--from", f"hf:{NAME}", "--data", "folder:PICTURES", "--out", "OUT"),
    ],
    ids=lambda typed: "-".join(typed[:2]).replace("/", "-"),
)
@pytest.mark.usefixtures("no_network")
def test_a_hub_out_of_reach_is_one_line_at_once(
    limner: Limner, pictures: Path, tmp_path: Path, typed: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    began = time.monotonic()
    done = limner(*(part.replace("OUT", str(out)).replace("PICTURES", str(pictures)) for part in typed))
    assert time.monotonic() - began < RETRIES
    assert done.code == 2
    *before, said = done.err.splitlines()
    assert [line.split()[0] for line in before] == (["reading"] if typed[0] == "import" else [])
    assert (
        "not in the local cache, and the hub cannot be reached; fetch it where there is a network (hf down"
        in said
    )
    assert "--local-dir FOLDER) and give FOLDER in its place; `limner demo` needs neither" in said
    assert not out.exists()


def test_what_the_cache_has_is_taken_without_a_network(
    limner: Limner, pictures: Path, tmp_path: Path, no_network: Path
) -> None:
    """As `hf download` leaves it: without a note of the files that the model does not have."""
    towers.save_in_cache(no_network, NAME)
    began = time.monotonic()
    done = limner("index", f"hf:{NAME}", tmp_path / "store", pictures)
    assert done.code == 0, done.err
    assert time.monotonic() - began < RETRIES
    assert "Retrying" not in done.err
    assert len(StoreFiles.open(tmp_path / "store")) == 36
    # the process may have a network again
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize("offline", [{}, {"HF_HUB_OFFLINE": "1"}], ids=["proxy", "offline"])
@pytest.mark.usefixtures("no_network")
def test_as_a_user_types_it(pictures: Path, tmp_path: Path, offline: dict[str, str]) -> None:
    command = [sys.executable, "-m", "limner", "index", f"hf:{NAME}", str(tmp_path / "store"), str(pictures)]
    done = subprocess.run(
        command, env={**os.environ, **offline}, capture_output=True, text=True, timeout=RETRIES, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not in the local cache" in done.stderr
    assert "give FOLDER in its place; `limner demo` needs neither" in done.stderr
    assert not (tmp_path / "store").exists()

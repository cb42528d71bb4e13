"""`hf:ORG/NAME` in the place of a run: fetched by its names alone, offline from the cache, refused in one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import limner
from limner.cli.train import _imported
from limner.data.records import Dataset
from limner.errors import CheckpointError, LimnerError, SettingsError
from limner.hub.push import push
from limner.inference.hub_runs import find_hub_run, local_run, refusal, run_of_name, split_name
from limner.inference.load import load_model
from limner.recipes import get_recipe
from limner.recipes.change import start_from
from limner.search.open_source import run_for_store
from tests.hub.cache import COMMIT, put, use

hub = pytest.importorskip("huggingface_hub")
NAME = "hf:me/toys"


@pytest.fixture(scope="session")
def published(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "run"
    push(toy_run, str(folder), accept_terms=True)
    return folder


@pytest.fixture
def cache(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(published, tmp_path / "cache", "me/toys")
    use(tmp_path / "cache", monkeypatch)
    return tmp_path / "cache"


def test_a_cached_run_is_loaded_without_a_network_in_a_new_process(cache: Path, toy_run: Path) -> None:
    """As a user would: the variable is in the environment, and nothing in the process knows of tests."""
    code = f"import limner; print(limner.load({NAME!r}, device='cpu').fingerprint)"
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(cache),
        "PYTHONPATH": str(Path(limner.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == load_model(toy_run, device="cpu").fingerprint


def test_a_revision_is_a_branch_a_tag_or_a_commit(published: Path, cache: Path, tmp_path: Path) -> None:
    other = "f" * 40
    put(published, cache, "me/toys", commit=other, ref="v1")
    assert local_run(f"{NAME}@v1").name == local_run(f"{NAME}@{other}").name == other
    assert local_run(NAME).name == local_run(f"{NAME}@{COMMIT}").name == COMMIT
    with pytest.raises(CheckpointError, match="is not in the local cache, and HF_HUB_OFFLINE is set"):
        local_run(f"{NAME}@v2")


def test_only_the_listing_and_the_checkpoint_are_fetched(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository may hold pickles and code beside them: nobody asks for these."""
    asked: list[tuple[str, str | None]] = []

    def fetch(repo: str, file: str, *, revision: str | None = None) -> str:
        asked.append((file, revision))
        return str(published / file)

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    monkeypatch.setattr("limner.inference.hub_runs._answers", lambda _: True)
    limner.load(NAME, device="cpu")
    # the checkpoint of the commit of this listing: a branch may move in between
    assert asked == [("run.json", None), ("model.safetensors", published.name)]


@pytest.mark.parametrize(
    "best",
    [
        *("../../secret.safetensors", "/etc/passwd", "code.py", "weights.bin", "a/b.safetensors"),
        *("*.safetensors", 3),
    ],
)
def test_a_listing_names_a_checkpoint_beside_it_and_nothing_else(
    best: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"best": best}))
    put(tmp_path / "run", tmp_path / "cache", "me/bad")
    use(tmp_path / "cache", monkeypatch)
    with pytest.raises(CheckpointError, match=r"hf:me/bad: its run.json is damaged, or not of limner"):
        limner.load("hf:me/bad")


def test_a_damaged_file_of_the_cache_is_noticed(cache: Path) -> None:
    blob = (local_run(NAME) / "model.safetensors").resolve()
    content = bytearray(blob.read_bytes())
    content[-9] ^= 1
    blob.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged checkpoint"):
        limner.load(NAME)


def test_a_repository_without_a_run_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class EntryNotFoundError(Exception):
        """As the library's own: the repository is there, and has no such file."""

    def fetch(*_: Any, **__: Any) -> str:
        raise EntryNotFoundError

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    monkeypatch.setattr("limner.inference.hub_runs._answers", lambda _: True)
    assert find_hub_run("hf:openai/clip") is None
    with pytest.raises(CheckpointError, match=r"holds no run of limner .*`limner import hf:openai/clip RUN`"):
        limner.load("hf:openai/clip")


def test_a_pair_in_the_cache_costs_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "config.json").write_text("{}")
    put(tmp_path / "pair", tmp_path / "cache", "some/pair")
    use(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(hub, "hf_hub_download", lambda *_, **__: pytest.fail("the network was asked"))
    assert run_of_name("hf:some/pair") is None
    assert run_for_store("hf:some/pair", tmp_path / "store") is None


@pytest.mark.parametrize(
    ("kinds", "status", "message"),
    [
        (
            ("GatedRepoError", "RepositoryNotFoundError"),
            403,
            r"is gated: ask for access .*huggingface.co/me/toys.*hf auth",
        ),
        (("RepositoryNotFoundError",), 404, "no such repository on the hub, or a private one"),
        (("RevisionNotFoundError",), 404, "no such revision"),
        (("LocalTokenNotFoundError",), None, "knows nobody here; log in"),
        ((), 401, "knows nobody here; log in"),
        ((), 403, "forbids it to this account"),
        ((), 503, "the hub answered 503"),
        (("ConnectError",), None, "the hub cannot be reached"),
        (("HFValidationError",), None, "is no name of a repository"),
    ],
)
def test_each_refusal_is_one_line_of_our_own(
    kinds: tuple[str, ...], status: int | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    kind: type[Exception] = Exception
    for name in reversed(kinds):
        kind = type(name, (kind,), {})
    error = kind("Authorization: Bearer hf_verysecret")
    error.response = type("Response", (), {"status_code": status})() if status else None  # type: ignore[attr-defined]
    said = str(refusal(NAME, error))
    assert re.search(message, said), said
    assert "hf_verysecret" not in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["hf:toys", "hf:", "hf:a/b/c", "hf:a/b@", "hf:../x/y", "hf:a b/c"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="expected hf:ORG/NAME"):
        split_name(name)
    with pytest.raises(LimnerError):
        limner.load(name)


def test_a_run_of_the_hub_is_indexed_searched_and_evaluated(
    cache: Path, toys: Dataset, tmp_path: Path
) -> None:
    pictures = [record.image for record in toys.records]
    limner.index(NAME, tmp_path / "store", pictures)
    store = limner.open_store(tmp_path / "store")
    assert len(store.search("a red square on white", k=3)) == 3
    # the store holds the model: it needs neither the cache nor the hub
    assert (tmp_path / "store" / "model" / "model.safetensors").is_file()
    # and takes more pictures by the same name
    assert limner.index(NAME, tmp_path / "store", pictures).unchanged == len(pictures)
    report = limner.evaluate(NAME, toys)
    assert report.provenance["evaluations_of_split"] == 1


def test_training_starts_from_a_run_of_the_hub(cache: Path, toy_run: Path, tmp_path: Path) -> None:
    recipe = start_from(get_recipe("dual-path"), NAME)
    assert recipe.start == NAME
    assert recipe.images.crop == load_model(toy_run, device="cpu").images.crop
    # `limner train --from` imports pairs, and nothing where there is a run
    assert _imported(NAME, recipe, tmp_path / "out") is None
    assert not (tmp_path / "out-start").exists()


def test_a_run_of_the_hub_is_not_imported(cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(CheckpointError, match=r"hf:me/toys: a run of limner, which needs no import"):
        limner.import_model(NAME, tmp_path / "run")
    assert not (tmp_path / "run").exists()

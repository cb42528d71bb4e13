"""What a user's mistakes look like, and what the system refuses: one line."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import BinaryIO

import pytest

import limner as limner_package
from limner.errors import SettingsError, install_hint
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.store.files import StoreFiles
from tests.cli.command import Limner, Result, last_line, refused, sets
from tests.going_on import going_on
from tests.toy import toy_recipe


def test_mistakes_on_the_command_line(limner: Limner) -> None:
    refused(limner("train", "dual-path"), r"limner: Missing option '--data'; see `limner train --help`\n$")
    refused(limner("train", "dual-path", "--dat", "x"), r"No such option: --dat\b.*--data\b")
    refused(limner("trian"), r"No such command 'trian'\. Did you mean 'train'\?\n$")
    refused(limner("data", "chek", "x"), r"Did you mean 'check'\?\n$")
    refused(limner("evaluate", "--data", "x"), "Missing argument 'RUN'; see `limner evaluate --help`")
    refused(
        limner("search", "s", "red", "-k", "many"),
        "Invalid value for '-k' / '--k': .*; see `limner search --help`",
    )
    refused(limner("search", "s", "red", "blue"), "unexpected extra argument")
    refused(limner("search", "s", "--image"), "Option '--image' requires an argument")
    refused(limner("--version=3"), "Option '--version' does not take a value")
    refused(limner("--nothing"), "No such option: --nothing; see `limner --help`")


def test_a_group_alone_shows_its_help(limner: Limner) -> None:
    for command in ((), ("data",), ("recipes",)):
        alone = limner(*command)
        assert alone.code == 2
        assert alone.out.strip() == limner(*command, "--help").out.strip()
        assert alone.err == ""


def test_mistakes_in_recipes_and_data(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train = ("train", "dual-path-people", "--out", out)
    refused(limner("recipes", "show", "dual-pth"), "unknown recipe 'dual-pth'; did you mean 'dual-path'")
    refused(limner("train", "nothing", "--data", f"folder:{pictures}", "--out", out), "unknown recipe")
    refused(limner(*train, "--data", f"folder:{pictures}", "--set", "sed=1"), "did you mean 'seed'")
    refused(limner(*train, "--data", f"folder:{pictures}", "--set", "a\nb=1"), "unknown setting 'a b'")
    refused(limner(*train, "--data", f"folder:{tmp_path / 'none'}"), "there is no such folder or file")
    refused(
        limner(*train, "--data", f"foldr:{pictures}"), "unknown dataset format 'foldr'; did you mean 'folder'"
    )
    refused(limner(*train, "--data", pictures), "its files suggest folder:")
    refused(limner("data", "check", f"cuhk-pedes:{pictures}"), r"reid_raw\.json was expected here")
    refused(limner("data", "check", f"mscoco:{pictures}"), r"dataset_coco\.json or annotations")
    assert not out.exists()
    out.write_text("a file", encoding="utf-8")
    refused(
        limner(*train, "--data", f"folder:{pictures}"), "a folder for the run was expected, this is a file"
    )


def test_folders_that_cannot_be_made(
    limner: Limner, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    train = ("train", "dual-path-people", "--data", f"folder:{pictures}", "--cpu", *sets(toy_recipe()))
    refused(
        limner(*train, "--out", file / "run"), f"--out {file}/run: the run's folder cannot be made \\(Not a"
    )
    refused(limner("data", "people", file / "x", "--identities", 4), f"{file}/x: people cannot be drawn here")
    refused(limner("data", "people", "/proc/people", "--identities", 4), "/proc/people: people cannot be")
    monkeypatch.setenv("LIMNER_CACHE", str(file / "cache"))
    refused(limner(*train, "--out", tmp_path / "run"), f"{file}/cache: no features can be kept here")


def test_mistakes_with_runs(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    data = ("--data", f"folder:{pictures}")
    refused(limner("evaluate", tmp_path, *data), "no trained run here")
    refused(limner("index", tmp_path / "none", tmp_path / "store", pictures), "no trained run here")
    for other in ("mine.yaml", "mine.yml", "mine.toml"):
        said = rf"{other}: a recipe is a \.json file; `limner recipes show RECIPE > mine\.json` writes one"
        refused(limner("train", other, *data, "--out", tmp_path / "run"), said)
    refused(
        limner("evaluate", toy_run, *data, "--split", "dev"), "no picture in split 'dev'; splits here: train"
    )
    refused(limner("evaluate", toy_run, *data, "--stage", "x"), "no checkpoint of stage 'x'")
    measured = r"was expected, this is a folder; `limner evaluate RUN"
    refused(limner("compare", toy_run, toy_run), f"{toy_run}: a file of --per-query {measured}")
    refused(limner("score", toy_run), f"{toy_run}: an .npz file {measured}")
    refused(limner("score", toy_run, "--qrels", toy_run), f"{toy_run}: a TREC file {measured}")
    nowhere = tmp_path / "not" / "there.json"
    refused(limner("evaluate", toy_run, *data, "--report", nowhere), "no such folder to write there.json to")
    damaged = shutil.copytree(toy_run, tmp_path / "damaged")
    for file in damaged.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-100])
    refused(limner("evaluate", damaged, *data), "damaged checkpoint")
    refused(limner("evaluate", toy_run / "last.safetensors", *data), "not the checkpoint of a model")


def test_mistakes_with_stores(
    limner: Limner, toy_run: Path, store: Path, pictures: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(toy_run, tmp_path / "other")
    going_on(other)
    for file in (other / "stage-1.safetensors", other / "stage-2.safetensors"):
        tensors, description = read_checkpoint(file)
        tensors["image_projection.0.weight"] += 0.01
        # as of a training that goes on
        description["selected"]["epoch"] += 1
        write_checkpoint(file, tensors, description)
    refused(limner("index", other, store, pictures), "built with model [0-9a-f]{12} ")
    refused(limner("search", store, "red", "--run", other), "built with model [0-9a-f]{12} ")
    refused(limner("search", tmp_path / "none", "red"), "no such store; build one with")
    refused(limner("search", tmp_path, "red"), "not a store")
    refused(limner("index", toy_run, tmp_path / "new", tmp_path / "none"), "no such file or folder")
    refused(limner("index", toy_run, tmp_path / "new", pictures, "--batch", 0), "batch size and workers")
    with StoreFiles.open(store).writing():
        refused(limner("index", toy_run, store, pictures), "is being written by another process; try again")
        assert limner("search", store, "red").code == 0
    notes = tmp_path / "notes.txt"
    refused(limner("index", toy_run, tmp_path / "new", pictures, "--metadata", notes), r"\.csv or \.jsonl")


def test_a_run_is_not_written_into_a_store(limner: Limner, store: Path, pictures: Path) -> None:
    before, data = sorted(store.iterdir()), ("--data", f"folder:{pictures}", "--out", store)
    said = f"{store}: it is the folder of a store; give another one for"
    refused(limner("train", "dual-path-people", *data), f"{said} the run")
    refused(limner("ablate", "dual-path-losses", *data), f"{said} the table and its runs")
    refused(limner("demo", "--out", store), f"{said} the demo")
    with pytest.raises(SettingsError, match=said):
        limner_package.train("dual-path-people", f"folder:{pictures}", store)
    assert sorted(store.iterdir()) == before


def test_mistakes_in_queries(limner: Limner, store: Path, pictures: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    refused(limner("search", store, ""), "the query is empty")
    refused(limner("search", store, " "), "the query is empty")
    refused(limner("search", store, "zebra crossing"), "knows no word of the query 'zebra crossing'")
    refused(limner("search", store, "สี่เหลี่ยมสีแดง"), "is written without blanks between words")
    refused(limner("search", store, "--image", broken), r"broken\.jpg: not a picture")
    refused(limner("search", store, "--image", tmp_path / "none.jpg"), "there is no such file")
    refused(limner("search", store, "red", "-k", 0), "k: expected at least 1, got 0")
    refused(limner("search", store, "red", "-k", -3), "k: expected at least 1, got -3")
    refused(
        limner("search", store, "red", "--like", "x", "--image", pictures / "05-0.png"),
        "one picture to search by",
    )
    refused(limner("search", store), "give a TEXT, --image, --like or --queries, or --where alone")
    for name in ("sheet.xyz", "not/there.jpg"):
        result = limner("search", store, "red", "--sheet", tmp_path / name)
        refused(last_line(result), "the sheet cannot be saved")


def test_a_bug_keeps_its_stack_trace(limner: Limner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("limner.cli.recipes.get_recipe", broken)
    with pytest.raises(ZeroDivisionError):
        limner("recipes", "show", "dual-path")


def test_what_the_system_refuses_is_one_line(limner: Limner, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: OSError) -> Result:
        def broken(_: str) -> None:
            raise error

        monkeypatch.setattr("limner.cli.recipes.get_recipe", broken)
        return limner("recipes", "show", "dual-path")

    denied = PermissionError(errno.EACCES, "Permission denied", "/there/:x:[b]\n.json")
    refused(raising(denied), r"limner: /there/:x:\[b\] \.json: Permission denied; check the path")
    refused(
        raising(OSError(errno.EIO, "Input/output error", b"/bytes")), "limner: /bytes: Input/output error;"
    )
    refused(raising(OSError(errno.ENOSPC, "No space left on device")), "limner: No space left on device;")
    for bug in (OSError("strange"), ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")):
        with pytest.raises(OSError, match=r"strange|reset"):
            raising(bug)


def written_to(file: BinaryIO, command: tuple[str, ...], buffered: str) -> subprocess.CompletedProcess[str]:
    """A command with its output there, which Python holds back as it has it, or not."""
    return subprocess.run(
        [sys.executable, "-m", "limner", *command],
        stdout=file,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
    )


@pytest.mark.parametrize("buffered", ["buffered", ""])
@pytest.mark.parametrize(
    "command",
    [("recipes", "list"), ("recipes", "list", "--json"), ("recipes", "show", "dual-path"), ("--help",)],
)
def test_a_reader_that_has_gone_is_no_mistake(command: tuple[str, ...], buffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = written_to(pipe, command, buffered)
    assert done.returncode == 141
    # the terms of a recipe's data are on stderr in any case
    assert not [line for line in done.stderr.splitlines() if not line.startswith("terms of ")]


@pytest.mark.parametrize("buffered", ["buffered", ""])
@pytest.mark.parametrize("command", [("recipes", "list"), ("recipes", "list", "--json")])
def test_a_full_disk_behind_stdout_is_one_line(command: tuple[str, ...], buffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = written_to(full, command, buffered)
    if "--json" in command:
        assert (done.returncode, json.loads(done.stderr)["error"]["type"]) == (2, "OSError")
    else:
        refused(Result(done.returncode, "", done.stderr), "limner: No space left on device;")


def test_ctrl_c_says_that_nothing_is_lost(limner: Limner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("limner.cli.recipes.get_recipe", interrupted)
    stopped = limner("recipes", "show", "dual-path")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err == "limner: stopped; what was finished is kept\n"


def test_install_hints_name_the_checkout_and_the_index() -> None:
    """A hint that was written by hand would name one of them; an extra that does not exist helps nobody."""
    root = Path(limner_package.__file__).parent
    extras = tomllib.loads((root.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    asked: set[str] = set()
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        asked |= set(re.findall(r"install_hint\([\"'](\w+)[\"']\)", text))
        assert file.name == "errors.py" or "pip install '" not in text, (
            f"{file}: take limner.errors.install_hint"
        )
    assert {"server", "openvino", "figures"} <= asked <= extras.keys()
    assert (
        install_hint("s3")
        == "pip install '.[s3]' in the checkout, or pip install 'limner[s3]' from a package index"
    )

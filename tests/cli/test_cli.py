"""The commands from end to end on toys, and what a user's mistakes look like."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from limner.cli import app
from limner.recipes import RECIPES
from limner.runs.checkpoint import read_checkpoint, write_checkpoint
from limner.search.store import Store
from limner.training.settings import Recipe
from tests.cli.command import Limner, Result, refused
from tests.toy import draw_toys, toy_recipe


@pytest.fixture(scope="session")
def store(toy_run: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the toys with their identities, made by the command."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    notes = _metadata(pictures, folder.parent)
    command = ["index", str(toy_run), str(folder), str(pictures), "--metadata", str(notes)]
    assert CliRunner().invoke(app, command).exit_code == 0
    return folder


def _metadata(pictures: Path, folder: Path) -> Path:
    rows = [
        json.loads(line) for line in (pictures / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    notes = [{"file": str(pictures / row["file"]), "identity": row["identity"], "shelf": 3} for row in rows]
    file = folder / "metadata.jsonl"
    file.write_text("\n".join(map(json.dumps, notes)), encoding="utf-8")
    return file


def _sets(recipe: Recipe) -> list[str]:
    """The `--set` options that make any recipe this one."""
    values = json.loads(recipe.model_dump_json())
    return [
        part
        for name, value in values.items()
        if name != "name"
        for part in ("--set", f"{name}={json.dumps(value)}")
    ]


def test_version_and_help(limner: Limner) -> None:
    assert re.fullmatch(r"limner \d+\.\d+\.\S+\n", limner("--version").out)
    shown = limner("--help").out
    for command in ("train", "evaluate", "index", "search", "demo", "data", "recipes"):
        assert command in shown


def test_as_a_module_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "limner", "evaluate", str(tmp_path / "none"), "--data", "folder:x"]
    done = subprocess.run(command, capture_output=True, text=True)
    refused(Result(done.returncode, done.stdout, done.stderr), "no trained run here")


def test_recipes_list_and_show(limner: Limner) -> None:
    listed = limner("recipes", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == list(RECIPES)
    shown = limner(
        "recipes", "show", "dual-path-people", "--set", "seed=4", "--set", "stages.stage-2.epochs=1"
    )
    recipe = Recipe.parse(json.loads(shown.out))
    assert (recipe.name, recipe.seed, recipe.stages[1].epochs) == ("dual-path-people", 4, 1)


def test_data_check(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    sound = limner("data", "check", f"folder:{pictures}")
    assert (sound.code, "No problem found." in sound.out) == (0, True)
    copy = shutil.copytree(pictures, tmp_path / "copy")
    (copy / "00-0.png").unlink()
    (copy / "01-0.png").write_bytes(b"no picture")
    spoilt = limner("data", "check", f"folder:{copy}", "--json")
    assert spoilt.code == 1
    problems = {problem["kind"]: problem for problem in json.loads(spoilt.out)["problems"]}
    assert problems.keys() == {"missing-picture", "unreadable-picture"}
    assert problems["missing-picture"]["example"] == "00-0.png"
    fast = limner("data", "check", f"folder:{copy}", "--fast")
    assert fast.code == 1
    assert "cannot be read" not in fast.out


def test_data_people(limner: Limner, tmp_path: Path) -> None:
    folder = tmp_path / "people"
    command = ("data", "people", folder, "--identities", 4, "--val", 1, "--test", 1, "--workers", 1)
    drawn = limner(*command)
    assert drawn.code == 0
    assert re.search(r"4 people, \d+ pictures, \d+ sentences; use it as cuhk-pedes:", drawn.out)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*.jpg")}
    assert limner(*command).out == drawn.out
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*.jpg")} == before
    assert limner("data", "check", f"cuhk-pedes:{folder}").code == 0
    refused(limner(*command, "--seed", 1), "seed 0 there, 1 asked for")
    refused(limner("data", "people", tmp_path / "x", "--identities", 0), "identities must be 1 or more")


def test_train_resume_evaluate(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    """The command with every setting given trains exactly what the library does."""
    run, data = tmp_path / "run", f"folder:{pictures}"
    command = ("train", "dual-path-people", "--data", data, "--out", run, "--cpu", *_sets(toy_recipe()))
    trained = limner(*command)
    assert trained.code == 0
    assert f"{run}: trained; next: limner evaluate {run}" in trained.out.replace("\n", " ")
    assert "stage-1 3" in trained.err
    ours, _ = read_checkpoint(run / "stage-2.safetensors")
    theirs, _ = read_checkpoint(toy_run / "stage-2.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    refused(limner(*command), "there is a run in this folder; give --resume")
    assert limner(*command, "--resume").code == 0
    refused(
        limner(*command, "--resume", "--set", "seed=8"), r"cannot resume, recipe\.seed is 8 now and was 3"
    )

    file = tmp_path / "report.json"
    evaluated = limner("evaluate", run, "--data", data, "--split", "test", "--json", file)
    assert evaluated.code == 0
    assert "text → image" in evaluated.out
    report = json.loads(file.read_text(encoding="utf-8"))
    assert list(report) == ["protocol", "split", "counts", "image_to_text", "text_to_image", "provenance"]
    assert (report["split"], report["counts"]["images"], report["counts"]["sentences"]) == ("test", 7, 14)
    for direction in ("image_to_text", "text_to_image"):
        assert {"R@1", "R@5", "R@10", "MedR", "mAP"} <= report[direction].keys()
        assert 0 <= report[direction]["R@1"] <= report[direction]["R@10"] <= 100
    assert report["provenance"]["selected"]["split"] == "val"
    first = limner("evaluate", run, "--data", data, "--split", "val", "--stage", "stage-1")
    assert first.code == 0
    assert "val" in first.out


def test_every_measure_can_be_asked_for(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    file, data = tmp_path / "report.json", f"folder:{pictures}"
    evaluated = limner("evaluate", toy_run, "--data", data, "--measures", "all", "--json", file)
    assert evaluated.code == 0
    assert "mAP(trapezoid)" in evaluated.out
    report = json.loads(file.read_text(encoding="utf-8"))
    for direction in ("image_to_text", "text_to_image"):
        assert {"MAP@50", "MAP@50(min)", "MAP@all", "mINP", "overlap-S"} <= report[direction].keys()
        assert report["curves"][direction].keys() == {"PR-curve", "scope-curve"}
    assert report["image_to_text"]["overlap-S"] == report["text_to_image"]["overlap-S"]
    refused(limner("evaluate", toy_run, "--data", data, "--measures", "map"), "did you mean 'mAP'?")


def test_evaluation_counts_pictures_and_sentences(
    limner: Limner, toy_run: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("limner.cli.console.err", Console(file=screen, force_terminal=True, width=100))
    assert limner("evaluate", toy_run, "--data", f"folder:{pictures}").code == 0
    for shown in ("pictures", "7/7", "sentences", "14/14"):
        assert shown in screen.getvalue()


def test_index_adds_what_is_new_and_lists_what_cannot_be_read(
    limner: Limner, toy_run: Path, tmp_path: Path
) -> None:
    pictures, store = draw_toys(tmp_path / "pictures"), tmp_path / "store"
    (pictures / "broken.jpg").write_bytes(b"no picture")
    command = ("index", toy_run, store, pictures)
    first = limner(*command)
    assert first.code == 0
    assert f"{store}: 36 pictures; 36 added, 0 updated, 0 unchanged, 1 skipped" in first.out
    assert re.search(r"skipped .*broken\.jpg: not a picture", first.err)
    again = limner(*command, "--metadata", _metadata(pictures, tmp_path))
    assert "36 pictures; 0 added, 36 updated, 0 unchanged, 1 skipped" in again.out
    assert "0 added, 0 updated, 36 unchanged, 1 skipped" in limner(*command).out
    Image.new("RGB", (40, 40), "purple").save(pictures / "new.png")
    assert "37 pictures; 1 added" in limner(*command, "--batch", 5).out


def test_search_by_text(limner: Limner, store: Path, tmp_path: Path) -> None:
    lines = limner("search", store, "a red square on white", "-k", 4).out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "4"]
    scores = [float(line.split()[1]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    sheet = tmp_path / "sheet.jpg"
    command = (
        "search",
        store,
        "a red square on white",
        "--json",
        "--sheet",
        sheet,
        "--truth",
        "red square white",
    )
    found = limner(*command)
    hits = json.loads(found.out)
    assert [hit["rank"] for hit in hits] == list(range(1, 11))
    assert hits[0].keys() == {"rank", "score", "path", "id", "identity", "metadata"}
    assert hits[0]["metadata"] == {"shelf": 3}
    assert f"{hits[3]['score']:+.3f}" == lines[3].split()[1]
    assert f"drawn to {sheet}" in found.err
    with Image.open(sheet) as drawn:
        assert drawn.format == "JPEG"


def test_names_that_look_like_markup_or_emoji_are_printed_as_they_are(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    folder, store = tmp_path / ":dog:", tmp_path / "[bold]store"
    folder.mkdir()
    named = [folder / "[red]a :x:.png", folder / "b[bold].png"]
    for path, source in zip(named, sorted(pictures.glob("*.png")), strict=False):
        shutil.copyfile(source, path)
    (folder / ":cat:[i].png").write_bytes(b"no picture")
    notes = folder / "facts.jsonl"
    notes.write_text(json.dumps({"file": str(named[0]), "identity": ":x:[b]"}), encoding="utf-8")
    indexed = limner("index", toy_run, store, folder, "--metadata", notes)
    assert f"{store}: 2 pictures; 2 added" in indexed.out
    assert f"skipped {folder / ':cat:[i].png'}: " in indexed.err
    found = limner("search", store, "a red square on white", "--sheet", tmp_path / ":x:[b].jpg")
    assert {line.split("  ", 3)[3] for line in found.out.splitlines()} == {
        f"{named[0]}  [:x:[b]]",
        str(named[1]),
    }
    assert f"drawn to {tmp_path / ':x:[b].jpg'}" in found.err
    empty = Store.create(tmp_path / ":x:[b]", fingerprint="a" * 64, dim=16, run=toy_run)
    refused(limner("search", empty.folder, "red"), re.escape(f"{empty.folder}: built with model"))


def test_search_by_picture_finds_itself(limner: Limner, store: Path, pictures: Path) -> None:
    hits = json.loads(limner("search", store, "--image", pictures / "05-0.png", "-k", 1, "--json").out)
    assert Path(hits[0]["path"]).name == "05-0.png"
    assert hits[0]["score"] == pytest.approx(1, abs=1e-2)


def test_cpu_is_used_where_there_is_an_accelerator(
    limner: Limner, toy_run: Path, store: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.runs.run.default_device", lambda: pytest.fail("the accelerator was taken"))
    for command in (
        ("evaluate", toy_run, "--data", f"folder:{pictures}"),
        ("index", toy_run, store, pictures),
        ("search", store, "red"),
    ):
        assert limner(*command, "--cpu").code == 0
        with pytest.raises(pytest.fail.Exception, match="the accelerator was taken"):
            limner(*command)


def test_a_model_that_has_moved_is_found_with_run(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    assert limner("index", run, tmp_path / "store", pictures).code == 0
    run.rename(tmp_path / "moved")
    refused(limner("search", tmp_path / "store", "red"), "the model of this store cannot be loaded")
    assert limner("search", tmp_path / "store", "red", "--run", tmp_path / "moved").code == 0


def test_mistakes_on_the_command_line(limner: Limner) -> None:
    refused(limner("train", "dual-path"), r"limner: Missing option '--data'; see `limner train --help`\n$")
    refused(limner("train", "dual-path", "--dat", "x"), r"No such option: --dat\b.*--data\b")
    refused(limner("trian"), r"No such command 'trian'\. Did you mean 'train'\?\n$")
    refused(limner("data", "chek", "x"), r"Did you mean 'check'\?\n$")
    refused(limner("evaluate", "--data", "x"), "Missing argument 'run'; see `limner evaluate --help`")
    refused(
        limner("search", "s", "red", "-k", "many"), "Invalid value for '-k': .*; see `limner search --help`"
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
    train = ("train", "dual-path-people", "--data", f"folder:{pictures}", "--cpu", *_sets(toy_recipe()))
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
    refused(
        limner("evaluate", toy_run, *data, "--split", "dev"), "no picture in split 'dev'; splits here: train"
    )
    refused(limner("evaluate", toy_run, *data, "--stage", "x"), "no checkpoint of stage 'x'")
    nowhere = tmp_path / "not" / "there.json"
    refused(_last_line(limner("evaluate", toy_run, *data, "--json", nowhere)), "cannot be written")
    damaged = shutil.copytree(toy_run, tmp_path / "damaged")
    for file in damaged.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-100])
    refused(limner("evaluate", damaged, *data), "damaged checkpoint")
    refused(limner("evaluate", toy_run / "last.safetensors", *data), "not the checkpoint of a model")


def _last_line(result: Result) -> Result:
    """For a command that fails after it has said something useful on stdout."""
    return Result(result.code, "", result.err)


def test_mistakes_with_stores(
    limner: Limner, toy_run: Path, store: Path, pictures: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(toy_run, tmp_path / "other")
    for file in (other / "stage-1.safetensors", other / "stage-2.safetensors"):
        tensors, description = read_checkpoint(file)
        tensors["image_head.0.weight"] += 0.01
        write_checkpoint(file, tensors, description)
    refused(limner("index", other, store, pictures), "built with model [0-9a-f]{12} ")
    refused(limner("search", store, "red", "--run", other), "built with model [0-9a-f]{12} ")
    refused(limner("search", tmp_path / "none", "red"), "no such store; build one with")
    refused(limner("search", tmp_path, "red"), "not a store")
    refused(limner("index", toy_run, tmp_path / "new", tmp_path / "none"), "no such file or folder")
    refused(limner("index", toy_run, tmp_path / "new", pictures, "--batch", 0), "batch size and workers")
    with Store.open(store).writing():
        refused(limner("index", toy_run, store, pictures), "is being written by another process; try again")
        assert limner("search", store, "red").code == 0
    notes = tmp_path / "notes.txt"
    refused(limner("index", toy_run, tmp_path / "new", pictures, "--metadata", notes), r"\.csv or \.jsonl")


def test_mistakes_in_queries(limner: Limner, store: Path, pictures: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    refused(limner("search", store, ""), "the query is empty")
    refused(limner("search", store, " "), "the query is empty")
    refused(limner("search", store, "zebra crossing"), "knows no word of the query 'zebra crossing'")
    refused(limner("search", store, "--image", broken), r"broken\.jpg: not a picture")
    refused(limner("search", store, "--image", tmp_path / "none.jpg"), "there is no such file")
    refused(limner("search", store, "red", "-k", 0), "k: expected at least 1, got 0")
    refused(limner("search", store, "red", "-k", -3), "k: expected at least 1, got -3")
    refused(limner("search", store, "red", "--image", pictures / "05-0.png"), "either a text or --image")
    refused(limner("search", store), "either a text or --image")
    for name in ("sheet.xyz", "not/there.jpg"):
        result = limner("search", store, "red", "--sheet", tmp_path / name)
        refused(_last_line(result), "the sheet cannot be saved")


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


@pytest.mark.parametrize("command", [("recipes", "list"), ("recipes", "show", "dual-path"), ("--help",)])
def test_a_reader_that_has_gone_is_no_mistake(command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, "-m", "limner", *command], stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "limner", "recipes", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    refused(Result(done.returncode, "", done.stderr), "limner: No space left on device;")


def test_ctrl_c_says_that_nothing_is_lost(limner: Limner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("limner.cli.recipes.get_recipe", interrupted)
    stopped = limner("recipes", "show", "dual-path")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err == "limner: stopped; what was finished is kept\n"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command on so few people and epochs that nothing is learnt; --out is missing."""
    monkeypatch.setattr("limner.cli.demo.VAL", 2)
    monkeypatch.setattr("limner.cli.demo.TEST", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    small = toy_recipe().replace(
        images=toy_recipe().images.replace(resize=(48, 24), crop=(48, 24)), stages=toy_recipe().stages[1:]
    )
    return ("demo", "--identities", "9", *_sets(small))


def test_demo(limner: Limner, demo: tuple[str, ...], tmp_path: Path) -> None:
    """All five steps, and again."""
    command = (*demo, "--out", tmp_path)
    done = limner(*command)
    assert done.code == 0, done.err
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert 0 <= summary["text_to_image R@1"] <= 100
    assert f"a bag of colours {summary['colours R@1']:.1f}%" in done.out
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["counts"]["groups"] == 3
    for number in (1, 2, 3):
        with Image.open(tmp_path / f"search-{number}.png") as sheet:
            assert sheet.width > 400
    store = Store.open(tmp_path / "store")
    version = store.snapshot().version
    (store.folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert limner(*command).code == 0
    assert store.snapshot().version == version, "the store is indexed into again, not made anew"
    assert (store.folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    shutil.rmtree(tmp_path / "run")
    refused(limner(*command), "the run that its store was built with is gone; remove .*store, or name a new")
    (store.folder / "store.json").unlink()
    refused(limner(*command), r"store: not empty \(holds 'notes.txt'\)")
    assert (store.folder / "notes.txt").exists()


@pytest.mark.parametrize(
    "name",
    ["store/holiday.jpg", "run/notes.txt", "people/me.jpg", "report.json", "summary.json", "search-2.png"],
)
def test_demo_writes_over_nothing_that_it_has_not_made(
    limner: Limner, demo: tuple[str, ...], tmp_path: Path, name: str
) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine", encoding="utf-8")
    result = limner(*demo, "--out", tmp_path)
    refused(_last_line(result), "which is not of a demo|is not empty and holds no generated people")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text(encoding="utf-8") == "mine"
    refused(limner(*demo, "--out", mine), f"--out {mine}: a folder was expected, this is a file")


def test_of_several_processes_the_first_one_speaks(
    limner: Limner, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.cli.train.train", lambda *_, **__: tmp_path)
    command = ("train", "dual-path-people", "--data", f"folder:{pictures}", "--out", tmp_path)
    for rank, speaks in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert bool(limner(*command).out) == speaks

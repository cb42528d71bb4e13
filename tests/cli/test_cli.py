"""The commands from end to end on toys."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from limner.cli.console import Screen
from limner.data.terms import TERMS
from limner.inference.checkpoint import read_checkpoint
from limner.recipes import RECIPES
from limner.recipes.registry import PAPER, PERSONS, PICTURES, TUNED
from limner.store.files import StoreFiles
from limner.training.recipe import Recipe
from tests.cli.command import Limner, Result, refused, sets, write_metadata
from tests.toy import draw_toys, toy_recipe


def test_version_and_help(limner: Limner) -> None:
    assert re.fullmatch(r"limner \d+\.\d+\.\S+\n", limner("--version").out)
    shown = limner("--help").out
    for command in ("train", "evaluate", "index", "search", "demo", "data", "recipes"):
        assert command in shown


def test_as_a_module_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "limner", "evaluate", str(tmp_path / "none"), "--data", "folder:x"]
    done = subprocess.run(command, capture_output=True, text=True)
    refused(Result(done.returncode, done.stdout, done.stderr), "no trained run here")


def test_recipes_list_and_show(limner: Limner, tmp_path: Path) -> None:
    listed = limner("recipes", "list").out.splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ")] == list(RECIPES)
    assert [line for line in listed if not line.startswith("  ")] == [PICTURES, PERSONS, TUNED, PAPER]
    shown = limner(
        "recipes", "show", "dual-path-people", "--set", "seed=4", "--set", "stages.stage-2.epochs=1"
    )
    recipe = Recipe.parse(json.loads(shown.out))
    assert (recipe.name, recipe.seed, recipe.stages[1].epochs) == ("dual-path-people", 4, 1)
    file = tmp_path / "mine.json"
    file.write_text(shown.out, encoding="utf-8")
    again = limner("recipes", "show", str(file))
    assert again.out == shown.out
    # on stderr, so that the recipe alone is in the file
    assert shown.err == again.err == f"terms of {TERMS['people'].line()} (docs/terms.md)\n"
    assert limner("recipes", "show", "dual-path-people", "--quiet").err == ""
    both = limner("recipes", "show", "identity-aware-cub").err
    assert [line.split(":")[0] for line in both.splitlines()] == [
        f"terms of {TERMS[name].name}" for name in ("cub", "flowers")
    ]


def test_data_check(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    sound = limner("data", "check", f"folder:{pictures}")
    assert (sound.code, "No problem found." in sound.out) == (0, True)
    assert f"Terms of {TERMS['folder'].line()} (docs/terms.md)." in sound.out
    copy = shutil.copytree(pictures, tmp_path / "copy")
    (copy / "00-0.png").unlink()
    (copy / "01-0.png").write_bytes(b"no picture")
    spoilt = limner("data", "check", f"folder:{copy}", "--json")
    assert spoilt.code == 1
    assert not json.loads(spoilt.out)["sound"]
    problems = {problem["kind"]: problem for problem in json.loads(spoilt.out)["problems"]}
    assert problems.keys() == {"missing-picture", "unreadable-picture"}
    assert problems["missing-picture"]["example"] == "00-0.png"
    (copy / "terms.json").write_text('{"licence": "consent", "people": "yes"}', encoding="utf-8")
    fast = limner("data", "check", f"folder:{copy}", "--fast")
    assert "licence: consent; shows people;" in fast.out
    stated = json.loads(limner("data", "check", f"folder:{copy}", "--fast", "--json").out)["terms"]
    assert (stated["licence"], stated["withdrawn"]) == ("consent", "unknown")
    assert fast.code == 1
    assert "cannot be read" not in fast.out


def test_data_check_with_a_run_shows_suspicious_captions(
    limner: Limner, pictures: Path, toy_run: Path, tmp_path: Path
) -> None:
    check = ("data", "check", f"folder:{pictures}#noise=0.2", "--with", toy_run)
    found = limner(*check, "--worst", 3, "--sheet", tmp_path / "sheet.png")
    assert found.code == 0, found.err
    assert "captions of train are probably wrong" in found.out
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > sheet.width / 2
    shown = json.loads(limner(*check, "--worst", 3, "--split", "val", "--json").out)["suspicious"]
    assert (shown["split"], len(shown["worst"])) == ("val", 3)
    assert 0 <= shown["wrong"] <= shown["captions"]
    losses = [one["loss"] for one in shown["worst"]]
    assert losses == sorted(losses, reverse=True)
    refused(limner(*check[:3], "--sheet", tmp_path / "other.png"), "--with")
    misspelt = limner(*check, "--split", "tarin")
    refused(misspelt, "tarin")
    # refused before the pictures were opened, whose report would stand here
    assert not misspelt.out
    wrong = limner(*check, "--sheet", tmp_path / "sheet.xyz")
    assert (wrong.code, ".jpg" in wrong.err) == (2, True)


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
    spoken = tmp_path / "spoken"
    command = ("data", "people", spoken, *command[3:])
    assert limner(*command, "--language", "vi,de", "--language", "zh").code == 0
    checked = limner("data", "check", f"cuhk-pedes:{spoken}")
    assert re.search(r"Sentences by language: de (\d+), vi \1, zh \1\.", checked.out)
    refused(
        limner("data", "people", tmp_path / "x", "--language", "dee"),
        "unknown name 'dee'; did you mean 'de'?",
    )


def test_train_resume_evaluate(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    """The command with every setting given trains exactly what the library does."""
    run, data = tmp_path / "run", f"folder:{pictures}"
    command = ("train", "dual-path-people", "--data", data, "--out", run, "--cpu", *sets(toy_recipe()))
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
    evaluated = limner("evaluate", run, "--data", data, "--split", "test", "--report", file)
    assert evaluated.code == 0
    assert "text → image" in evaluated.out
    report = json.loads(file.read_text(encoding="utf-8"))
    assert list(report) == [
        *("protocol", "split", "counts", "image_to_text", "text_to_image"),
        *("intervals", "chance", "provenance"),
    ]
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
    evaluated = limner("evaluate", toy_run, "--data", data, "--measures", "all", "--report", file)
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
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr("limner.cli.console.err", Screen("stderr", console))
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
    again = limner(*command, "--metadata", write_metadata(pictures, tmp_path))
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
    asked = ("--sheet", sheet, "--truth", "red square white")
    found = limner("search", store, "a red square on white", "--json", *asked)
    answer = json.loads(found.out)
    hits = answer.pop("hits")
    assert answer.pop("snapshot")
    assert answer == {"total": 36, "matching": 36, "threshold": None, "good": None, "unknown": []}
    assert [hit["rank"] for hit in hits] == list(range(1, 11))
    facts = {"identity", "metadata", "taken", "taken_from", "confidence", "probability", "group"}
    assert hits[0].keys() == {"rank", "score", "path", "name", "id", *facts}
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
    empty = StoreFiles.create(tmp_path / ":x:[b]", fingerprint="a" * 64, dim=16, run=toy_run)
    refused(limner("search", empty.folder, "red"), re.escape(f"{empty.folder}: built with model"))


def test_cpu_is_used_where_there_is_an_accelerator(
    limner: Limner, toy_run: Path, store: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "limner.inference.load.default_device", lambda: pytest.fail("the accelerator was taken")
    )
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
    assert limner("index", run, tmp_path / "store", pictures, "--no-model").code == 0
    run.rename(tmp_path / "moved")
    refused(limner("search", tmp_path / "store", "red"), "the model of this store cannot be loaded")
    assert limner("search", tmp_path / "store", "red", "--run", tmp_path / "moved").code == 0


def test_of_several_processes_the_first_one_speaks(
    limner: Limner, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.training.loop.train", lambda *_, **__: tmp_path)
    command = ("train", "dual-path-people", "--data", f"folder:{pictures}", "--out", tmp_path)
    for rank, speaks in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert bool(limner(*command).out) == speaks


def test_evaluate_on_several_sets(limner: Limner, pictures: Path, toy_run: Path, tmp_path: Path) -> None:
    # a comma and a colon in a path divide nothing
    other = shutil.copytree(pictures, tmp_path / "a,b: c")
    for file in other.glob("*.png"):
        with Image.open(file) as image:
            image.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(file)
    sources = (f"folder:{pictures}", f"folder:{other}")
    report = tmp_path / "report.json"
    found = limner("evaluate", toy_run, "--on", ",".join(sources), "--report", report)
    said = " ".join(found.out.split())
    # a line of each set: the gallery is another
    assert said.count("chance: image → text R@1") == 2
    assert "100 whatever the model, the gallery being so small" in said
    assert found.code == 0, found.err
    rows = [line for line in found.out.splitlines() if "text → image" in line and "chance" not in line]
    assert len([line for line in rows if "│" in line]) == 2
    written = json.loads(report.read_text(encoding="utf-8"))
    assert list(written["datasets"]) == list(sources)
    for source, measured in written["datasets"].items():
        alone = json.loads(limner("evaluate", toy_run, "--data", source, "--json").out)
        assert measured["text_to_image"] == alone["text_to_image"]
        assert measured["image_to_text"] == alone["image_to_text"]
    refused(limner("evaluate", toy_run), "give --data, --on or --composed")
    refused(
        limner("evaluate", toy_run, "--on", sources[0], "--data", sources[1]),
        "leave out --data|leave out --on",
    )
    refused(limner("evaluate", toy_run, "--on", f"{sources[0]},{sources[0]}"), "twice")
    refused(limner("evaluate", toy_run, "--on", f"{sources[0]},folder:/nowhere"), "nowhere")
    refused(limner("evaluate", toy_run, "--on", sources[0], "--folds", 2), "goes with --split")

import json
import shutil
from pathlib import Path

from PIL import Image

from limner.data.records import Dataset
from limner.inference.checkpoint import SELECTED_ON, TRAINED_ON, read_checkpoint, write_checkpoint
from tests.cli.command import Limner

FORMATS = Path(__file__).parents[1] / "inference" / "formats"


def test_the_command_names_what_was_learnt_and_how_splits_were_drawn(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toys.records[0].image.parent, tmp_path / "copy"))
    trained, test = (toys.split(name).records[0].image.name for name in ("train", "test"))
    shutil.copy(folder / trained, folder / test)
    twice = limner("evaluate", toy_run, "--data", f"folder:{folder}", "--json")
    count = len(toys.split("test"))
    assert (
        f"the run was trained on 1 of {count} pictures here, which the set has in its training" in twice.err
    )
    assert json.loads(twice.out)["provenance"]["learnt_from"] == {
        "images": count,
        "trained_on": 1,
        "selected_on": 0,
        "whole": True,
    }
    table = limner("evaluate", toy_run, "--data", f"folder:{folder}")
    assert "the model was trained on 1 of the images" in " ".join(table.out.split())
    # new pictures without a column of splits
    rows = []
    for place, colour in enumerate(["red", "blue", "green", "grey"] * 10):
        Image.new("RGB", (40, 36 + place), colour).save(tmp_path / f"{place}.png")
        rows.append(f'{place}.png,"a {colour} square"')
    (tmp_path / "captions.csv").write_text("file,caption\n" + "\n".join(rows), encoding="utf-8")
    drawn = limner("evaluate", toy_run, "--data", f"folder:{tmp_path}", "--json")
    report = json.loads(drawn.out)
    assert report["protocol"] == "plain, same image, drawn splits, seed=0"
    assert report["provenance"]["splits_drawn"] == "drawn splits, seed=0"
    assert report["provenance"]["edition"] == "drawn splits, seed=0"
    assert "limner drew them: drawn splits, seed=0" in limner("data", "check", f"folder:{tmp_path}").out
    # a copy: an evaluation is noted in the run's folder
    part = shutil.copytree(FORMATS / "format-4", tmp_path / "part")
    (file,) = part.glob("*.safetensors")
    tensors, description = read_checkpoint(file)
    del tensors[TRAINED_ON], tensors[SELECTED_ON]
    write_checkpoint(file, tensors, description)
    old = limner("evaluate", part, "--data", f"folder:{tmp_path}", "--json")
    assert "does not name all pictures that it has learnt from" in old.err
    assert json.loads(old.out)["provenance"]["learnt_from"] is None

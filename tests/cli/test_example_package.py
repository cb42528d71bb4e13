"""A package of somebody else's adds a loss, an encoder, a reader and a recipe; all four are used by commands."""

import json
import re
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference.checkpoint import read_description
from tests.cli.command import Limner, refused
from tests.installed import EXAMPLE, install_example

GUIDE = Path(__file__).parents[2] / "docs" / "extend.md"


@pytest.fixture
def data(toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The toys in the form that the example's reader reads; the package is installed."""
    install_example(tmp_path / "site", monkeypatch)
    lines = [
        f"{record.split}\t{record.image}\t{sentence}"
        for record in toys.records
        for sentence in record.sentences
    ]
    (tmp_path / "captions.tsv").write_text("\n".join(lines), encoding="utf-8")
    return f"tab-lines:{tmp_path}"


def test_the_example_is_listed_trained_evaluated_and_searched(
    limner: Limner, data: str, toys: Dataset, tmp_path: Path
) -> None:
    listed = limner("recipes", "list")
    assert re.search(r"mean-words\s+of the package limner-example 1\.0", listed.out), listed
    run, store = tmp_path / "run", tmp_path / "store"
    done = limner("train", "mean-words", "--data", data, "--out", run, "--cpu")
    assert done.code == 0, done.err
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert log[-1]["in-batch"] < log[0]["in-batch"], "the example's loss is what is learnt"
    report = json.loads(
        limner("evaluate", run, "--data", data, "--measures", "R@1 within@5", "--cpu", "--json").out
    )
    assert set(report["text_to_image"]) == {"R@1", "within@5"}
    assert limner("index", run, store, toys.records[0].image.parent, "--cpu").code == 0
    assert limner("search", store, "a red square", "--cpu").code == 0


def test_an_image_encoder_of_ones_own(limner: Limner, data: str, toys: Dataset, tmp_path: Path) -> None:
    """Trained as a whole, and held fixed with its features cached; nothing of limner's CNNs is cited."""
    typed = ("train", "mean-words", "--data", data, "--cpu", "--set", 'model={"system": "patches"}')
    runs = {frozen: tmp_path / f"run-{frozen}" for frozen in ("[]", '["backbone"]')}
    for frozen, run in runs.items():
        done = limner(*typed, "--out", run, "--set", f"stages.stage-1.frozen={frozen}")
        assert done.code == 0, done.err
        described = read_description(run / "stage-1.safetensors")
        assert described["model"]["backbone"] is None
        assert described["packages"]["encoder patches"] == "limner-example 1.0"
        assert limner("evaluate", run, "--data", data, "--cpu").code == 0
    cited = json.loads(limner("cite", run, "--json").out)
    assert {work["role"] for work in cited} == {"software"}
    cited = json.loads(limner("cite", "mean-words", "--json").out)
    assert {work["role"] for work in cited} == {"software", "network"}
    store = tmp_path / "store"
    assert limner("index", run, store, toys.records[0].image.parent, "--cpu").code == 0
    assert limner("search", store, "a red square", "--k", "2", "--cpu").code == 0


def test_settings_of_the_example_are_settings_like_others(limner: Limner, data: str) -> None:
    change = "stages.stage-1.losses.in-batch.temperature"
    shown = json.loads(limner("recipes", "show", "mean-words", "--set", f"{change}=0.5").out)
    assert shown["model"]["system"] == "mean-words"
    assert shown["stages"][0]["losses"] == [{"kind": "in-batch", "weight": 1.0, "temperature": 0.5}]
    refused(limner("recipes", "show", "mean-words", "--set", f"{change}=0"), "temperature.*greater than 0")
    wrong = change.replace("temperature", "temprature")
    refused(limner("recipes", "show", "mean-words", "--set", f"{wrong}=1"), "did you mean 'temperature'")
    other = 'stages.0.losses=[{"kind": "in-bach"}]'
    refused(limner("recipes", "show", "mean-words", "--set", other), "did you mean 'in-batch'")
    refused(limner("recipes", "show", "mean-word"), "unknown recipe 'mean-word'; did you mean 'mean-words'")


def test_our_recipes_take_the_examples_parts(limner: Limner, data: str) -> None:
    """A loss of another package in a recipe of limner's own."""
    losses = 'stages.stage-1.losses=[{"kind": "in-batch"}]'
    shown = limner("recipes", "show", "dual-path-people", "--set", losses)
    assert json.loads(shown.out)["stages"][0]["losses"][0]["kind"] == "in-batch"


def test_without_the_package_its_names_are_unknown(
    limner: Limner, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe file that names what is not installed is one line."""
    written = limner("recipes", "show", "mean-words").out
    (tmp_path / "mine.json").write_text(written, encoding="utf-8")
    assert limner("recipes", "show", tmp_path / "mine.json").out == written
    monkeypatch.undo()
    refused(limner("recipes", "show", tmp_path / "mine.json"), "mine.json: .*system")
    refused(limner("recipes", "show", "mean-words"), "unknown recipe 'mean-words'")


def test_a_run_without_its_package_names_it(
    limner: Limner, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, own = tmp_path / "run", tmp_path / "own"
    done = limner("train", "mean-words", "--data", data, "--out", run, "--cpu")
    assert done.code == 0, done.err
    said = {"encoder mean-words": "limner-example 1.0", "loss in-batch": "limner-example 1.0"}
    assert read_description(run / "stage-1.safetensors")["packages"] == said
    done = limner("push", run, own, "--accept-terms")
    assert done.code == 0, done.err
    card = (own / "README.md").read_text(encoding="utf-8")
    assert "Beside limner it needs limner-example 1.0, for its encoder mean-words." in card
    monkeypatch.undo()
    for folder in (run, own):
        refused(
            limner("evaluate", folder, "--data", data),
            r"encoder 'mean-words' is of limner-example 1\.0, which is not here.*install it beside limner",
        )


def test_the_guide_shows_the_example_as_it_is() -> None:
    """Each block behind a `<!-- not run: a copy of FILE … -->` is that file; and every file of the example is shown."""
    text = GUIDE.read_text(encoding="utf-8")
    shown = dict(
        re.findall(r"<!-- not run: a copy of (\S+), .*? -->\n+```\w+\n(.*?)```", text, flags=re.DOTALL)
    )
    package = EXAMPLE / "limner_example"
    files = {file.name: file for file in package.glob("*.py") if file.name != "__init__.py"}
    assert shown.keys() == {f"tests/example_package/limner_example/{name}" for name in files}
    for path, block in shown.items():
        assert block == files[Path(path).name].read_text(encoding="utf-8"), f"{path}: copy it into the guide"
    entry_points = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8").partition("[project.entry")[2]
    assert entry_points in text

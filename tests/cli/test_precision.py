"""The arithmetic that commands measure in: told wherever a figure is kept, and warned of where it differs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch.nn.functional as F
from PIL import Image

from limner.data.records import Dataset
from limner.durable import KEY, digest_of_values
from limner.people.lies import draw_lies
from tests import towers
from tests.cli.command import Limner, refused

MEASURES = ("fp32", "bf16")


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    """A run that nobody has evaluated."""
    return shutil.copytree(
        toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations.jsonl", "calibration.json")
    )


@pytest.fixture(autouse=True)
def _native_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor whose "auto" is bf16, whichever runs the tests."""
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})


def test_an_imported_clip_equals_transformers_by_the_defaults(limner: Limner, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = towers.clip_run(tmp_path)
    source, folder = tmp_path / "source", tmp_path / "pictures"
    folder.mkdir()
    random = np.random.default_rng(0)
    rows = []
    for number, sentence in enumerate(towers.SENTENCES):
        pixels = random.integers(0, 256, (towers.SIDE, towers.SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append({"file": f"{number}.png", "captions": [sentence], "split": "test"})
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    model = transformers.AutoModel.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    batch = tokenizer(
        list(towers.SENTENCES),
        padding="max_length",
        truncation=True,
        max_length=towers.LENGTH,
        return_tensors="pt",
    )
    images = [Image.open(file) for file in sorted(folder.glob("*.png"))]
    pixels = transformers.AutoImageProcessor.from_pretrained(source)(images, return_tensors="pt")
    theirs = [
        F.normalize(found.pooler_output, dim=1).detach().numpy()
        for found in (model.get_image_features(**pixels), model.get_text_features(**batch))
    ]

    def ours(*options: str) -> float:
        saved = tmp_path / "embeddings.npz"
        done = limner("evaluate", run, "--data", f"folder:{folder}", "--save", saved, "--cpu", *options)
        assert done.code == 0, done.err
        with np.load(saved) as arrays:
            found = arrays["images"], arrays["sentences"]
            return max(float(np.abs(one - other).max()) for one, other in zip(found, theirs, strict=True))

    assert ours() < 1e-5
    assert ours("--precision", "bf16") > 1e-4


def test_a_figure_says_its_arithmetic_wherever_it_is_kept(limner: Limner, run: Path, toys: Dataset) -> None:
    folder = run.parent
    for options, precision in (((), "fp32"), (("--precision", "auto"), "bf16")):
        queries, report = folder / "queries.csv", folder / "report.json"
        done = limner(
            *("evaluate", run, "--data", toys.source, "--cpu", "--per-query", queries, "--report", report),
            *options,
        )
        assert done.code == 0, done.err
        assert f"computed in {precision}" in " ".join(done.out.split())
        assert json.loads(report.read_text(encoding="utf-8"))["provenance"]["precision"] == precision
        line = json.loads((run / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        assert line["precision"] == precision
        assert set(pyarrow.csv.read_csv(queries)["precision"].to_pylist()) == {precision}
        summary = limner("summarise", run)
        assert f"computed in {precision}" in " ".join(summary.out.split())
        assert summary.err == ""
        assert json.loads(limner("summarise", run, "--json").out)[0]["precision"] == precision
    on = limner("evaluate", run, "--on", toys.source, "--cpu")
    assert "computed in fp32" in " ".join(on.out.split())
    card = limner("push", run, f"{folder}/out/", "--accept-terms", "--json")
    told = json.loads(card.out)["card"]
    assert [told.count(f"Arithmetic: {name}.") for name in MEASURES] == [1, 1]
    assert "precision: bf16" in told


def test_bench_says_it(limner: Limner, run: Path) -> None:
    pairs = run.parent / "lies"
    draw_lies(12).write(pairs)
    for options, precision in (((), "fp32"), (("--precision", "bf16"), "bf16")):
        done = limner("bench", run, "--pairs", pairs, "--cpu", *options, "--report", run.parent / "lies.json")
        assert done.code == 0, done.err
        assert f"computed in {precision}" in " ".join(done.out.split())
        told = json.loads((run.parent / "lies.json").read_text(encoding="utf-8"))
        assert told["provenance"]["precision"] == precision


def test_compare_warns_where_it_differs(limner: Limner, run: Path, toys: Dataset) -> None:
    files = {}
    for name, options in (("one", ()), ("same", ()), ("half", ("--precision", "bf16"))):
        files[name] = run.parent / f"{name}.parquet"
        done = limner("evaluate", run, "--data", toys.source, "--cpu", "--per-query", files[name], *options)
        assert done.code == 0, done.err
    same = limner("compare", files["one"], files["same"], "--json")
    assert same.err == ""
    for row in json.loads(same.out):
        assert (row["difference"], row["precisions"]) == (0, ["fp32", "fp32"])
    other = limner("compare", files["one"], files["half"], "--json")
    assert other.code == 0
    assert "the arithmetic differs (one: fp32; half: bf16)" in other.err
    assert {tuple(row["precisions"]) for row in json.loads(other.out)} == {MEASURES}
    # a system of two seeds, one of which was measured apart
    mixed = limner("compare", f"{files['one']},{files['half']}", files["same"])
    assert "bf16 and fp32; same: fp32" in mixed.err
    # a file of before, or of others, does not say
    table = pyarrow.parquet.read_table(files["one"])
    pyarrow.parquet.write_table(table.drop_columns("precision"), run.parent / "old.parquet")
    old = limner("compare", files["one"], run.parent / "old.parquet")
    assert "one: fp32; old: unknown" in old.err
    both = limner("compare", run.parent / "old.parquet", run.parent / "old.parquet")
    assert both.err == ""


def test_summarise_keeps_arithmetics_apart(limner: Limner, run: Path, toys: Dataset) -> None:
    runs = [run, shutil.copytree(run, run.parent / "other"), shutil.copytree(run, run.parent / "third")]
    for folder, options in zip(runs, ((), ("--precision", "bf16"), ()), strict=True):
        assert limner("evaluate", folder, "--data", toys.source, "--cpu", *options).code == 0
    # as limner 0.1.0 wrote a line
    log = runs[2] / "evaluations.jsonl"
    line = json.loads(log.read_text(encoding="utf-8"))
    before = {name: value for name, value in line.items() if name not in (KEY, "precision")}
    log.write_text(json.dumps({**before, KEY: digest_of_values(before)}) + "\n", encoding="utf-8")
    # equal figures of one seed would be taken for one evaluation
    found = limner("summarise", *runs[:2])
    assert "the arithmetic differs (bf16, fp32)" in found.err
    assert "2 configurations in 2 runs" in " ".join(found.out.split())
    rows = json.loads(limner("summarise", runs[1], runs[2], "--json").out)
    assert [row["precision"] for row in rows] == ["bf16", None]
    alone = limner("summarise", runs[2])
    assert (alone.code, "computed in" in alone.out) == (0, False)
    assert "do not say in which arithmetic" in alone.err


def test_a_store_notes_it_and_goes_on_in_it(limner: Limner, run: Path, pictures: Path) -> None:
    first, *more = sorted(pictures.glob("*.png"))
    index = ("index", run, run.parent / "store")
    for options, precision in (((), "fp32"), (("--precision", "auto"), "bf16")):
        store = run.parent / precision
        made = limner("index", run, store, first, "--cpu", *options)
        assert made.code == 0, made.err
        assert f" in {precision} of run" in limner("store", "info", store).out
        added = limner("index", run, store, *more, "--cpu")
        assert added.code == 0, added.err
        assert json.loads(limner("store", "info", store, "--json").out)["precision"] == precision
        # a picture of the store finds itself, as it would not by another arithmetic
        found = json.loads(limner("search", store, "--image", more[-1], "-k", "1", "--cpu", "--json").out)
        assert found["hits"][0]["score"] == pytest.approx(1, abs=1e-6 if precision == "fp32" else 1e-4)
        asked = {"fp32": "bf16", "bf16": "fp32"}[precision]
        refused(
            limner("index", run, store, pictures, "--cpu", "--precision", asked), f"embeddings in {precision}"
        )
        other = limner("reindex", store, run, run.parent / f"to-{asked}", "--cpu", "--precision", asked)
        assert other.code == 0, other.err
        assert f" in {asked} of run" in limner("store", "info", run.parent / f"to-{asked}").out
    refused(limner(*index, "--vectors", first, "--precision", "bf16"), "leave out --precision")


def test_mistakes_are_told_before_the_work(limner: Limner, run: Path, toys: Dataset, store: Path) -> None:
    data = ("--data", toys.source)
    refused(limner("evaluate", run, *data, "--precision", "fp16"), "expected auto, fp32, bf16, got 'fp16'")
    refused(
        limner("calibrate", run, "--store", store, "--precision", "bf16"), "own .* arithmetic; leave out --p"
    )
    np.savez(run.parent / "rows.npz", images=np.eye(2))
    refused(limner("bench", run.parent / "rows.npz", "--precision", "bf16"), "are for a run")

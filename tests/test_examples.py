"""Every file of `examples/` runs as its docstring says, and none is longer than a reader's first look."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import limner
from limner.data.records import Dataset
from limner.export.run import export_run
from tests import towers

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _run(name: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_are_short_and_listed() -> None:
    listed = set(
        re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    )
    assert listed == {file.name for file in EXAMPLES}
    for file in EXAMPLES:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 42, f"{file.name} is too long"
        assert f"def test_{file.stem}(" in Path(__file__).read_text(encoding="utf-8"), (
            f"{file.name} is not run"
        )


@pytest.mark.slow  # a process each
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_without_what_it_needs_it_says_how_it_is_used(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    # this one needs nothing, and the app is no script
    if file.stem == "own_training_loop":
        return
    script = "import inside_another_app as app; app.build()" if file.stem == "inside_another_app" else text
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{file.parent}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.strip()) == (1, (ast.get_docstring(ast.parse(text)) or "").strip())


@pytest.mark.slow  # a process of its own imports torch
def test_own_training_loop() -> None:
    found = [float(value) for value in re.findall(r"R@1 ([\d.]+)", _run("own_training_loop.py"))]
    assert found[0] < 10
    assert found[-1] == 100


@pytest.mark.slow
def test_loop_in_processes() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(ROOT / "examples" / "loop_in_processes.py")],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_RUN_ID": "test",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = "".join(process.communicate(timeout=120)[0] for process in started)
    assert [process.returncode for process in started] == [0, 0]
    losses, remembered = (re.findall(rf"{what} (-?[\d.]+)", said) for what in ("loss", "remembered"))
    assert len(losses) == 2
    assert max(map(float, losses)) < 0.1
    # each has learnt from its own half of each batch, and both remember the same
    assert len({*losses}) == 2
    assert len(remembered) == 2
    assert len({*remembered}) == 1


@pytest.mark.slow
def test_measure_embeddings(toys: Dataset) -> None:
    said = _run("measure_embeddings.py", toys.source)
    # three shapes and three grounds share a colour, so a colour alone finds the right image often and not always
    assert '"R@1"' in said
    assert '"mAP"' in said


@pytest.mark.slow
def test_index_and_filter(toy_run: Path, toys: Dataset, tmp_path: Path) -> None:
    images = toys.records[0].image.parent
    command = ("index_and_filter.py", toy_run, tmp_path / "store", images, "a red square on white")
    said = _run(*command)
    assert said.startswith("36 added, 0 unchanged\n")
    assert len(re.findall(r"^\d\. .* on shelf 2$", said, re.MULTILINE)) == 3
    assert _run(*command).startswith("0 added, 36 unchanged\n")


def test_inside_another_app(
    toy_run: Path, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both apps answer, each with its own rules; the page lies below the path where it is mounted."""
    from starlette.testclient import TestClient

    store = tmp_path / "store"
    limner.index(toy_run, str(store), toys.records[0].image.parent)
    monkeypatch.setenv("STORE", str(store))
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from inside_another_app import build

    with TestClient(build()) as client:
        assert client.get("/").json() == {"pictures": 36}
        query = {"text": "a red square", "k": 3}
        assert client.post("/pictures/v1/search", json=query).status_code == 401
        answer = client.post("/pictures/v1/search", json=query, headers={"Authorization": "Bearer secret"})
        assert len(answer.json()["hits"]) == 3
        assert "<html" in client.get("/pictures/").text


@pytest.mark.slow  # a process each
@pytest.mark.parametrize("kind", ["words", "clip", "pieces"])
def test_read_an_export(kind: str, toy_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    if kind == "words":
        run = toy_run
    else:
        pytest.importorskip("transformers")
        from limner.inference.import_model import import_model

        (tmp_path / "source").mkdir()
        {"clip": towers.save_clip, "pieces": towers.save_siglip2}[kind](tmp_path / "source")
        run = tmp_path / "run"
        import_model(str(tmp_path / "source"), run)
    model = limner.load(run, device="cpu", precision="fp32")
    export_run(model, tmp_path / "export")
    picture, sentence = tmp_path / "large.jpg", "A red Square, on white; " * 20
    # decoded at a fraction, where the model does so, and neither side a multiple of the model's
    pixels = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((701, 513)).save(picture, quality=95)
    expected = float((model.encode_images([picture]) @ model.encode_texts([sentence]).T)[0, 0])
    said = _run("read_an_export.py", tmp_path / "export", picture, sentence)
    assert float(said.removeprefix("score ")) == pytest.approx(expected, abs=2e-4)

"""Every command that reads a split with a run counts it: each adds one to what `limner summarise` tells."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.inference.evaluations import FILE
from limner.people.lies import draw_lies
from tests.cli.command import Limner
from tests.cli.test_contract import BUILT

TEST, OUT = ("--data", "DATA", "--split", "test"), ("--out", "OUT.svg", "--cpu")
READING: dict[str, tuple[str, ...]] = {
    "evaluate": ("RUN", *TEST, "--cpu"),
    "evaluate, several sets": ("RUN", "--on", "DATA", "--split", "test", "--cpu"),
    "figure correlation": ("RUN", *TEST, "--images", "4", *OUT),
    "figure map": ("RUN", *TEST, "GROUPS", *OUT),
    "figure ranks": ("RUN", *TEST, "--queries", "2", *OUT),
    "export": ("RUN", "OUT", *TEST),
    "data check": ("DATA", "--with", "RUN", "--split", "test"),
}
"""Commands by name, with arguments that read the toys' test split once."""

ELSEWHERE = {
    "ablate": "counted as its runs' evaluations (tests/cli/test_ablate.py)",
    "calibrate": "counted by --check, which toys that agree are needed for (tests/cli/test_calibrate.py)",
    "index": "it measures nothing",
    "index-sentences": "it measures nothing",
    "summarise": "it reads what evaluations left",
}
"""Commands with a split that are not among those above, and why."""

NEEDED = {"export": ("onnxscript", "onnxruntime"), "figure": ("matplotlib", "sklearn")}


def test_no_command_reads_a_split_unseen() -> None:
    reading = {
        " ".join(path)
        for path, built in BUILT.items()
        if {"--split", "--check"} & {flag for option in built.params for flag in option.opts}
    }
    assert reading == {name.partition(",")[0] for name in READING} | set(ELSEWHERE)


def _looks(limner: Limner, run: Path) -> int:
    found = json.loads(limner("summarise", run, "--json").out)
    return int(found[0]["looks"])


@pytest.fixture
def run(limner: Limner, toy_run: Path, toys: Dataset, tmp_path: Path) -> Path:
    """A run that was evaluated once."""
    folder = shutil.copytree(toy_run, tmp_path / "run")
    (folder / FILE).unlink(missing_ok=True)
    assert limner("evaluate", folder, "--data", toys.source, "--cpu").code == 0
    return folder


@pytest.mark.parametrize("name", READING)
def test_each_reading_is_one_more(
    name: str, limner: Limner, run: Path, toys: Dataset, tmp_path: Path
) -> None:
    command = name.partition(",")[0]
    for module in NEEDED.get(command.split(" ")[0], ()):
        if find_spec(module) is None:
            pytest.skip(f"needs {module}")
    groups = dict.fromkeys(record.group for record in toys.split("test").records)
    words: dict[str, list[object]] = {
        "RUN": [run],
        "DATA": [toys.source],
        "OUT": [tmp_path / "out"],
        "OUT.svg": [tmp_path / "out.svg"],
        "GROUPS": [word for group in groups for word in ("--group", group)],
    }
    given = [word for one in READING[name] for word in words.get(one, [one])]
    assert _looks(limner, run) == 1
    for count in (2, 3):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        done = limner(*command.split(" "), *given)
        assert done.code == 0, done.err
        assert _looks(limner, run) == count
        assert f"on this split {count} times; choose nothing by it" in " ".join(done.err.split())


def test_lies_are_counted_by_their_set(limner: Limner, run: Path, tmp_path: Path) -> None:
    draw_lies(12).write(tmp_path / "lies")
    draw_lies(13).write(tmp_path / "others")
    counts = []
    for name in ("lies", "lies", "others"):
        told = json.loads(limner("bench", run, "--pairs", tmp_path / name, "--cpu", "--json").out)
        counts.append(told["measured"]["provenance"]["evaluations_of_split"])
    assert counts == [1, 2, 1]
    assert _looks(limner, run) == 1

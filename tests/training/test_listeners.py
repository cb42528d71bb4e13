"""The listeners of docs/training.md, with stand-ins for the programs that they report to."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import limner
from limner.data.readers import FORMATS
from limner.data.records import Dataset
from limner.recipes import RECIPES
from tests.toy import toy_recipe

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(import limner\nimport (wandb|mlflow)\n.*?)```", PAGE, flags=re.DOTALL)


class Recorded(ModuleType):
    """`wandb` and `mlflow` as far as the examples use them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.logged: list[tuple[dict[str, Any], int | None]] = []

    def init(self, **_: Any) -> Any:
        return SimpleNamespace(log=self.log_metrics)

    def log_metrics(self, values: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((values, step))

    def start_run(self) -> Any:
        return open("/dev/null", encoding="utf-8")  # noqa: PTH123 - anything that `with` takes


@pytest.mark.parametrize(("code", "name"), EXAMPLES, ids=[name for _, name in EXAMPLES])
def test_each_epoch_is_logged(
    code: str, name: str, toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Recorded(name)
    monkeypatch.setitem(sys.modules, name, program)
    train = limner.train

    def small(recipe: str, data: str, _: str, *, listener: Any) -> None:
        assert recipe in RECIPES
        assert data.partition(":")[0] in FORMATS
        train(toy_recipe(), toys, tmp_path / "run", listener=listener, cpu=True)

    monkeypatch.setattr(limner, "train", small)
    exec(compile(code, "docs/training.md", "exec"), {})
    rows = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(program.logged) == len(rows) > 1
    assert all(values["seconds"] >= 0 and values["epoch"] >= 1 for values, _ in program.logged)
    assert name == "wandb" or [step for _, step in program.logged] == list(range(len(rows)))


def test_both_are_shown() -> None:
    assert {name for _, name in EXAMPLES} == {"wandb", "mlflow"}

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from limner.store.files import StoreFiles
from tests.cli.command import Limner, last_line, refused, sets
from tests.toy import toy_recipe


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command on so few people and epochs that nothing is learnt; --out is missing."""
    monkeypatch.setattr("limner.cli.walkthrough.VAL", 2)
    monkeypatch.setattr("limner.cli.walkthrough.TEST", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    small = toy_recipe().replace(
        images=toy_recipe().images.replace(resize=(48, 24), crop=(48, 24)), stages=toy_recipe().stages[1:]
    )
    return ("demo", "--identities", "9", *sets(small))


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
    store = StoreFiles.open(tmp_path / "store")
    version = store.snapshot().version
    (store.folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert limner(*command).code == 0
    assert store.snapshot().version == version, "the store is indexed into again, not made anew"
    assert (store.folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    shutil.rmtree(tmp_path / "run")
    refused(limner(*command), "the run that its store was built with is gone; remove .*store, or name a new")
    store.forget()
    for path in (tmp_path / "store").glob("store.*"):
        path.unlink()
    refused(limner(*command), r"store: not empty \(holds '(model|notes.txt)'\)")
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
    refused(last_line(result), "which is not of a demo|is not empty and holds no generated people")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text(encoding="utf-8") == "mine"
    refused(limner(*demo, "--out", mine), f"--out {mine}: a folder was expected, this is a file")

"""The tables of results are what `limner summarise` makes of the evaluations that are kept in docs/results."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import Limner
from tests.cli.conftest import limner as limner

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results"
FILES = sorted(FOLDER.rglob("*.jsonl"))
TABLES = (
    ("README.md", ".", ("--measures", "R@1")),
    ("docs/results.md", ".", ()),
    ("docs/results.md", "stage-1", ()),
)


@pytest.mark.parametrize(("page", "folder", "options"), TABLES, ids=lambda given: str(given))
def test_a_table_is_what_summarise_prints(
    page: str, folder: str, options: tuple[str, ...], limner: Limner
) -> None:
    files = sorted((FOLDER / folder).glob("*.jsonl"))
    printed = limner("summarise", *files, *options, "--markdown")
    assert printed.code == 0, printed.err
    # with the line below it, which says how many configurations there are
    table = printed.out.rstrip("\n") + "\n"
    text = (ROOT / page).read_text(encoding="utf-8")
    # with the lines around it: no row stands there that was typed by hand
    assert f"\n\n{table}\n" in text, (
        f"{page}: put in what `limner summarise {FOLDER.name}/…` prints:\n{table}"
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_copied_figures_stand_in_the_entry_that_is_named(file: Path) -> None:
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        assert line["split"] == "test"
        if (entry := line.get("copied_from")) is None:
            # of `limner summarise --save`, which knows all this
            assert line["configuration"]
            assert line["split_fingerprint"]
            continue
        page, _, anchor = entry.partition("#")
        sections = re.split(r"^## ", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        (section,) = (text for text in sections if _anchor(text.partition("\n")[0]) == anchor)
        for direction in ("image_to_text", "text_to_image"):
            for value in line[direction].values():
                assert re.search(rf"(?<![\d.]){value:.1f}(?!\d)", section), (line["run"], direction, value)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_no_path_of_a_machine_is_in_a_file(file: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root|Users|tmp|mnt)/", file.read_text(encoding="utf-8"))

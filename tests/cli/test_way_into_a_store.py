"""The way of a picture into a store in docs/code-map.md is the true one, and no longer than it has to be."""

from pathlib import Path

from limner.data.records import Dataset
from tests.cli.command import Limner
from tests.ways import followed, lines_of, listed

FILES, LINES = 24, 5_007
"""The most files and lines that a reader opens for it. They only fall: the plan is 18 files."""

ROOMS = ("limner/cli/index.py", "limner/search/", "limner/store/")


def test_the_code_map_lists_every_file_of_the_way(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    way = listed("into a store")
    with followed() as followed_files:
        done = limner("index", toy_run, tmp_path / "store", toys.records[0].image.parent, "--cpu")
    assert done.code == 0, done.err
    called = {path for path in followed_files if path.startswith(ROOMS)}
    # read in other processes, which nobody follows here
    elsewhere = {"limner/search/batch_look.py", "limner/search/image_look.py"} - called
    assert called - way == set(), "the way goes through these, too; list them in docs/code_map.py"
    assert way - elsewhere - called == set(), "the way does not go through these"
    assert len(way) <= FILES
    assert lines_of(way) <= LINES

"""The way of a picture into a store in docs/code-map.md is the true one, and no longer than it has to be."""

import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import limner
from docs.code_map import WAYS
from limner.data.records import Dataset
from tests.cli.command import Limner

PACKAGE = Path(limner.__file__).parent
FILES, LINES = 20, 4_090
"""The most files and lines that a reader opens for it. They only fall: the plan is 18 files."""

ROOMS = ("limner/cli/index.py", "limner/search/", "limner/store/")


def test_the_code_map_lists_every_file_of_the_way(
    limner: Limner, toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    [way] = [steps for title, steps in WAYS.items() if "into a store" in title]
    listed = {path for path, _, _ in way}
    called: set[str] = set()

    def follow(frame: FrameType, event: str, given: object) -> None:
        file = Path(frame.f_code.co_filename)
        # the body of a class runs when its module is imported
        if event == "call" and PACKAGE in file.parents and frame.f_code.co_flags & CO_OPTIMIZED:
            called.add(file.relative_to(PACKAGE.parent).as_posix())

    command = ("index", toy_run, tmp_path / "store", toys.records[0].image.parent, "--cpu")
    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        done = limner(*command)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert done.code == 0, done.err
    called = {path for path in called if path.startswith(ROOMS)}
    # read in other processes, which nobody follows here
    listed -= {"limner/search/batch_look.py", "limner/search/image_look.py"} - called
    assert called - listed == set(), "the way goes through these, too; list them in docs/code_map.py"
    assert listed - called == set(), "the way does not go through these"
    assert len(way) <= FILES
    assert sum(len((PACKAGE.parent / path).read_text().splitlines()) for path, _, _ in way) <= LINES

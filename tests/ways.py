"""Follow calls through the package: the ways in docs/code-map.md are held to what is called."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import limner
from docs.code_map import WAYS

PACKAGE = Path(limner.__file__).parent


@contextmanager
def followed() -> Iterator[set[str]]:
    """The files whose functions are called meanwhile, also in threads that begin meanwhile."""
    called: set[str] = set()

    def follow(frame: FrameType, event: str, given: object) -> None:
        file = Path(frame.f_code.co_filename)
        # the body of a class runs when its module is imported
        if event == "call" and PACKAGE in file.parents and frame.f_code.co_flags & CO_OPTIMIZED:
            called.add(file.relative_to(PACKAGE.parent).as_posix())

    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def listed(title: str) -> set[str]:
    """The files of the way whose title has these words."""
    [way] = [steps for whole, steps in WAYS.items() if title in whole]
    return {path for path, _, _ in way}


def lines_of(files: set[str]) -> int:
    """Lines that a reader has before them."""
    return sum(len((PACKAGE.parent / path).read_text(encoding="utf-8").splitlines()) for path in files)

"""What a command said, and what a refusal looks like."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Limner = Callable[..., Result]


def refused(result: Result, message: str) -> None:
    """A user's mistake: exactly one line on stderr, nothing else, exit code 2."""
    assert result.code == 2, result
    assert result.out == ""
    assert re.fullmatch(r"limner: [^\n]+\n", result.err), result.err
    assert re.search(message, result.err), result.err

"""What a command said, and what a refusal looks like."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from limner.training.recipe import Recipe


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


def last_line(result: Result) -> Result:
    """For a command that fails after it has said something useful on stdout."""
    return Result(result.code, "", result.err)


def sets(recipe: Recipe) -> list[str]:
    """The `--set` options that make any recipe this one."""
    values = json.loads(recipe.model_dump_json())
    return [
        part
        for name, value in values.items()
        if name != "name"
        for part in ("--set", f"{name}={json.dumps(value)}")
    ]


def write_metadata(pictures: Path, folder: Path) -> Path:
    """Metadata with the identity of each toy, as `limner index --metadata` takes it."""
    rows = [
        json.loads(line) for line in (pictures / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    notes = [{"file": str(pictures / row["file"]), "identity": row["identity"], "shelf": 3} for row in rows]
    file = folder / "metadata.jsonl"
    file.write_text("\n".join(map(json.dumps, notes)), encoding="utf-8")
    return file

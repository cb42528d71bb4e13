"""The contents of a store and of a run folder, as the command line and the library show them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

import limner
from benchmarks.torture.commands import Result, called
from benchmarks.torture.outcome import Outcome
from benchmarks.torture.workshop import SENTENCES
from limner.errors import LimnerError

_NEAR = 1e-4
"""Most by which a score may differ: batches of another size are summed in another order."""


@dataclass(frozen=True)
class Contents:
    """Rows by path, answers by query, and the sentences of a store; empty if it cannot be read."""

    rows: dict[str, dict[str, Any]]
    answers: dict[str, dict[str, float]]
    sentences: tuple[str, ...]

    def differs(self, other: "Contents") -> str:
        """Say where two stores differ; empty if they hold the same."""
        if self.rows.keys() != other.rows.keys():
            return f"{len(self.rows)} pictures and {len(other.rows)}"
        for path, row in self.rows.items():
            if row != other.rows[path]:
                return f"{Path(path).name}: {row} and {other.rows[path]}"
        if self.sentences != other.sentences:
            return f"{len(self.sentences)} sentences and {len(other.sentences)}"
        for query, scores in self.answers.items():
            for path, score in scores.items():
                if abs(score - other.answers[query][path]) > _NEAR:
                    return f"{Path(path).name}: score {score} and {other.answers[query][path]} for {query!r}"
        return ""


NOTHING = Contents({}, {}, ())


def contents_of(store: Path, outcome: Outcome, when: str) -> Contents:
    """Open a store, read all of it, and note what is not whole; `when` is told in findings."""
    try:
        return _read(store, outcome, when)
    except LimnerError as error:
        outcome.find(f"{when}: the store cannot be read: {error}")
        return NOTHING


def _read(store: Path, outcome: Outcome, when: str) -> Contents:
    opened = limner.open_store(store, device="cpu")
    listed = called("store", "list", store, "--json")
    rows = json.loads(listed.out) if listed.code == 0 else []
    outcome.expect(listed.code == 0, f"{when}: {listed}")
    by_path = {row["path"]: row for row in rows}
    outcome.expect(
        len(by_path) == len(rows), f"{when}: {len(rows) - len(by_path)} pictures stand in it twice"
    )
    _verified(store, len(rows), outcome, when)
    answers: dict[str, dict[str, float]] = {}
    sentences: tuple[str, ...] = ()
    if rows:
        # all of them, so that the answers tell of the region features, too
        rerank: Literal["all"] | None = "all" if opened.info().reranks else None
        for query in SENTENCES:
            hits = opened.search(query, k=len(rows) + 1, rerank=rerank).hits
            answers[query] = {str(hit.path): hit.score for hit in hits}
            outcome.expect(
                len(hits) == len(rows) and answers[query].keys() == by_path.keys(),
                f"{when}: a search finds {len(hits)} of {len(rows)} pictures",
            )
        for row in rows:
            row["thumbnail"] = hashlib.sha256(opened.thumbnail(row["id"])).hexdigest()
        if count := opened.info().sentences:
            found = opened.sentences(SENTENCES[0], k=count + 1)
            sentences = tuple(sorted(f"{one.path} {one.text}" for one in found))
            outcome.expect(
                len(set(sentences)) == count, f"{when}: {count} sentences, {len(set(sentences))} found"
            )
    return Contents(by_path, answers, sentences)


def expect_gone(folder: Path, texts: tuple[str, ...], outcome: Outcome, when: str) -> None:
    """No file below a folder may hold one of these texts."""
    for path in sorted(folder.rglob("*")) if texts else ():
        content = path.read_bytes() if path.is_file() else b""
        if found := next((text for text in texts if text.encode() in content), None):
            outcome.find(f"{when}: {Path(found).name} is still in {path.relative_to(folder)}")
            return


def _verified(store: Path, rows: int, outcome: Outcome, when: str) -> None:
    verified = called("store", "verify", store, "--hashes", "--json")
    try:
        report = json.loads(verified.out)
        sound = verified.code == 0 and report["sound"] and report["pictures"] == rows
    except (ValueError, KeyError):
        sound = False
    outcome.expect(sound, f"{when}: {verified}")
    outcome.count("verified")


def run_of(folder: Path, *, killed: bool = False) -> dict[str, Any]:
    """Everything in a run folder that two runs of one recipe have in common: tensors, and metrics without times.

    Of one that was `killed`, without the line of the log that was being written.
    """
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        digest = hashlib.sha256()
        with safe_open(path, framework="np") as opened:
            for name in sorted(opened.keys()):
                digest.update(name.encode())
                digest.update(opened.get_tensor(name).tobytes())
        found[path.name] = digest.hexdigest()
    metrics = folder / "metrics.jsonl"
    text = metrics.read_text(encoding="utf-8") if metrics.exists() else ""
    lines = (text[: text.rfind("\n") + 1] if killed else text).splitlines()
    found["metrics"] = [
        {name: value for name, value in json.loads(line).items() if not _is_time(name)} for line in lines
    ]
    found["files"] = sorted(path.name for path in folder.iterdir())
    return found


def _is_time(name: str) -> bool:
    return name in {"seconds", "pairs_per_second"}


def expect_line(result: Result, outcome: Outcome, when: str) -> None:
    """A command that could not do its work says so in one line and exit code 2."""
    outcome.expect(result.refused, f"{when}: {result}")

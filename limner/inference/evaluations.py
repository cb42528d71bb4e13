"""The evaluations of a run, kept in its folder: how often a split was looked at, and what seeds add up to.

    RUN/evaluations.jsonl   one line an evaluation: date, split, protocol, fingerprints, measures, intervals, and a
                            digest of the line

A test split that is measured again and again while a recipe is changed becomes a validation split. Nobody can forbid
that, but a report can say how often it was done.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from limner.data.records import Dataset
from limner.errors import DataError
from limner.evaluation.composed import ComposedReport
from limner.evaluation.report import Report
from limner.inference.checkpoint import read_description
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel
from limner.sealed_json import KEY, digest_of_values, opened

FILE = "evaluations.jsonl"
"""The log of evaluations in a run's folder."""

_KEPT = ("split_fingerprint", "model_fingerprint", "checkpoint", "recipe", "seed", "reranked", "versions")
"""Parts of a report's provenance that a line keeps."""


def noted(report: Report, run: Path) -> Report:
    """Add a report to the log of its run, and return it with how often this split was evaluated with the run.

    `run` is the checkpoint. The report's `evaluations_of_split` counts this one; it is None where the folder cannot be
    written, as that of a shared model, and where a line of the log is damaged. `evaluations_problem` says so, and which
    line was cut off and is not counted; a report without a problem has no such key.
    """
    kept = {name: report.provenance.get(name) for name in _KEPT}
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "split": report.split,
        "protocol": report.protocol,
        **kept,
        "image_to_text": dict(report.image_to_text),
        "text_to_image": dict(report.text_to_image),
    }
    count, problem = _note(line, run)
    said = {"evaluations_problem": problem} if problem else {}
    return replace(report, provenance={**report.provenance, "evaluations_of_split": count, **said})


def note_composed(report: ComposedReport, run: Path) -> ComposedReport:
    """The same of a report of composed queries, whose lines have a split of their own, "composed SPLIT"."""
    kept = {name: report.provenance.get(name) for name in _KEPT}
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        # `summarise` reads lines by their split, and these have no two directions
        "split": f"composed {report.split}",
        "protocol": report.protocol,
        **kept,
        "composed": {row.name: row.values for row in report.rows},
    }
    count, problem = _note(line, run)
    said = {"evaluations_problem": problem} if problem else {}
    return replace(report, provenance={**report.provenance, "evaluations_of_split": count, **said})


def note_look(run: TrainedModel, dataset: Dataset, split: str, what: str) -> tuple[int | None, str]:
    """Add a look at a split that is no ranking, e.g. at explanations, and say how often the split was looked at.

    The number is None where it is not known, and the text is the problem with the log, "" without one. Lines have a
    split of their own, e.g. "explanations test".
    """
    described = run.description
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        # as of composed queries: `summarise` reads lines by their split
        "split": f"{what} {split}",
        "protocol": what,
        "split_fingerprint": dataset.fingerprint,
        "model_fingerprint": run.fingerprint,
        "checkpoint": run.path.name,
        "recipe": described["recipe"].get("name"),
        "seed": described.get("seed"),
        "versions": versions(),
    }
    return _note(line, run.path)


def _note(line: Mapping[str, Any], run: Path) -> tuple[int | None, str]:
    """Add a line, and say how often its split was evaluated; None with the problem where that is not known."""
    count: int | None = None
    path = run.parent / FILE
    # The figures are what the user waited for: a log that cannot be written must not take them along.
    try:
        # half a line, of a process that was killed, must not take this one along
        begun = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as file:
            file.write(
                "\n" * begun + json.dumps({**line, KEY: digest_of_values(line)}, ensure_ascii=False) + "\n"
            )
            file.flush()
            os.fsync(file.fileno())
        found, problem = _lines(path)
        count = sum(1 for one in found if one.get("split_fingerprint") == line["split_fingerprint"])
    except (OSError, ValueError) as error:
        problem = f"{path}: cannot be written or read ({error})"
    except DataError as error:
        problem = str(error)
    return count, problem


@dataclass(frozen=True)
class Summary:
    """One configuration over its runs.

    - `recipe`: its name; `runs`: folders; `seeds`: of the runs, in their order.
    - `splits`: number of different splits that were measured: above 1 for repeated draws.
    - `looks`: how often these runs have evaluated the split in all.
    - `values`: by direction and measure, mean and sample standard deviation over the runs; the deviation is None for
      one run.
    - `problems`: of each log of these runs that has a line that was cut off, which one that is; it is left out.
    """

    recipe: str
    protocol: str
    runs: tuple[str, ...]
    seeds: tuple[Any, ...]
    splits: int
    looks: int
    values: Mapping[str, Mapping[str, tuple[float, float | None]]]
    problems: tuple[str, ...] = ()


def summarise(runs: Sequence[Path], split: str = "test", protocol: str | None = None) -> list[Summary]:
    """Mean and deviation over seeds or repeated splits, for each configuration among these run folders.

    Runs are of one configuration if their recipes differ in the seed alone. Of each run the last evaluation of the
    split counts, under `protocol` (the beginning of its name, e.g. "flickr8k") if one is given.

    Raises `DataError` for a folder without an evaluation of the split, and for a damaged log, `CheckpointError` for a
    folder that is no run.
    """
    found: dict[tuple[str, str], list[tuple[Path, dict[str, Any], int]]] = {}
    problems: dict[Path, str] = {}
    for run in runs:
        whole, problems[run] = _lines(run / FILE)
        lines = [line for line in whole if line.get("split") == split]
        lines = [line for line in lines if protocol is None or str(line["protocol"]).startswith(protocol)]
        if not lines:
            raise DataError(
                f"{run}: no evaluation of split '{split}'{f' by {protocol}' if protocol else ''} is noted; run "
                f"`limner evaluate` first"
            )
        last = lines[-1]
        key = (_configuration(run, last), str(last["protocol"]))
        found.setdefault(key, []).append((run, last, len(lines)))
    return [
        replace(
            _summary(protocol, listed),
            problems=tuple(problems[run] for run, _, _ in listed if problems[run]),
        )
        for (_, protocol), listed in found.items()
    ]


def _summary(protocol: str, listed: Sequence[tuple[Path, dict[str, Any], int]]) -> Summary:
    lines = [line for _, line, _ in listed]
    values = {
        direction: {
            name: _spread([line[direction][name] for line in lines])
            for name in lines[0][direction]
            if all(name in line[direction] for line in lines)
        }
        for direction in ("image_to_text", "text_to_image")
    }
    return Summary(
        recipe=str(lines[0]["recipe"]),
        protocol=protocol,
        runs=tuple(str(run) for run, _, _ in listed),
        seeds=tuple(line["seed"] for line in lines),
        splits=len({line["split_fingerprint"] for line in lines}),
        looks=sum(count for _, _, count in listed),
        values=values,
    )


def _spread(values: Iterable[float]) -> tuple[float, float | None]:
    listed = list(values)
    return mean(listed), stdev(listed) if len(listed) > 1 else None


def _configuration(run: Path, line: Mapping[str, Any]) -> str:
    """The recipe of a run as text, without its seed."""
    recipe = dict(read_description(run / str(line["checkpoint"]))["recipe"])
    recipe.pop("seed", None)
    return json.dumps(recipe, sort_keys=True)


def _lines(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The lines of a log without those that were cut off, and which these are; "" for none. Raises `DataError`."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], ""
    found, cut = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            # half a line has neither its digest, which stands last, nor its end
            if f'"{KEY}"' not in line and not line.endswith('"}'):
                # nothing stands behind the end of the last line
                cut += [number] if line.strip() else []
                continue
            value = {}
        try:
            found.append(opened(value))
        except (ValueError, AttributeError):
            raise DataError(
                f"{path}: line {number} is damaged, or of a version before lines had a digest; remove it and evaluate "
                "again"
            ) from None
    # said, since nobody can tell half a line of a killed process from an evaluation that was lost
    if not cut:
        return found, ""
    numbers = ", ".join(map(str, cut))
    return (
        found,
        f"{path}: line {numbers} was cut off, as by a process that was killed, and is not counted; remove it",
    )

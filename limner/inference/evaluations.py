"""The evaluations of a run, kept in its folder: how often a split was looked at, and what seeds add up to.

    RUN/evaluations.jsonl   one line an evaluation: date, split, protocol, fingerprints, arithmetic, measures,
                            intervals, and a digest of the line

A test split that is measured again and again while a recipe is changed becomes a validation split. Nobody can forbid
that, but a report can say how often it was done.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pydantic import Field

from limner.documented import Result
from limner.durable import KEY, digest_of_values, from_json, opened, write_text
from limner.errors import DataError
from limner.evaluation.composed import ComposedReport
from limner.evaluation.intervals import Interval
from limner.evaluation.report import Report
from limner.evaluation.reranking import First
from limner.inference.checkpoint import read_description
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel

FILE = "evaluations.jsonl"
"""The log of evaluations in a run's folder."""

_KEPT = (
    *("split_fingerprint", "model_fingerprint", "checkpoint", "recipe", "seed", "precision", "reranked"),
    *("versions", "seen_before"),
)
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
        "intervals": {
            way: {name: list(ends) for name, ends in of.items()} for way, of in report.intervals.items()
        },
    }
    count, problem = _note(line, run)
    said = {"evaluations_problem": problem} if problem else {}
    return report.replace(provenance={**report.provenance, "evaluations_of_split": count, **said})


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
    return report.replace(provenance={**report.provenance, "evaluations_of_split": count, **said})


def note_look(run: TrainedModel, fingerprint: str, split: str, what: str) -> tuple[int | None, str]:
    """Add a look at a split that is no ranking, e.g. at explanations, and say how often the split was looked at.

    `fingerprint` is the split's, or the digest of a set that is all one split. The number is None where it is not
    known, and the text is the problem with the log, "" without one. Lines have a split of their own, e.g.
    "explanations test".
    """
    described = run.description
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        # as of composed queries: `summarise` reads lines by their split
        "split": f"{what} {split}",
        "protocol": what,
        "split_fingerprint": fingerprint,
        "model_fingerprint": run.fingerprint,
        "checkpoint": run.path.name,
        "recipe": described["recipe"].get("name"),
        "seed": described.get("seed"),
        "precision": run.precision,
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


class Summary(Result):
    """One configuration over its runs."""

    recipe: str
    """Name of the recipe."""
    stage: str
    """Stage whose checkpoint was evaluated."""
    reranked: int | str | None
    """How many of the first hits were re-ranked: 0 = none, or "all"."""
    precision: str | None
    """Arithmetic of the network, fp32 or bf16; null if the evaluations do not say, as those of limner 0.1.0."""
    protocol: str
    """The rules under which the runs were evaluated; a number that differs between repeated draws is "…"."""
    split_fingerprint: str | None
    """Digest of the split's annotations; null for repeated draws."""
    runs: tuple[str, ...]
    """Run folders, or the names of runs behind the file that keeps their evaluations."""
    seeds: tuple[int | None, ...]
    """Seeds of the runs, in their order; null for an imported model."""
    splits: int
    """Different splits among them; above 1 for repeated draws."""
    looks: int | None
    """How often these runs have read the split in all, by explanations, figures and exports, too; null if not known."""
    values: dict[str, dict[str, tuple[float, float | None]]]
    """Mean and sample standard deviation by direction and measure; null for a single run."""
    problems: tuple[str, ...] = ()
    """Logs of these runs with a line that was cut off, which is not counted."""
    files: tuple[str, ...] = ()
    """Names of the files that keep evaluations of these runs (`--save`), without ".jsonl"."""
    intervals: dict[str, dict[str, Interval]] = Field(default={})
    """95 % interval over queries by direction and measure, of several runs the means of both ends; empty if a run has
    none."""


@dataclass(frozen=True)
class _Key:
    """The parts that evaluations must share, so that their mean is a figure of something."""

    configuration: str
    stage: str
    reranked: int | str | None
    precision: str | None
    protocol: str
    split_fingerprint: str | None
    # of repeated draws: the set that they were drawn from
    drawn_from: str = ""
    # of figures that were copied from a text, which names no fingerprint: a file is of one test set
    file: str = ""
    other_set: int = 0


@dataclass(frozen=True)
class _Logged:
    """The evaluation of a run that counts.

    - `line`: as its log has it, and with what `summarise` needs of the run beside it: `run`, the folder's name;
      `configuration`, a digest of the recipe without its seed; `drawn_from`, one of the set that a draw is of; `looks`,
      how often the split was read in all, None if that is not known.
    - `problem`: which line of the log was cut off; `file`: the file that keeps it, None for a run's folder.
    """

    run: str
    line: Mapping[str, Any]
    problem: str
    file: Path | None = None

    @property
    def key(self) -> _Key:
        """The configuration, and what was measured."""
        protocol, drawn = _draw_of(self.line)
        return _Key(
            # null in lines that were copied from a text, which names the recipe alone
            configuration=self.line["configuration"] or str(self.line["recipe"]),
            stage=_stage(self.line),
            reranked=self.line["reranked"],
            precision=self.line.get("precision"),
            protocol=protocol,
            split_fingerprint=None if drawn else self.line["split_fingerprint"],
            drawn_from=self.line["drawn_from"],
            file=str(self.file) if self.line["split_fingerprint"] is None else "",
        )


def summarise(
    runs: Sequence[Path],
    split: str = "test",
    protocol: str | None = None,
    *,
    stage: str | None = None,
    rerank: First | None = None,
    save: Path | None = None,
) -> list[Summary]:
    """Mean and deviation over seeds or repeated splits, for each configuration among these run folders.

    Runs are of one configuration if their recipes differ in the seed alone, and if the same stage was evaluated with as
    much re-ranking, in one arithmetic, under one protocol, on one split or on repeated draws of one (`#seed=S`,
    `#fold=K/N` and `#draw=S/VAL/TEST` behind a dataset). Of each run the last evaluation of the split counts; of
    `stage`, with this `rerank` and under `protocol` (the beginning of its name, e.g. "flickr8k") where they are given.

    `save` is a file that keeps the evaluations that count, without the runs; it is read as they are, in their place or
    beside other runs.

    Raises `DataError` for a folder or file without such an evaluation, for a damaged log and for an evaluation that is
    there twice, `CheckpointError` for a folder that is no run.
    """

    def asked(line: Mapping[str, Any]) -> bool:
        return (
            line.get("split") == split
            and (protocol is None or str(line["protocol"]).startswith(protocol))
            and (stage is None or _stage(line) == stage)
            and (rerank is None or line["reranked"] == rerank)
        )

    listed: list[_Logged] = []
    for path in runs:
        logged = _logs(path, split, asked)
        if not logged:
            words = [f" by {protocol}"] if protocol else []
            words += [f" of {stage}"] if stage else []
            words += [f" with --rerank {rerank}"] if rerank is not None else []
            raise DataError(
                f"{path}: no evaluation of split '{split}'{''.join(words)} is noted; run `limner evaluate` first"
            )
        listed += logged
    _expect_different(listed)
    if save is not None:
        lines = ({**one.line, KEY: digest_of_values(one.line)} for one in listed)
        write_text(save, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    found: dict[_Key, list[_Logged]] = {}
    drawn: dict[tuple[_Key, str], Any] = {}
    for one in listed:
        key, last = one.key, one.line
        if key.split_fingerprint is None:
            fingerprint = last["split_fingerprint"]
            # one draw with two splits: the source is another set, or has grown between the two
            while drawn.setdefault((key, last["protocol"]), fingerprint) != fingerprint:
                key = replace(key, other_set=key.other_set + 1)
        found.setdefault(key, []).append(one)
    return [_summary(key, of_key) for key, of_key in found.items()]


def _logs(path: Path, split: str, asked: Callable[[Mapping[str, Any]], bool]) -> list[_Logged]:
    """The evaluations that count, of a run's folder its last one, or those of a file of `save`."""
    if path.is_file():
        whole, problem = _lines(path)
        if any("configuration" not in line for line in whole):
            raise DataError(f"{path}: not a file of `limner summarise --save`; give the run's folder")
        return [_Logged(f"{path}/{line['run']}", line, problem, path) for line in whole if asked(line)]
    whole, problem = _lines(path / FILE)
    lines = [line for line in whole if asked(line)]
    if not lines:
        return []
    description = read_description(path / str(lines[-1]["checkpoint"]))
    recipe = {name: value for name, value in description["recipe"].items() if name != "seed"}
    # imported models and files of others name no data
    source = str((description.get("data") or {}).get("source", "")).partition("#")[0]
    line = {
        **lines[-1],
        # a name and digests: a file that is passed on tells nobody's folders
        "run": path.resolve().name,
        "configuration": digest_of_values(recipe),
        "drawn_from": digest_of_values({"source": source}) if _draw_of(lines[-1])[1] else "",
        # by the split's content: another set's test split is no look at this one, and explanations of this one are
        "looks": sum(line.get("split_fingerprint") == lines[-1].get("split_fingerprint") for line in whole),
    }
    return [_Logged(str(path), line, problem)]


def _expect_different(listed: Sequence[_Logged]) -> None:
    """Raise `DataError` for an evaluation that is there twice, as of a run and of a file that keeps it."""
    known: dict[str, str] = {}
    for one in listed:
        # the run may have been evaluated once more since the file was written, with the same figures, and since lines
        # have intervals and the arithmetic, or more is known of its towers
        new = ("looks", "date", "versions", "intervals", "precision", "seen_before")
        same = digest_of_values({**one.line, **dict.fromkeys(new)})
        if same in known:
            raise DataError(f"{one.run}: the same evaluation as that of {known[same]}; leave one of them out")
        known[same] = one.run


def _stage(line: Mapping[str, Any]) -> str:
    """The stage whose checkpoint was evaluated: the file has its name."""
    return str(line["checkpoint"]).removesuffix(".safetensors")


def _draw_of(line: Mapping[str, Any]) -> tuple[str, bool]:
    """The protocol of a line without the number of a random draw, and True if it has one."""
    rules, mark, draw = str(line["protocol"]).partition(", drawn splits, ")
    draw, numbers = re.subn(r"\b(seed|fold|draw)=\d+", r"\1=…", draw)
    return f"{rules}{mark}{draw}", bool(numbers)


def _summary(key: _Key, listed: Sequence[_Logged]) -> Summary:
    lines = [one.line for one in listed]
    values = {
        direction: {
            name: _spread([line[direction][name] for line in lines])
            for name in lines[0][direction]
            if all(name in line[direction] for line in lines)
        }
        for direction in ("image_to_text", "text_to_image")
    }
    looks = [one.line["looks"] for one in listed]
    return Summary(
        recipe=str(lines[0]["recipe"]),
        stage=key.stage,
        reranked=key.reranked,
        precision=key.precision,
        protocol=key.protocol,
        split_fingerprint=key.split_fingerprint,
        runs=tuple(one.run for one in listed),
        seeds=tuple(line["seed"] for line in lines),
        splits=len({line["split_fingerprint"] for line in lines}),
        looks=None if None in looks else sum(count for count in looks if count is not None),
        values=values,
        problems=tuple(dict.fromkeys(one.problem for one in listed if one.problem)),
        files=tuple(dict.fromkeys(one.file.stem for one in listed if one.file is not None)),
        intervals={direction: _mean_intervals(direction, lines) for direction in values},
    )


def logged(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log, the oldest first; those that were cut off are left out. Raises `DataError`."""
    return _lines(folder / FILE)[0]


def _spread(values: Iterable[float]) -> tuple[float, float | None]:
    listed = list(values)
    return mean(listed), stdev(listed) if len(listed) > 1 else None


def _mean_intervals(direction: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """By measure, an interval of the mean of several runs' figures over queries.

    A mean deviates by no more than the mean of its parts' deviations, however they depend on one another, so it is not
    too narrow; seeds that miss the same queries, as they mostly do, deviate by nearly that. It says nothing of other
    seeds: the deviation over runs does.
    """
    # lines of 0.1.0 have none
    named = [(line.get("intervals") or {}).get(direction, {}) for line in lines]
    return {
        name: (mean(of[name][0] for of in named), mean(of[name][1] for of in named))
        for name in named[0]
        if all(name in of for of in named)
    }


def _lines(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The lines of a log without those that were cut off, and which these are; "" for none. Raises `DataError`."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], ""
    found, cut = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            value = from_json(line)
        except ValueError:
            # half a line has neither its digest, which stands last, nor its end
            if f'"{KEY}"' not in line and not line.endswith('"}'):
                # nothing stands behind the end of the last line
                cut += [number] if line.strip() else []
                continue
            value = {}
        try:
            found.append(opened(value))
        except ValueError:
            raise DataError(f"{path}: line {number} is damaged; remove it and evaluate again") from None
    # said, since nobody can tell half a line of a killed process from an evaluation that was lost
    if not cut:
        return found, ""
    numbers = ", ".join(map(str, cut))
    return (
        found,
        f"{path}: line {numbers} was cut off, as by a process that was killed, and is not counted; remove it",
    )

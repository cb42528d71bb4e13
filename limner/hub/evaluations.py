"""The evaluations of a published run: from its log and from reports, for its card and for the hub's own formats.

The hub has two. `model-index` in the card's header takes any dataset. `.eval_results/*.yaml` (huggingface.co/docs/hub/
eval-results) takes a dataset of the hub that is a registered benchmark, and an id of a task in it: limner knows none
for its sets, so whoever pushes names one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from limner.durable import read_json
from limner.errors import DataError, SettingsError
from limner.inference.evaluations import logged

DIRECTIONS = {"image_to_text": "image→text", "text_to_image": "text→image"}

_BENCHMARK = re.compile(r"(?:(?P<protocol>[^=]+)=)?(?P<id>[\w-][\w.-]*/[\w-][\w.-]*)(?::(?P<task>[\w.-]+))?")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the published checkpoint.

    - `precision`: arithmetic of the network; None if not known.
    - `values`: by direction and measure; `intervals`: 95 % intervals of these, where a report has them.
    - `looks`: how often the run has measured this split in all, whichever checkpoint and protocol; None if not known.
    - `seen_before`: what the towers of the model had learnt of the set, a line each (`limner.inference.seen_before`).
    """

    split: str
    protocol: str
    date: str | None
    reranked: int | str | None
    precision: str | None
    split_fingerprint: str | None
    values: Mapping[str, Mapping[str, float]]
    looks: int | None
    intervals: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    seen_before: Sequence[str] = ()

    @property
    def dataset(self) -> str:
        """The first part of the protocol's name, which is that of a dataset's format for most."""
        return self.protocol.partition(",")[0]


def evaluations_of(
    run: Path, checkpoint: str, fingerprint: str, reports: Sequence[Path] = ()
) -> list[Evaluation]:
    """The last evaluation of each split, protocol, number of re-ranked hits and arithmetic, of this model alone.

    `reports` are files of `limner evaluate --report`, which have intervals. Raises `DataError` for a damaged log, and
    for a report of another model.
    """
    lines = logged(run)
    found: dict[tuple[Any, ...], Evaluation] = {}
    for line in lines:
        if line.get("checkpoint") != checkpoint or line.get("model_fingerprint") != fingerprint:
            continue
        # composed queries and looks that measured nothing have lines as well
        if not all(isinstance(line.get(direction), dict) for direction in DIRECTIONS):
            continue
        of_split = line.get("split_fingerprint")
        one = Evaluation(
            str(line["split"]),
            str(line["protocol"]),
            line.get("date"),
            line.get("reranked"),
            line.get("precision"),
            of_split,
            {direction: line[direction] for direction in DIRECTIONS},
            sum(other.get("split_fingerprint") == of_split for other in lines),
            seen_before=tuple(line.get("seen_before") or ()),
        )
        found[_key(one)] = one
    for path in reports:
        one = _reported(path, fingerprint)
        before = found.get(_key(one))
        if before is not None:
            if {name: dict(before.values[name]) for name in DIRECTIONS} != one.values:
                raise DataError(
                    f"{path}: the run was evaluated again since, with other figures; give the report of the last time"
                )
            one = replace(before, intervals=one.intervals)
        found[_key(one)] = one
    return list(found.values())


def model_index(
    name: str, evaluations: Sequence[Evaluation], generated: bool = False
) -> list[dict[str, Any]]:
    """The evaluations as `model-index` of a card's header; [] without any.

    With `generated` the sets are of generated people, whatever set's protocol measured them.
    """
    results = [
        {
            "task": {"type": "image-text-retrieval", "name": "Image-text retrieval"},
            "dataset": {
                "name": f"generated people, {one.protocol}" if generated else one.protocol,
                "type": "generated-people" if generated else one.dataset,
                "split": one.split,
                "args": {"split_fingerprint": one.split_fingerprint, "precision": one.precision},
            },
            "metrics": [
                {
                    "type": f"{direction}_{_metric(measure)}",
                    "name": f"{shown} {measure}",
                    "value": round(value, 4),
                }
                for direction, shown in DIRECTIONS.items()
                for measure, value in one.values[direction].items()
            ],
        }
        for one in evaluations
    ]
    return [{"name": name, "results": results}] if results else []


def eval_results(
    evaluations: Sequence[Evaluation], benchmarks: Sequence[str], page: str | None
) -> dict[str, list[dict[str, Any]]]:
    """The content of `.eval_results/*.yaml` by file name: R@1 of each direction on test splits.

    `benchmarks` are ORG/NAME or ORG/NAME:TASK of the hub, with PROTOCOL= before it where the run was measured on
    several sets; `page` is the address of the model's own page. Raises `SettingsError`.
    """
    files: dict[str, list[dict[str, Any]]] = {}
    for text in benchmarks:
        asked = _BENCHMARK.fullmatch(text)
        if asked is None:
            raise SettingsError(
                f"--benchmark {text[:80]!r}: expected ORG/NAME or ORG/NAME:TASK of a dataset on the hub, if need be "
                "with PROTOCOL= before it"
            )
        measured = [
            one
            for one in evaluations
            if one.split == "test" and one.protocol.startswith(asked["protocol"] or "")
        ]
        if not measured:
            raise SettingsError(
                f"--benchmark {text}: no evaluation of this checkpoint on a test split is known; run `limner evaluate` "
                "first, or give --report FILE"
            )
        if len({one.split_fingerprint for one in measured}) > 1:
            names = ", ".join(sorted({one.protocol for one in measured}))
            raise SettingsError(
                f"--benchmark {text}: the run was measured on several test splits ({names}); write PROTOCOL={text}"
            )
        for direction, shown in DIRECTIONS.items():
            entries = [_entry(one, asked, direction, shown, page) for one in measured]
            name = f"{asked['id'].replace('/', '--')}--{direction.replace('_', '-')}.yaml"
            files.setdefault(name, []).extend(entry for entry in entries if entry is not None)
    return {name: entries for name, entries in files.items() if entries}


def _entry(
    one: Evaluation, asked: re.Match[str], direction: str, shown: str, page: str | None
) -> dict[str, Any] | None:
    # one value an entry: the measure that papers give first
    measure = "R@1" if "R@1" in one.values[direction] else next(iter(one.values[direction]), None)
    if measure is None:
        return None
    notes = [
        f"{measure} {shown}",
        f"protocol {one.protocol}",
        f"split {one.split} ({str(one.split_fingerprint)[:16]})",
    ]
    if one.reranked:
        notes.append(f"the first {one.reranked} re-ranked")
    if one.precision:
        notes.append(f"computed in {one.precision}")
    if (ends := one.intervals.get(direction, {}).get(measure)) is not None:
        notes.append(f"95 % interval {ends[0]:.1f} to {ends[1]:.1f}")
    notes += [f"seen before by {line}" for line in one.seen_before]
    entry: dict[str, Any] = {
        "dataset": {"id": asked["id"], "task_id": asked["task"] or direction},
        "value": round(one.values[direction][measure], 4),
    }
    if one.date is not None:
        entry["date"] = one.date
    if page is not None:
        entry["source"] = {"url": page, "name": "limner evaluate"}
    return {**entry, "notes": "; ".join(notes)}


def _reported(path: Path, fingerprint: str) -> Evaluation:
    try:
        report = read_json(path)
        provenance = report["provenance"]
        one = Evaluation(
            str(report["split"]),
            str(report["protocol"]),
            None,
            provenance.get("reranked"),
            provenance.get("precision"),
            provenance.get("split_fingerprint"),
            {name: dict(report[name]) for name in DIRECTIONS},
            provenance.get("evaluations_of_split"),
            {name: dict(report.get("intervals", {}).get(name, {})) for name in DIRECTIONS},
            tuple(provenance.get("seen_before") or ()),
        )
        of_model = provenance.get("model_fingerprint")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a report of `limner evaluate --report` ({error})") from None
    if of_model != fingerprint:
        raise DataError(
            f"{path}: a report of another model, {str(of_model)[:12]}, this is {fingerprint[:12]}; evaluate this "
            "checkpoint"
        )
    return one


def _key(one: Evaluation) -> tuple[Any, ...]:
    return one.split, one.protocol, one.reranked, one.precision, one.split_fingerprint


def _metric(measure: str) -> str:
    """R@1 is recall_at_1, mAP is map."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"^R@", "recall_at_", measure).lower()).strip("_")

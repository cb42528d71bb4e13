"""The dataset doctor's report: facts, and each problem once with a count and an example."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from limner.data.records import GroupKind
from limner.data.terms import UNSTATED, TermsOfUse

Severity = Literal["error", "warning"]

_NAMED = 3
"""Counts that differ from the published ones, and are named in the text."""

# The doctor sorts its problems by this order, so a new kind goes where a reader looks for it.
KINDS = {
    "missing-picture": "pictures that are not there",
    "unreadable-picture": "pictures that cannot be read",
    "listed-twice": "pictures that are listed more than once",
    "duplicate-across-splits": "pictures with the same bytes as one of another split",
    "duplicate-picture": "pictures with the same bytes as another of their split",
    "identity-across-splits": "identities in more than one split",
    "no-split": "pictures without a split",
    "split-missing": "splits without a picture",
    "empty-caption": "captions without a word",
    "unspaced-caption": "captions without blanks between words, which need a sub-word tokenizer",
    "split-without-caption": "splits without a caption",
    "group-without-caption": "training groups without a caption",
    "no-caption": "pictures without a caption",
    "shared-caption": "captions that stand in more than one group",
    "unlisted-picture": "pictures in the folder that are not listed",
}
"""Every kind of problem with its text, in the order of a report."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem: how often, and one example.

    - `kind`: a key of `KINDS`.
    - `severity`: "error" spoils training or its scores, "warning" is worth a look.
    - `count`: how many things of the kind's description.
    - `example`: one of them, in one line.
    """

    kind: str
    severity: Severity
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """The size of one split, and the shares (0 … 1) of its words that the training sentences have too.

    `known_tokens` counts a word as often as it occurs, `known_types` once. Both are None for the training
    split itself and where there are no words to compare. `languages` counts sentences by language, "none" for those
    without; it is empty if no sentence of the set has one.
    """

    pictures: int
    sentences: int
    groups: int
    known_tokens: float | None = None
    known_types: float | None = None
    languages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """The size of a dataset.

    - `splits`: by name; pictures without a split stand under "none".
    - `vocabulary`: different words in the training sentences.
    - `median_length`, `long_length`: words of a sentence, its median and 98th percentile; None without any
      sentence. The second is what a model's fixed text length should hold (dual-path TOMM 2020, section 3.1).
    - `opened`: whether the pictures were opened; if not, none can be found unreadable or a duplicate.
    - `edition`: the published form that the counts come nearest to, None for the user's own pictures; `deviations`: the
      counts that are not its own. A part of a set, or its form with other pictures, is no fault.
    - `languages`: sentences by language, as those of `SplitFacts`.
    - `drawn`: how limner drew the splits, "" where the source has its own.
    """

    group_kind: GroupKind
    pictures: int
    sentences: int
    groups: int
    splits: Mapping[str, SplitFacts]
    vocabulary: int
    median_length: float | None
    long_length: int | None
    opened: bool
    edition: str | None = None
    deviations: tuple[str, ...] = ()
    languages: Mapping[str, int] = field(default_factory=dict)
    drawn: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The doctor's findings on one dataset, `source` as the user typed it, and its terms."""

    source: str
    facts: Facts
    problems: tuple[Problem, ...]
    terms: TermsOfUse = UNSTATED

    @property
    def sound(self) -> bool:
        """True unless a problem is an error."""
        return all(problem.severity != "error" for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "source": self.source,
            "sound": self.sound,
            "terms": self.terms.model_dump(mode="json"),
            "facts": asdict(self.facts),
            "problems": [asdict(problem) for problem in self.problems],
        }


def render(report: Report) -> str:
    """The report as plain text of some twenty lines."""
    facts = report.facts
    groups = "images" if facts.group_kind == "image" else "identities"
    lines = [
        f"{report.source}: {facts.pictures:,} pictures, {facts.sentences:,} sentences, "
        f"{facts.groups:,} groups ({groups})",
        "",
        f"{'split':<8}{'pictures':>10}{'sentences':>11}{'groups':>9}  words known from train",
    ]
    for name, split in facts.splits.items():
        row = f"{name:<8}{split.pictures:>10,}{split.sentences:>11,}{split.groups:>9,}"
        # Both or none: a split without words has neither.
        if split.known_tokens is not None and split.known_types is not None:
            row += f"  {split.known_tokens:.1%} of all, {split.known_types:.1%} of the different ones"
        lines.append(row)
    lines.append("")
    if facts.median_length is not None:
        lines.append(
            f"Sentences have {facts.median_length:g} words (median), 98% at most {facts.long_length}; "
            f"the training sentences hold {facts.vocabulary:,} different words."
        )
    if facts.languages:
        lines.append(f"Sentences by language: {_counted(facts.languages)}.")
        lines += [f"  {name}: {_counted(split.languages)}" for name, split in facts.splits.items()]
    if facts.drawn:
        lines.append(f"The source has no such splits; limner drew them: {facts.drawn}.")
    if facts.edition is not None:
        lines.append(_edition_line(facts.edition, facts.deviations))
    lines.append(f"Terms of {report.terms.line()} (docs/terms.md).")
    if not facts.opened:
        lines.append("The pictures were not opened: unreadable and duplicate ones are not known.")
    # One width over both severities, so that the counts stand in one column.
    width = max((len(f"{problem.count:,}") for problem in report.problems), default=0)
    for severity in ("error", "warning"):
        # Errors first: training refuses them, and a warning may be what the data are.
        chosen = [problem for problem in report.problems if problem.severity == severity]
        if chosen:
            lines += ["", f"{severity.capitalize()}s"]
        lines += [
            f"  {problem.count:>{width},} {KINDS[problem.kind]}, e.g. {problem.example}" for problem in chosen
        ]
    if not report.problems:
        lines += ["", "No problem found."]
    return "\n".join(lines)


def _counted(languages: Mapping[str, int]) -> str:
    return ", ".join(f"{language} {count:,}" for language, count in languages.items()) or "none"


def _edition_line(edition: str, deviations: Sequence[str]) -> str:
    if not deviations:
        return f"The counts are those of {edition} as published."
    more = f"; {len(deviations) - _NAMED} more" if len(deviations) > _NAMED else ""
    return f"The counts are not those of {edition}: {'; '.join(deviations[:_NAMED])}{more}."

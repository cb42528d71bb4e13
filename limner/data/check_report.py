"""The dataset doctor's report: facts, and each problem once with a count and an example."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from limner.counted import counted
from limner.data.records import GroupKind
from limner.data.terms import UNSTATED, TermsOfUse
from limner.documented import Result
from limner.one_line import one_line

Severity = Literal["error", "warning"]

_NAMED = 3
"""Counts that differ from the published ones, and are named in the text."""

# The doctor sorts its problems by this order, so a new kind goes where a reader looks for it.
KINDS = {
    "missing-picture": "pictures that are not there",
    "unreadable-picture": "pictures that cannot be read",
    "listed-twice": "pictures that are listed more than once",
    "duplicate-across-splits": "pictures with the same bytes as one of another split",
    "near-duplicate-across-splits": "pictures that are nearly the same as one of another split",
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


class Problem(Result):
    """One kind of problem with a dataset."""

    kind: str
    """A kind of docs/data-formats.md."""
    severity: Severity
    """An error spoils training or its scores; a warning is worth a look."""
    count: int
    """How many there are."""
    example: str
    """One of them, in one line."""


class SplitFacts(Result):
    """The size of one split."""

    pictures: int
    """Pictures."""
    sentences: int
    """Sentences."""
    groups: int
    """Images or identities."""
    known_tokens: float | None = None
    """Share of its words, each as often as it occurs, that the training sentences have too; null for the training split
    and where there are no words to compare."""
    known_types: float | None = None
    """The same with each word counted once."""
    languages: dict[str, int] = Field(default={})
    """Sentences by language, "none" for those without; empty if no sentence of the set has one."""


class Facts(Result):
    """The size of a dataset."""

    group_kind: GroupKind
    """The kind of its groups."""
    pictures: int
    """Pictures."""
    sentences: int
    """Sentences."""
    groups: int
    """Images or identities."""
    splits: dict[str, SplitFacts]
    """By name; pictures without a split stand under "none"."""
    vocabulary: int
    """Different words in the training sentences."""
    median_length: float | None
    """Words of a sentence, the median; null without any sentence."""
    long_length: int | None
    """The 98th percentile, which a model's fixed text length should hold (dual-path TOMM 2020, section 3.1)."""
    opened: bool
    """True if the pictures were opened; else none can be found unreadable or a duplicate."""
    edition: str | None = None
    """The published form that the counts come nearest to; null for the user's own pictures."""
    deviations: tuple[str, ...] = ()
    """Counts that are not the edition's. A part of a set, or its form with other pictures, is no fault."""
    languages: dict[str, int] = Field(default={})
    """Sentences by language, as those of a split."""
    drawn: str = ""
    """How limner drew the splits; "" where the source has its own."""


class Report(Result):
    """The doctor's findings on one dataset."""

    source: str
    """The dataset as it was given."""
    sound: bool
    """True if no problem is an error; else the exit code is 1."""
    terms: TermsOfUse = UNSTATED
    """The terms under which it may be used, as far as they are known."""
    facts: Facts
    """Counts, splits, vocabulary, lengths of sentences and the published edition."""
    problems: tuple[Problem, ...]
    """Every kind of trouble once."""


def render(report: Report) -> str:
    """The report as plain text of some twenty lines."""
    facts = report.facts
    groups = "images" if facts.group_kind == "image" else "identities"
    lines = [
        f"{report.source}: {counted(facts.pictures, 'pictures')}, {counted(facts.sentences, 'sentences')}, "
        f"{counted(facts.groups, 'groups')} ({groups})",
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
    return "\n".join(map(one_line, lines))


def _counted(languages: Mapping[str, int]) -> str:
    return ", ".join(f"{language} {count:,}" for language, count in languages.items()) or "none"


def _edition_line(edition: str, deviations: Sequence[str]) -> str:
    if not deviations:
        return f"The counts are those of {edition} as published."
    more = f"; {len(deviations) - _NAMED} more" if len(deviations) > _NAMED else ""
    return f"The counts are not those of {edition}: {'; '.join(deviations[:_NAMED])}{more}."

"""The doctor's look at the sentences: how many, how long, with which words, and which say nothing."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from limner.data.check_report import Facts, Problem, Severity, SplitFacts
from limner.data.published import nearest_edition
from limner.data.records import SPLITS, TRAINING_SPLITS, Dataset, Record
from limner.data.words import words

_LONG = 0.98


def caption_facts(dataset: Dataset, *, opened: bool) -> Facts:
    """Count pictures, sentences, groups and words of the dataset and of each split."""
    by_split: dict[str, list[Record]] = {}
    for record in dataset.records:
        by_split.setdefault(record.split or "none", []).append(record)
    order = [name for name in (*SPLITS, "none") if name in by_split]
    counts = {name: _word_counts(by_split[name]) for name in order}
    train = counts.get("train", Counter())
    edition, deviations = nearest_edition(dataset) or (None, ())
    lengths = sorted(len(words(text)) for record in dataset.records for text in record.sentences)
    return Facts(
        group_kind=dataset.group_kind,
        pictures=len(dataset.records),
        sentences=len(lengths),
        groups=_groups(dataset.records),
        splits={name: _split_facts(name, by_split[name], counts[name], train) for name in order},
        vocabulary=len(train),
        median_length=float(median(lengths)) if lengths else None,
        long_length=lengths[math.ceil(_LONG * len(lengths)) - 1] if lengths else None,
        opened=opened,
        edition=edition.name if edition else None,
        deviations=deviations,
    )


def caption_problems(dataset: Dataset) -> Iterator[Problem]:
    """Sentences without a word, what has no sentence at all, and sentences that cannot tell groups apart."""
    empty = [
        f"{record.image.name}, sentence {number} of {len(record.sentences)}: {text[:40]!r}"
        for record in dataset.records
        for number, text in enumerate(record.sentences, start=1)
        if not words(text)
    ]
    if empty:
        yield Problem("empty-caption", "error", len(empty), empty[0])
    yield from _without_sentence(dataset.records)
    groups: dict[str, set[str]] = {}
    for record in dataset.records:
        for text in record.sentences:
            groups.setdefault(text.strip(), set()).add(record.group)
    shared = {text: names for text, names in groups.items() if len(names) > 1 and words(text)}
    if shared:
        text, names = max(shared.items(), key=lambda item: len(item[1]))
        line = " ".join(text.split())
        example = f'"{line if len(line) <= 60 else line[:59] + "…"}" ({len(names)} groups)'
        yield Problem("shared-caption", "warning", len(shared), example)


def _without_sentence(records: Sequence[Record]) -> Iterator[Problem]:
    """Splits, training groups and pictures without a sentence; a picture of such a split or group is named with it.

    Errors are what `limner.training` refuses.
    """
    silent = _silent((record.split or "none", record) for record in records)
    splits = [name for name in SPLITS if name in silent]
    if splits:
        severity: Severity = "error" if splits[0] in TRAINING_SPLITS else "warning"
        yield Problem("split-without-caption", severity, len(splits), splits[0])
    others = [record for record in records if record.split not in splits]
    groups = _silent((record.group, record) for record in others if record.split == "train")
    if groups:
        yield Problem("group-without-caption", "error", len(groups), groups[0])
    known = {("train", group) for group in groups}
    bare = [
        record.image.name
        for record in others
        if not record.sentences and (record.split, record.group) not in known
    ]
    if bare:
        yield Problem("no-caption", "warning", len(bare), bare[0])


def _silent(records: Iterable[tuple[str, Record]]) -> list[str]:
    """The names none of whose records has a sentence, in order of first appearance."""
    has_sentence: dict[str, bool] = {}
    for name, record in records:
        has_sentence[name] = has_sentence.get(name, False) or bool(record.sentences)
    return [name for name, has_one in has_sentence.items() if not has_one]


def _split_facts(
    name: str, records: Sequence[Record], counts: Counter[str], train: Counter[str]
) -> SplitFacts:
    tokens = types = None
    if name != "train" and train and counts:
        tokens = sum(count for word, count in counts.items() if word in train) / counts.total()
        types = sum(word in train for word in counts) / len(counts)
    sentences = sum(len(record.sentences) for record in records)
    return SplitFacts(len(records), sentences, _groups(records), tokens, types)


def _word_counts(records: Iterable[Record]) -> Counter[str]:
    return Counter(word for record in records for text in record.sentences for word in words(text))


def _groups(records: Iterable[Record]) -> int:
    return len({record.group for record in records})

"""The dataset doctor: finds, before training, everything that would later look like a poor model.

report = check_dataset(open_dataset("flickr8k:data/flickr8k"))
print(render(report))
"""

import hashlib
import math
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from jaxtyping import UInt8

from limner.data.alike import SMALL, VALUES, same_pictures, small_copy
from limner.data.check_report import KINDS, Facts, Problem, Report, Severity, SplitFacts, render
from limner.data.images import is_picture_name, open_rgb
from limner.data.published import nearest_edition
from limner.data.records import SPLITS, TRAINING_SPLITS, Dataset, Record, sentence_languages
from limner.data.splits import split_source
from limner.data.words import is_unspaced, words
from limner.errors import ImageError

# The paper chose its 32 words as what about 98% of the sentences fit into (TOMM 2020, section 3.2).
_LONG = 0.98


def caption_facts(dataset: Dataset, *, opened: bool) -> Facts:
    """Count pictures, sentences, groups and words of the dataset and of each split."""
    by_split: dict[str, list[Record]] = {}
    for record in dataset.records:
        by_split.setdefault(record.split or "none", []).append(record)
    order = [name for name in (*SPLITS, "none") if name in by_split]
    counts = {name: _word_counts(by_split[name]) for name in order}
    train = counts.get("train", Counter())
    languages = _languages(dataset.records) if sentence_languages(dataset) else {}
    edition, deviations = nearest_edition(dataset) or (None, ())
    lengths = sorted(len(words(text)) for record in dataset.records for text in record.sentences)
    return Facts(
        group_kind=dataset.group_kind,
        pictures=len(dataset.records),
        sentences=len(lengths),
        groups=_groups(dataset.records),
        splits={
            name: _split_facts(name, by_split[name], counts[name], train).replace(
                languages=_languages(by_split[name]) if languages else {},
            )
            for name in order
        },
        vocabulary=len(train),
        median_length=float(median(lengths)) if lengths else None,
        # The nearest rank, a length that occurs; `np.quantile` would interpolate between two.
        long_length=lengths[math.ceil(_LONG * len(lengths)) - 1] if lengths else None,
        opened=opened,
        edition=edition.name if edition else None,
        deviations=deviations,
        languages=languages,
        drawn=dataset.how_drawn,
    )


def caption_problems(dataset: Dataset) -> Iterator[Problem]:
    """Sentences without a word or blanks between words, groups without a sentence, and sentences that groups share."""
    empty = [
        f"{record.image.name}, sentence {number} of {len(record.sentences)}: {text[:40]!r}"
        for record in dataset.records
        for number, text in enumerate(record.sentences, start=1)
        if not words(text)
    ]
    if empty:
        yield Problem(kind="empty-caption", severity="error", count=len(empty), example=empty[0])
    unspaced = [
        (record, text) for record in dataset.records for text in record.sentences if is_unspaced(text)
    ]
    if unspaced:
        # No error: a model with a sub-word tokenizer reads them.
        record, text = unspaced[0]
        yield Problem(
            kind="unspaced-caption",
            severity="warning",
            count=len(unspaced),
            example=f"{record.image.name}: {text[:40]!r}",
        )
    yield from _without_sentence(dataset.records)
    groups: dict[str, set[str]] = {}
    for record in dataset.records:
        for text in record.sentences:
            groups.setdefault(text.strip(), set()).add(record.group)
    # Sentences without a word are counted as empty above, and would all be shared.
    shared = {text: names for text, names in groups.items() if len(names) > 1 and words(text)}
    if shared:
        # The worst case, because a sentence of only two groups may be chance.
        text, names = max(shared.items(), key=lambda item: len(item[1]))
        line = " ".join(text.split())
        example = f'"{line if len(line) <= 60 else line[:59] + "…"}" ({len(names)} groups)'
        yield Problem(kind="shared-caption", severity="warning", count=len(shared), example=example)


def _without_sentence(records: Sequence[Record]) -> Iterator[Problem]:
    """Splits, training groups and pictures without a sentence; a picture of such a split or group is named with it.

    Errors are what `limner.training` refuses.
    """
    silent = _silent((record.split or "none", record) for record in records)
    splits = [name for name in SPLITS if name in silent]
    if splits:
        # `SPLITS` begins with train and val, so its first silent one decides for all.
        severity: Severity = "error" if splits[0] in TRAINING_SPLITS else "warning"
        yield Problem(kind="split-without-caption", severity=severity, count=len(splits), example=splits[0])
    # Each picture is named once, by the largest thing that is silent: split, then group, then picture.
    others = [record for record in records if record.split not in splits]
    groups = _silent((record.group, record) for record in others if record.split == "train")
    if groups:
        yield Problem(kind="group-without-caption", severity="error", count=len(groups), example=groups[0])
    known = {("train", group) for group in groups}
    bare = [
        record.image.name
        for record in others
        if not record.sentences and (record.split, record.group) not in known
    ]
    if bare:
        yield Problem(kind="no-caption", severity="warning", count=len(bare), example=bare[0])


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
    # A share of no words would be 0 / 0; None is left out of the report.
    if name != "train" and train and counts:
        tokens = sum(count for word, count in counts.items() if word in train) / counts.total()
        types = sum(word in train for word in counts) / len(counts)
    sentences = sum(len(record.sentences) for record in records)
    return SplitFacts(
        pictures=len(records),
        sentences=sentences,
        groups=_groups(records),
        known_tokens=tokens,
        known_types=types,
    )


def _languages(records: Iterable[Record]) -> dict[str, int]:
    """Sentences by language, most of them first."""
    found = Counter(
        language or "none"
        for record in records
        for language in record.languages or (None,) * len(record.sentences)
    )
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _word_counts(records: Iterable[Record]) -> Counter[str]:
    return Counter(word for record in records for text in record.sentences for word in words(text))


def _groups(records: Iterable[Record]) -> int:
    return len({record.group for record in records})


Progress = Callable[[int, int], None]
"""Called with (pictures done, pictures in all)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one image file; `digest` of its bytes and its small copy if it was opened."""

    state: Literal["sound", "missing", "unreadable"]
    digest: bytes = b""
    reason: str = ""
    small: UInt8[np.ndarray, " values"] | None = field(default=None, compare=False)


def inspect_pictures(
    paths: Sequence[Path], *, workers: int, progress: Progress | None, open_images: bool
) -> list[Finding]:
    """Look at each file, on `workers` threads (0: on this one): decoding and hashing leave Python free.

    Pictures are decoded to their end, JPEGs at an eighth of their size, since only there a file that was cut
    off shows it. Without `open_images` only their presence is tested.
    """

    def look(path: Path) -> Finding:
        return _inspect(path, open_images)

    findings: list[Finding] = []
    # The pool refuses 0 workers, and starts no thread before something is submitted.
    # `map` keeps the order of the paths, so the report does not depend on which thread was faster.
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for finding in pool.map(look, paths) if workers > 0 else map(look, paths):
            findings.append(finding)
            if progress is not None:
                progress(len(findings), len(paths))
    return findings


def _inspect(path: Path, open_images: bool) -> Finding:
    try:
        # Opening a named pipe would block for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            return Finding("unreadable", reason=f"{path}: not a file")
        if not open_images:
            return Finding("sound")
        with path.open("rb") as file:
            # The bytes, not the pixels: a copy that was saved again is another file and is not found.
            digest = hashlib.file_digest(file, "sha256").digest()
        small = small_copy(open_rgb(path, short_side=8 * SMALL))
    # Both are OSErrors, so they come before the clause for those.
    except (FileNotFoundError, NotADirectoryError):
        return Finding("missing")
    except ImageError as error:
        return Finding("unreadable", reason=str(error))
    # A path with a NUL is a ValueError.
    except (OSError, ValueError) as error:
        return Finding("unreadable", reason=f"{path}: {error}")
    return Finding("sound", digest=digest, small=small)


def file_problems(
    dataset: Dataset, *, workers: int, progress: Progress | None, open_images: bool
) -> Iterator[Problem]:
    """The problems of a dataset's picture files. A file that is listed twice is looked at once."""
    listed: dict[Path, list[Record]] = defaultdict(list)
    for record in dataset.records:
        listed[record.image].append(record)
    root = _root(list(listed))
    findings = dict(
        zip(
            listed,
            inspect_pictures(list(listed), workers=workers, progress=progress, open_images=open_images),
            strict=True,
        )
    )
    missing = [path for path in listed if findings[path].state == "missing"]
    if missing:
        yield Problem(
            kind="missing-picture", severity="error", count=len(missing), example=_short(missing[0], root)
        )
    broken = [finding for finding in findings.values() if finding.state == "unreadable"]
    if broken:
        yield Problem(
            kind="unreadable-picture",
            severity="error",
            count=len(broken),
            example=broken[0].reason.replace(f"{root}{os.sep}", ""),
        )
    repeated = [path for path, records in listed.items() if len(records) > 1]
    if repeated:
        times = len(listed[repeated[0]])
        example = f"{_short(repeated[0], root)} ({times} times)"
        yield Problem(kind="listed-twice", severity="error", count=len(repeated), example=example)
    yield from _duplicates(listed, findings, root)
    yield from _near_duplicates(listed, findings, root)
    unlisted = _unlisted(dataset, set(listed))
    if unlisted:
        yield Problem(
            kind="unlisted-picture",
            severity="warning",
            count=len(unlisted),
            example=_short(unlisted[0], root),
        )


def _duplicates(
    listed: dict[Path, list[Record]], findings: dict[Path, Finding], root: Path
) -> Iterator[Problem]:
    """Of k files with the same bytes, k − 1 are duplicates; across splits they are a leak, and only that."""
    same: dict[bytes, list[Path]] = defaultdict(list)
    for path, finding in findings.items():
        # Pictures that were not opened, or cannot be, have no digest and would all be one.
        if finding.digest:
            same[finding.digest].append(path)
    across, within = 0, 0
    leak, twin = "", ""
    for paths in same.values():
        first, rest = paths[0], paths[1:]
        if not rest:
            continue
        names = {path: f"{_short(path, root)} ({listed[path][0].split or 'no split'})" for path in paths}
        # One copy in another split makes a leak of all of them.
        elsewhere = next((path for path in rest if listed[path][0].split != listed[first][0].split), None)
        if elsewhere is not None:
            across += len(rest)
            leak = leak or f"{names[first]} = {names[elsewhere]}"
        else:
            within += len(rest)
            twin = twin or f"{names[first]} = {names[rest[0]]}"
    if across:
        yield Problem(kind="duplicate-across-splits", severity="error", count=across, example=leak)
    if within:
        yield Problem(kind="duplicate-picture", severity="warning", count=within, example=twin)


def _near_duplicates(
    listed: dict[Path, list[Record]], findings: dict[Path, Finding], root: Path
) -> Iterator[Problem]:
    """Pictures that are in another split, too, in another size, format or quality."""
    looks = {path: finding.small for path, finding in findings.items() if finding.small is not None}
    paths = list(looks)
    small = np.stack(list(looks.values())) if looks else np.empty((0, VALUES), np.uint8)
    pairs = [
        (paths[first], paths[second])
        for first, second in same_pictures(small)
        if listed[paths[first]][0].split != listed[paths[second]][0].split
        if findings[paths[first]].digest != findings[paths[second]].digest
    ]
    if pairs:
        first, second = (f"{_short(path, root)} ({listed[path][0].split or 'no split'})" for path in pairs[0])
        count = len({path for _, path in pairs})
        yield Problem(
            kind="near-duplicate-across-splits",
            severity="warning",
            count=count,
            example=f"{first} = {second}",
        )


def _unlisted(dataset: Dataset, listed: set[Path]) -> list[Path]:
    """Pictures beside the listed ones; for a captions file, also anywhere below it."""
    if dataset.source.startswith("mscoco-labels:"):
        return []  # its reader leaves out the pictures without a label, and most of the validation part
    folders = {path.parent for path in listed}
    name, _, rest = split_source(dataset.source)[0].partition(":")
    if name == "folder":
        base = Path(rest).expanduser()
        # `os.walk` follows no link, so a link to a parent folder does not send it round for ever.
        folders |= {Path(at) for at, _, _ in os.walk(base if base.is_dir() else base.parent)}
    # Not `resolve()`, which asks the file system about every picture.
    names = {os.path.normpath(path) for path in listed}
    return sorted(
        path for folder in folders for path in _pictures_in(folder) if os.path.normpath(path) not in names
    )


def _pictures_in(folder: Path) -> Iterator[Path]:
    try:
        # `scandir` mostly knows a file's type from the listing: no further call for each of 123,287 pictures.
        with os.scandir(folder) as entries:
            for entry in entries:
                # macOS leaves "._photo.jpg" beside each photo.
                hidden = entry.name.startswith(".")
                if not hidden and is_picture_name(entry.name) and entry.is_file():
                    yield folder / entry.name
    # A folder that is not there: its pictures are reported as missing already.
    except OSError:
        return


def _root(paths: Sequence[Path]) -> Path:
    """The deepest folder that all pictures are in, for names that fit a line."""
    # The parents', not the paths': of one picture alone its own name must remain.
    return Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


__all__ = ["KINDS", "Facts", "Problem", "Report", "SplitFacts", "check_dataset", "render"]


def check_dataset(
    dataset: Dataset, *, workers: int = 0, progress: Progress | None = None, open_images: bool = True
) -> Report:
    """Examine a whole dataset; problems are not raised but listed in the report.

    `workers` threads look at the pictures (0: the calling one), `progress` is called with (done, total)
    after each. Without `open_images` pictures are only looked for, which takes seconds, and neither
    unreadable nor duplicate ones are found.
    """
    problems = [
        *file_problems(dataset, workers=workers, progress=progress, open_images=open_images),
        *_split_problems(dataset),
        *caption_problems(dataset),
    ]
    order = list(KINDS)
    # A file name may hold a line break.
    problems = [problem.replace(example=" ".join(problem.example.split())) for problem in problems]
    # "error" comes before "warning" in the alphabet, too.
    problems.sort(key=lambda problem: (problem.severity, order.index(problem.kind)))
    return Report(
        source=dataset.source,
        sound=all(problem.severity != "error" for problem in problems),
        terms=dataset.terms,
        facts=caption_facts(dataset, opened=open_images),
        problems=tuple(problems),
    )


def _split_problems(dataset: Dataset) -> Iterator[Problem]:
    """Splits that are missing or share an identity.

    Where a group is one image, it lies in two splits only when its file is listed twice, which is named
    already.
    """
    splits = {record.split for record in dataset.records}
    without = [record.image.name for record in dataset.records if record.split is None]
    if without:
        # Nothing can be trained on without any split; beside others, such pictures are merely left out.
        severity: Severity = "error" if splits == {None} else "warning"
        yield Problem(kind="no-split", severity=severity, count=len(without), example=without[0])
    empty = [name for name in SPLITS if name not in splits]
    if empty and splits != {None}:
        yield Problem(
            kind="split-missing",
            severity="error" if empty[0] in TRAINING_SPLITS else "warning",
            count=len(empty),
            example=empty[0],
        )
    if dataset.group_kind == "identity":
        splits_of: dict[str, set[str]] = {}
        for record in dataset.records:
            if record.split is not None:
                splits_of.setdefault(record.group, set()).add(record.split)
        torn = {group: names for group, names in splits_of.items() if len(names) > 1}
        if torn:
            group, names = next(iter(torn.items()))
            example = f"{group} ({', '.join(name for name in SPLITS if name in names)})"
            yield Problem(kind="identity-across-splits", severity="error", count=len(torn), example=example)

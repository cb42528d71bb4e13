"""The dataset doctor: everything that later looks like a poor model, found before training.

report = check_dataset(open_dataset("flickr8k:data/flickr8k"))
print(render(report))
"""

from collections.abc import Iterator
from dataclasses import replace

from limner.data.check_captions import caption_facts, caption_problems
from limner.data.check_pictures import Progress, file_problems
from limner.data.check_report import KINDS, Facts, Problem, Report, Severity, SplitFacts, render
from limner.data.records import SPLITS, TRAINING_SPLITS, Dataset

__all__ = ["KINDS", "Facts", "Problem", "Report", "SplitFacts", "check_dataset", "render"]


def check_dataset(
    dataset: Dataset, *, workers: int = 0, progress: Progress | None = None, open_images: bool = True
) -> Report:
    """Examine a whole dataset; nothing is raised for what is wrong with it, all is in the report.

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
    problems = [replace(problem, example=" ".join(problem.example.split())) for problem in problems]
    problems.sort(key=lambda problem: (problem.severity, order.index(problem.kind)))
    return Report(dataset.source, caption_facts(dataset, opened=open_images), tuple(problems))


def _split_problems(dataset: Dataset) -> Iterator[Problem]:
    """Splits that are missing or share an identity.

    Where a group is one image, it lies in two splits only when its file is listed twice, which is named
    already.
    """
    there = {record.split for record in dataset.records}
    without = [record.image.name for record in dataset.records if record.split is None]
    if without:
        # Nothing can be trained on without any split; beside others, such pictures are merely left out.
        severity: Severity = "error" if there == {None} else "warning"
        yield Problem("no-split", severity, len(without), without[0])
    empty = [name for name in SPLITS if name not in there]
    if empty and there != {None}:
        yield Problem(
            "split-missing", "error" if empty[0] in TRAINING_SPLITS else "warning", len(empty), empty[0]
        )
    if dataset.group_kind == "identity":
        splits: dict[str, set[str]] = {}
        for record in dataset.records:
            if record.split is not None:
                splits.setdefault(record.group, set()).add(record.split)
        torn = {group: names for group, names in splits.items() if len(names) > 1}
        if torn:
            group, names = next(iter(torn.items()))
            example = f"{group} ({', '.join(name for name in SPLITS if name in names)})"
            yield Problem("identity-across-splits", "error", len(torn), example)

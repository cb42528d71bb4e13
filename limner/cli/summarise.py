"""`limner summarise`: mean and deviation over runs that differ in the seed or in the split that was drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.options import first

if TYPE_CHECKING:
    from rich.table import Table

    from limner.inference.evaluations import Summary

app = group("Summarise.")

_MEASURES = "R@1 R@5 R@10"
_UNKNOWN = "arithmetic unknown"
_DIRECTIONS = {"text_to_image": "text→image", "image_to_text": "image→text"}


@command(app, "summarise")
def summarise_command(
    runs: Annotated[list[Path], "Run folders that were evaluated, or files of --save.", "RUN…"],
    split: Annotated[str, "Split whose last evaluation counts."] = "test",
    stage: Annotated[str | None, "The last evaluation of this stage instead of any stage."] = None,
    rerank: Annotated[
        Any, "The last evaluation with so many hits re-ranked: 0 = none, or 'all'.", first
    ] = None,
    protocol: Annotated[
        str | None, "Protocol, e.g. flickr8k, where a run was evaluated under several."
    ] = None,
    measures: Annotated[str, "Measures of the table."] = _MEASURES,
    markdown: Annotated[bool, "Print the table as Markdown."] = False,
    save: Annotated[
        Path | None, "Keep the evaluations that count in this .jsonl file, which is read as the runs are."
    ] = None,
) -> "list[Summary]":
    """Mean and deviation of runs that differ in the seed or the split."""
    from limner.evaluation.names import parse_measures
    from limner.inference.evaluations import summarise

    names = [str(measure) for measure in parse_measures(measures)]
    found = summarise(runs, split, protocol, stage=stage, rerank=rerank, save=save)
    for problem in dict.fromkeys(problem for summary in found for problem in summary.problems):
        err.print(problem)
    arithmetics = sorted({_arithmetic(summary) for summary in found})
    if len(arithmetics) > 1:
        err.print(
            f"the arithmetic differs ({', '.join(arithmetics)}), which alone changes ranks; a row is of one, and "
            "rows compare where it is the same"
        )
    elif arithmetics == [_UNKNOWN]:
        err.print(
            "the evaluations do not say in which arithmetic they were computed; limner 0.1.0 took bf16 where the "
            "processor had it"
        )
    # how many were tried: the best of many configurations, or of many looks, is too good by chance
    looks = [summary.looks for summary in found]
    known = sum(count for count in looks if count is not None)
    remark = (
        f"{len(found)} configuration{'s' * (len(found) > 1)} in {sum(len(one.runs) for one in found)} runs; "
        + (f"split '{split}' was read {known} times with them; " if None not in looks else "")
        + f"computed in {arithmetics[0]}; " * (len(arithmetics) == 1 and arithmetics != [_UNKNOWN])
        + "mean ± standard deviation over runs"
        + ", and the 95 % interval over queries" * any(any(one.intervals.values()) for one in found)
    )
    if markdown:
        out.print_lines("\n".join(f"| {' | '.join(row)} |" for row in _wide(found, names)))
        out.print()
        out.print(f"{remark}.")
    else:
        out.print(_table(found, names, remark))
    return found


def _wide(found: "Sequence[Summary]", names: Sequence[str]) -> list[list[str]]:
    """A row for each configuration, with all measures of a direction in one cell; the first two are Markdown's head."""
    title = "/".join(names)
    head = [*_names(found), "runs", *(f"{arrow} {title}" for arrow in _DIRECTIONS.values())]
    rows = [
        [
            *_described(summary, found, f"`{summary.recipe}`"),
            *(" / ".join(_figure(summary, direction, name) for name in names) for direction in _DIRECTIONS),
        ]
        for summary in found
    ]
    return [head, ["---"] * len(head), *rows]


def _table(found: "Sequence[Summary]", names: Sequence[str], remark: str) -> "Table":
    """A row for each measure: a deviation beside every mean does not fit 80 characters in a row for all."""
    from rich.table import Table

    table = Table(caption=remark, caption_justify="left")
    for name in (*_names(found), "runs", "measure"):
        table.add_column(name, overflow="fold")
    for name in _DIRECTIONS.values():
        table.add_column(name, justify="right")
    for summary in found:
        described = _described(summary, found, summary.recipe)
        for name in names:
            table.add_row(*described, name, *(_figure(summary, direction, name) for direction in _DIRECTIONS))
            # once a configuration
            described = [""] * len(described)
        table.add_section()
    return table


def _names(found: "Sequence[Summary]") -> list[str]:
    # a file is of one test set, so its name says which, if there are several
    return ["set", "recipe"] if len({summary.files for summary in found}) > 1 else ["recipe"]


def _described(summary: "Summary", found: "Sequence[Summary]", recipe: str) -> list[str]:
    """The cells before the figures."""
    runs = f"{len(summary.runs)}" + (f" ({summary.splits} splits)" if summary.splits > 1 else "")
    file = [", ".join(summary.files)] if "set" in _names(found) else []
    return [*file, ", ".join([recipe, *_particulars(summary, found)]), runs]


def _particulars(summary: "Summary", found: "Sequence[Summary]") -> list[str]:
    """The stage and what was re-ranked, and the rules and the split where the rows differ in them."""
    said = [summary.stage]
    if summary.reranked:
        said.append("all re-ranked" if summary.reranked == "all" else f"first {summary.reranked} re-ranked")
    if len({one.precision for one in found}) > 1:
        said.append(_arithmetic(summary))
    # those of another file are of another set anyway
    alike = [one for one in found if one.files == summary.files]
    # how much was re-ranked is a part of a protocol's name, too
    if len({_rules(one) for one in alike}) > 1:
        said.append(f"by {_rules(summary)}")
    # null: repeated draws, or figures copied from a text
    if summary.split_fingerprint and len({one.split_fingerprint for one in alike} - {None}) > 1:
        said.append(f"split {summary.split_fingerprint[:6]}")
    return said


def _arithmetic(summary: "Summary") -> str:
    return summary.precision or _UNKNOWN


def _rules(summary: "Summary") -> str:
    return summary.protocol.partition(",")[0]


def _figure(summary: "Summary", direction: str, name: str) -> str:
    mean, deviation = summary.values[direction].get(name, (None, None))
    if mean is None:
        return "–"
    ends = summary.intervals.get(direction, {}).get(name)
    interval = f" ({ends[0]:.1f}–{ends[1]:.1f})" if ends else ""
    return (f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}") + interval

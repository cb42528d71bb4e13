"""`limner summarise`: mean and deviation over runs that differ in the seed or in the split that was drawn."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.schemas_of_measures import RunsSummaries, RunsSummary

if TYPE_CHECKING:
    from limner.inference.evaluations import Summary

app = group("Summarise.")

_MEASURES = "R@1 R@5 R@10"


@command(app, "summarise")
def summarise_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders that were evaluated.")],
    split: Annotated[str, typer.Option(help="Split whose last evaluation counts.")] = "test",
    protocol: Annotated[
        str | None, typer.Option(help="Protocol, e.g. flickr8k, where a run was evaluated under several.")
    ] = None,
    measures: Annotated[str, typer.Option(help="Measures of the table.")] = _MEASURES,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> RunsSummaries:
    """Mean and deviation of runs that differ in the seed or the split."""
    from rich.table import Table

    from limner.evaluation.names import parse_measures
    from limner.inference.evaluations import summarise

    names = [str(measure) for measure in parse_measures(measures)]
    found = summarise(runs, split, protocol)
    for problem in dict.fromkeys(problem for summary in found for problem in summary.problems):
        err.print(problem)
    head = ["recipe", "runs", f"text→image {'/'.join(names)}", f"image→text {'/'.join(names)}"]
    rows = [
        [
            summary.recipe,
            f"{len(summary.runs)}" + (f" ({summary.splits} splits)" if summary.splits > 1 else ""),
            *(_cell(summary, direction, names) for direction in ("text_to_image", "image_to_text")),
        ]
        for summary in found
    ]
    # how many were tried: the best of many configurations, or of many looks, is too good by chance
    remark = (
        f"{len(found)} configuration{'s' * (len(found) > 1)} in {len(runs)} runs; split '{split}' was evaluated "
        f"{sum(summary.looks for summary in found)} times with them; mean ± standard deviation over runs"
    )
    if markdown:
        lines = [head, ["---"] * len(head), *rows]
        out.print("\n".join(f"| {' | '.join(row)} |" for row in lines))
        out.print(f"\n{remark}.")
    else:
        table = Table(caption=remark, caption_justify="left")
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number > 1 else "left")
        for row in rows:
            table.add_row(*row)
        out.print(table)
    return RunsSummaries([RunsSummary.model_validate(vars(summary)) for summary in found])


def _cell(summary: "Summary", direction: str, names: list[str]) -> str:
    values = [summary.values[direction].get(name) for name in names]
    means = " / ".join("–" if value is None else f"{value[0]:.1f}" for value in values)
    # the first measure's alone: three deviations in a cell hide the figures
    first = values[0]
    return means if first is None or first[1] is None else f"{means} (±{first[1]:.1f})"

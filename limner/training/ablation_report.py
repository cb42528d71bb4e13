"""An ablation beside the paper's figures: a table for the terminal, Markdown, CSV and JSON."""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from limner.inference.provenance import versions
from limner.training.ablation import DIRECTIONS, Outcome, order
from limner.training.recipe import Recipe

_OF_NO_PAPER = tuple(f"{direction} R@{k}" for direction in DIRECTIONS for k in (1, 10))
"""The measures of a table of no paper."""
_ARROWS = {"image_to_text": "image→text", "text_to_image": "text→image"}


@dataclass(frozen=True)
class AblationReport:
    """The content of the written tables.

    - `table`, `title`, `published_on`: name, title and the set that the paper's figures are of, None for a table of no
      paper.
    - `standard`, `recipe`: the recipe as it stands, and as changed by `settings`; fewer epochs are called shortened.
    - `draws`: how the splits were drawn, e.g. "draw=0/1000/1000"; empty where they are the set's own.
    - `split_fingerprint`: of the split that was measured; of several draws all, with spaces between them.
    """

    table: str
    title: str
    published_on: str | None
    data: str
    split: str
    split_fingerprint: str
    standard: Recipe
    recipe: Recipe
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    draws: tuple[str, ...] = ()

    @property
    def measures(self) -> list[str]:
        """The measures that the paper prints for any of the rows, image→text first; without a paper R@1 and R@10."""
        if self.published_on is None:
            return list(_OF_NO_PAPER)
        # A set, since rows have many measures in common and each is one column.
        found = {name for outcome in self.outcomes for name in outcome.variant.published}
        return sorted(found, key=_place)

    @property
    def header(self) -> list[str]:
        """Column titles of `rows`."""
        beside = "" if self.published_on is None else " (paper)"
        return ["row", "stage", "epoch", *(f"{_title(name)}{beside}" for name in self.measures)]

    @property
    def rows(self) -> list[list[str]]:
        """One line a row: mean ± sample deviation over seeds and draws, the paper's figure in brackets."""
        return [
            [
                outcome.variant.label,
                outcome.variant.stage,
                # All seeds' epochs: one that is always the last says that the row is too short.
                "/".join(str(trial.epoch) for trial in outcome.trials),
                *(_cell(outcome, name) for name in self.measures),
            ]
            for outcome in self.outcomes
        ]

    @property
    def remarks(self) -> list[str]:
        """The remarks for a reader: data, seeds, lengths, and whether the order is the paper's."""
        # Ten fingerprints are in the JSON; nobody reads them in a line.
        measured = f"{len(self.draws)} random draws" if self.draws else self.split_fingerprint
        lines = [
            f"Ours: {self.recipe.name} on {self.data}, split {self.split} ({measured}), "
            f"protocol {self.outcomes[0].trials[0].report['protocol']}, {self._over()}"
            + "; the checkpoint of each row is chosen on val."
            + ("" if self.published_on is None else f" In brackets: the paper, {self.published_on}."),
            *self._lengths(),
            *self._orders(),
        ]
        # Paper and run on different splits can be compared in order only.
        if self.split == "test" and "validation" in (self.published_on or ""):
            lines.append("Measured on the test split; the paper's table is on validation.")
        return [*lines, *self._looks()]

    def _looks(self) -> Iterator[str]:
        """How often the runs have read a test split, which each repetition of the command does once more."""
        if self.split == "test":
            counts = [
                trial.report["provenance"].get("evaluations_of_split")
                for outcome in self.outcomes
                for trial in outcome.trials
            ]
            known = sum(count for count in counts if count is not None)
            unknown = f", and {counts.count(None)} of unknown times" if None in counts else ""
            yield f"The test split was read {known} times by {len(counts)} runs{unknown}; choose nothing by it."

    def _over(self) -> str:
        """The seeds and draws that the figures are means over."""
        of_seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {_listed(self.seeds)}"
        if self.draws:
            return f"mean ± deviation over draws {self.draws[0]} to {self.draws[-1]}, {of_seeds}"
        # A single seed has no deviation to speak of.
        return of_seeds if len(self.seeds) == 1 else f"mean ± deviation over {of_seeds}"

    def _lengths(self) -> Iterator[str]:
        for index, stage in enumerate(self.recipe.stages):
            # A stage that none of the rows trains has no length to report.
            if not any(len(outcome.variant.recipe.stages) > index for outcome in self.outcomes):
                continue
            # By name: a recipe given with --recipe may have other stages than the standard one.
            usual = [known.epochs for known in self.standard.stages if known.name == stage.name]
            shortened = f", shortened: the recipe has {usual[0]}" if usual and stage.epochs < usual[0] else ""
            patience = (
                f", at most {stage.patience} validations without a better one" if stage.patience else ""
            )
            yield f"Length: {stage.name} up to {stage.epochs} epochs{patience}{shortened}."

    def _orders(self) -> Iterator[str]:
        for stage in sorted({outcome.variant.stage for outcome in self.outcomes}):
            rows = [outcome for outcome in self.outcomes if outcome.variant.stage == stage]
            for name in self.measures:
                known = [outcome for outcome in rows if name in outcome.variant.published]
                if len(known) > 1:
                    yield f"Order, stage {stage}, {_title(name)}: {_order(known, name)}."

    def to_markdown(self) -> str:
        """The table and the remarks."""
        lines = [
            f"# {self.title}",
            "",
            _line(self.header),
            _line(["---"] * len(self.header)),
            *map(_line, self.rows),
            "",
            *(f"- {remark}" for remark in self.remarks),
        ]
        if self.settings:
            lines.append(f"- Settings: `{' '.join(self.settings)}`")
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """One line a row and measure, unrounded."""
        # csv, not joins: labels hold commas and quotes.
        text = io.StringIO()
        # csv ends lines with \r\n otherwise.
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["row", "label", "stage", "direction", "measure", "mean", "deviation", "seeds", "paper"]
        )
        for outcome in self.outcomes:
            variant = outcome.variant
            for name in self.measures:
                deviation, paper = outcome.deviation(name), variant.published.get(name)
                writer.writerow(
                    [
                        variant.key,
                        variant.label,
                        variant.stage,
                        *name.split(" ", 1),
                        outcome.mean(name),
                        "" if deviation is None else deviation,
                        len(outcome.trials),
                        # An empty cell and not 0: the paper prints nothing here.
                        "" if paper is None else paper,
                    ]
                )
        return text.getvalue()

    def to_json(self) -> str:
        """The whole report, with all measures of each run and the settings to repeat it."""
        content: dict[str, Any] = {
            "table": self.table,
            "title": self.title,
            "published_on": self.published_on,
            "data": self.data,
            "split": self.split,
            "split_fingerprint": self.split_fingerprint,
            "recipe": self.recipe.name,
            "settings": list(self.settings),
            "seeds": list(self.seeds),
            **({"draws": list(self.draws)} if self.draws else {}),
            "remarks": self.remarks,
            "rows": [self._row(outcome) for outcome in self.outcomes],
            "versions": versions(),
        }
        # ensure_ascii=False: titles have arrows and σ, which people read in the file.
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        variant = outcome.variant
        return {
            "key": variant.key,
            "label": variant.label,
            "stage": variant.stage,
            "starts_from": variant.after,
            "settings": list(variant.settings),
            "epochs": {stage.name: stage.epochs for stage in variant.recipe.stages},
            "mean": {name: outcome.mean(name) for name in self.measures},
            "deviation": {name: outcome.deviation(name) for name in self.measures},
            "paper": dict(variant.published),
            "runs": [
                {
                    "seed": trial.seed,
                    **({} if trial.draw is None else {"draw": trial.draw}),
                    # Without the folders above, which are the machine's own.
                    "folder": f"{trial.folder.parent.name}/{trial.folder.name}",
                    "epoch": trial.epoch,
                    "epochs_run": trial.epochs_run,
                    "seconds": round(trial.seconds, 1),
                    **{direction: trial.report[direction] for direction in DIRECTIONS},
                    "model_fingerprint": trial.report["provenance"]["model_fingerprint"],
                    "precision": trial.report["provenance"]["precision"],
                }
                for trial in outcome.trials
            ],
        }


def _place(name: str) -> tuple[int, int]:
    """image→text before text→image, measures of the first few before those of more or of all."""
    direction, k = name.split()[0], name.split("@")[1]
    # "MAP@all" comes last.
    return DIRECTIONS.index(direction), int(k) if k.isdecimal() else sys.maxsize


def _title(name: str) -> str:
    direction, measure = name.split(" ", 1)
    return f"{_ARROWS[direction]} {measure}"


def _order(outcomes: Sequence[Outcome], name: str) -> str:
    # By unrounded means, while the cells are rounded: two that look equal may be ordered.
    here = order(outcomes, lambda outcome: outcome.mean(name))
    paper = order(outcomes, lambda outcome: outcome.variant.published[name])
    return f"{here}; {'agrees' if here == paper else f'differs from the paper: {paper}'}"


def _cell(outcome: Outcome, name: str) -> str:
    deviation, paper = outcome.deviation(name), outcome.variant.published.get(name)
    ours = f"{outcome.mean(name):.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")
    return ours if paper is None else f"{ours} ({paper:.1f})"


def _line(cells: Sequence[str]) -> str:
    # A bar inside a cell would begin the next one.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

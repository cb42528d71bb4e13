"""The result of one evaluation: what was measured, on what, by which model; as JSON and as a table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from limner.evaluation.curves import Curve

_RANKS = {"MedR", "MeanR"}
"""Measures that are ranks; most of these are whole numbers."""

_COLUMNS = 8
"""More measures than these stand below each other."""

_SHARES = {"overlap-S"}
"""Measures from 0 to 1."""


@dataclass(frozen=True)
class Report:
    """Measures of both directions with everything that a reader needs to trust or repeat them.

    - `protocol`: the rules, e.g. "flickr8k, same image"; `split`: the split that was ranked.
    - `counts`: images, sentences, groups, and the queries of each direction that have no match in the
      gallery.
    - `image_to_text`, `text_to_image`: value by the measure's name ("R@1" … "mAP" in percent, ranks from 1); under some
      protocols each direction has its own.
    - `curves`: by direction, then by name, where curves were asked for.
    - `provenance`: what the caller knows, JSON values only: edition, split fingerprint, model fingerprint, the split
      that chose the checkpoint, seed, versions, checkpoint.
    """

    protocol: str
    split: str
    counts: Mapping[str, int]
    image_to_text: Mapping[str, float]
    text_to_image: Mapping[str, float]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, in the order in which the JSON file has them."""
        curves = {
            direction: {name: curve.to_dict() for name, curve in drawn.items()}
            for direction, drawn in self.curves.items()
        }
        return {
            "protocol": self.protocol,
            "split": self.split,
            "counts": dict(self.counts),
            "image_to_text": dict(self.image_to_text),
            "text_to_image": dict(self.text_to_image),
            # Left out when empty: most reports have no curves.
            **({"curves": curves} if curves else {}),
            "provenance": dict(self.provenance),
        }

    def to_json(self) -> str:
        """Indented JSON, unrounded, ending in a newline."""
        # Python would write NaN, which JSON does not have and other readers refuse.
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render(report: Report) -> Table:
    """The report as a table for the terminal: a row a direction, a column a measure, or the other way round if many.

    Percentages have one decimal; below it stand the counts, and queries without a match where there are any. Curves are
    left out; a dash stands where a measure is of the other direction only.
    """
    counts = report.counts
    table = Table(
        # A Text: rich would take "[…]" in a plain title for markup.
        title=Text(f"{report.protocol} · {report.split}"),
        caption=Text(_caption(counts)),
        caption_justify="left",
    )
    names = list(dict.fromkeys([*report.image_to_text, *report.text_to_image]))
    rows = [["direction", "queries", *names]]
    for direction, kind, values in (
        ("image → text", "images", report.image_to_text),
        ("text → image", "sentences", report.text_to_image),
    ):
        # Those that are measured: the ones without a match are named below the table.
        queries = counts[kind] - counts[f"{kind}_without_match"]
        rows.append(
            [
                direction,
                f"{queries:,}",
                *(shown(name, values[name]) if name in values else "–" for name in names),
            ]
        )
    # Turned round: nine columns of figures do not fit a terminal of 80.
    if len(names) > _COLUMNS:
        rows = [list(column) for column in zip(*rows, strict=True)]
    for number, head in enumerate(rows[0]):
        table.add_column(head, justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*row)
    return table


def shown(name: str, value: float) -> str:
    """A measure's value as tables have it."""
    if name in _SHARES:
        return f"{value:.3f}"
    # Halves stay: the median of an even number of ranks has them.
    return f"{value:,.0f}" if name in _RANKS and not value % 1 else f"{value:,.1f}"


def _caption(counts: Mapping[str, int]) -> str:
    text = f"{counts['images']:,} images, {counts['sentences']:,} sentences, {counts['groups']:,} groups"
    if folds := counts.get("folds"):
        text += f"; each value is the mean over {folds} folds"
    for kind in ("images", "sentences"):
        if missing := counts[f"{kind}_without_match"]:
            text += f"; {missing:,} {kind} without a true match are not scored"
    return text

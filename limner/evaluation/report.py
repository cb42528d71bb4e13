"""The result of one evaluation: what was measured, on what, by which model; as JSON and as a table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

_SHORT = {"median_rank": "MedR", "mean_rank": "MeanR"}


@dataclass(frozen=True)
class Report:
    """Measures of both directions with everything that a reader needs to trust or repeat them.

    - `protocol`: name of the rules, e.g. "flickr8k"; `split`: the split that was ranked.
    - `counts`: images, sentences, groups, and the queries of each direction that have no match in the
      gallery.
    - `image_to_text`, `text_to_image`: value by measure key ("R@1" … "mAP" in percent, ranks from 1).
    - `provenance`: what the caller knows, JSON values only: split fingerprint, model fingerprint, the split
      that chose the checkpoint, seed, versions, checkpoint.
    """

    protocol: str
    split: str
    counts: Mapping[str, int]
    image_to_text: Mapping[str, float]
    text_to_image: Mapping[str, float]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, in the order in which the JSON file has them."""
        return {
            "protocol": self.protocol,
            "split": self.split,
            "counts": dict(self.counts),
            "image_to_text": dict(self.image_to_text),
            "text_to_image": dict(self.text_to_image),
            "provenance": dict(self.provenance),
        }

    def to_json(self) -> str:
        """Indented JSON, unrounded, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render(report: Report) -> Table:
    """The report as a table for the terminal: a row a direction, a column a measure.

    Percentages have one decimal; below it stand the counts, and queries without a match where there are any.
    """
    counts = report.counts
    table = Table(
        title=Text(f"{report.protocol} · {report.split}"),
        caption=Text(_caption(counts)),
        caption_justify="left",
    )
    table.add_column("direction")
    table.add_column("queries", justify="right")
    for key in report.image_to_text:
        table.add_column(_SHORT.get(key, key), justify="right")
    rows = (
        ("image → text", "images", report.image_to_text),
        ("text → image", "sentences", report.text_to_image),
    )
    for direction, kind, values in rows:
        queries = counts[kind] - counts[f"{kind}_without_match"]
        table.add_row(direction, f"{queries:,}", *(_number(key, value) for key, value in values.items()))
    return table


def _number(key: str, value: float) -> str:
    return f"{value:,.1f}" if key not in _SHORT or value % 1 else f"{value:,.0f}"


def _caption(counts: Mapping[str, int]) -> str:
    text = f"{counts['images']:,} images, {counts['sentences']:,} sentences, {counts['groups']:,} groups"
    for kind in ("images", "sentences"):
        if missing := counts[f"{kind}_without_match"]:
            text += f"; {missing:,} {kind} without a true match are not scored"
    return text

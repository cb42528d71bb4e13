"""The outcome of one part: what was done, how often, and what was found to be wrong."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_SHOWN = 300
"""Characters of a message that a finding repeats."""


@dataclass
class Outcome:
    """Counts by name, measured figures, and findings: each a sentence about what was not as it should be."""

    counts: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] += number

    def find(self, what: str) -> None:
        """Note what is wrong."""
        self.findings.append(" ".join(what.split())[:_SHOWN])

    def expect(self, holds: bool, what: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.find(what)

    def to_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "figures": self.figures, "findings": self.findings}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Outcome":
        return cls(Counter(values["counts"]), values["figures"], values["findings"])

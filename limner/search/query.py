"""What a search is asked, and what it answers."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from limner.errors import SettingsError
from limner.search.conditions import Condition
from limner.search.hits import Attention, Hit
from limner.types import Pixels

Grouping = Literal["identity", "near"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search for pictures.

    By `text`, by an `image` (a file, or a file's bytes; with `pixels`, what `Encoder.prepare_image` made of it, it is
    not decoded again), by a picture of the store that they shall be like (its key),
    or by a text and a picture together.

    - `text_weight`: of the text's embedding where it stands beside a picture's, in [0, 1]; the picture has the rest.
    - `k`: how many pictures, or groups of them, at least 1.
    - `where`: conditions that a picture must all meet; `after` and `before`: limits of the time it was taken, first
      included, second not.
    - `group`: only the best of each identity, or of pictures that are nearly the same ("near").
    - `rerank`: how many of the first a matcher re-ranks, None = as many as the recipe says, 0 = none.
    - `explain`: re-ranked hits carry the matcher's attention.

    Raises `SettingsError` for values out of range and combinations that mean nothing.
    """

    text: str | None = None
    image: Path | bytes | None = None
    pixels: Pixels | None = field(default=None, compare=False, repr=False)
    like: str | None = None
    text_weight: float = 0.5
    k: int = 10
    where: tuple[Condition, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    group: Grouping | None = None
    rerank: int | Literal["all"] | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        if self.text is None and self.image is None and self.like is None:
            raise SettingsError("give a text, a picture, or a picture of the store to search for")
        if self.image is not None and self.like is not None:
            raise SettingsError("give one picture to search by, a file or one of the store")
        if self.pixels is not None and self.image is None:
            raise SettingsError("pixels: they are of a picture; give it under image")
        if self.k < 1:
            raise SettingsError(f"k: expected at least 1, got {self.k}")
        if not 0 <= self.text_weight <= 1:
            raise SettingsError(f"text_weight: expected 0 to 1, got {self.text_weight}")
        if self.rerank not in (None, "all") and int(self.rerank) < int(self.explain):
            raise SettingsError(f"rerank: expected at least {int(self.explain)} or 'all', got {self.rerank}")
        if self.text is None and (self.explain or self.rerank not in (None, 0)):
            raise SettingsError("rerank and explain: a matcher reads a text, not a picture")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found.

    - `hits`: best first; `total`: pictures of the store; `matching`: those that meet the conditions.
    - `threshold`: match probability that the best must reach to be called good; None where the model is not calibrated.
    - `good`: whether it does; None without calibration, and where there is no hit with a probability.
    - `unknown`: words of the text that the model does not know: it searched without them.
    """

    hits: tuple[Hit, ...]
    total: int
    matching: int
    threshold: float | None = None
    good: bool | None = None
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "hits": [hit.to_dict() for hit in self.hits],
            "total": self.total,
            "matching": self.matching,
            "threshold": self.threshold,
            "good": self.good,
            "unknown": list(self.unknown),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a picture has its score for a text.

    - `words`: of the text, as the model reads them.
    - `weights`: for each, how much the cosine falls without it (negative: it rises); None for a text of one word.
    - `attention`: of the matcher, where the model has one and the store keeps its maps.
    - `score`: the cosine of text and picture; `confidence`: of the matcher.
    - `unknown`: words of the text that the model does not know.
    """

    words: tuple[str, ...]
    weights: tuple[float, ...] | None
    attention: Attention | None
    score: float
    confidence: float | None
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "words": list(self.words),
            "weights": None if self.weights is None else list(self.weights),
            "attention": None if self.attention is None else self.attention.to_dict(),
            "score": self.score,
            "confidence": self.confidence,
            "unknown": list(self.unknown),
        }


@dataclass(frozen=True, slots=True)
class Field:
    """What the metadata of a store's pictures tell under one name.

    - `values`: all that there are, where there are few, else none; numbers in their order, then text.
    - `kind`: "number" where every value is one.
    """

    name: str
    values: tuple[str, ...]
    kind: Literal["text", "number"]

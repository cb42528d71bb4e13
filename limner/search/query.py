"""A query: one search with its conditions and options, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, cast

import numpy as np
from jaxtyping import Float

from limner.data.images import local_time
from limner.errors import DataError, SettingsError
from limner.query_arguments import where_strings
from limner.search.feedback import keys_by_mark
from limner.store.conditions import Condition
from limner.types import ImageSource, Pixels
from limner.wire import (
    Grouping,
    ImageInput,
    Where,
)

TEXT_WEIGHT = 0.5
"""Weight of a text beside a picture where a query names none and its model has learnt no composed queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search for images.

    It searches by `text`, by an `image` (`limner.types.ImageSource`), by an image of the store (`like`, its key), by a
    text and an image together, or by a `vector`, an embedding at unit length. `pixels` are the image as
    `Encoder.prepare_image` returns it, so that it is not decoded again.

    - `text_weight`: weight of the text's embedding beside an image's, in [0, 1]; the image has the rest. None = a model
      that has learnt composed queries (`limner compose`) reads both as one sentence; another takes `TEXT_WEIGHT`.
    - `k`: how many images, or groups of them, at least 1.
    - `offset`: how many of the first are left out, at least 0: the next part of a long list. None = 0, and a store with
      a graph (`approximate_from`) may answer by it; with a number, 0 too, the answer is a part of the exact ranking.
    - `where`: conditions that an image must all meet; `after` and `before`: limits of its capture time, the first
      included, the second not.
    - `right`, `wrong`: keys of images of the store that were marked so; they move the query's embedding
      (`limner.search.feedback`) and are left out of the answer, which no reranker orders.
    - `group`: only the best of each identity, or of images that are nearly the same ("near").
    - `rerank`: how many of the first hits the reranker orders again, None = as many as the recipe says, 0 = none.
    - `explain`: re-ranked hits carry the reranker's attention.

    Raises `SettingsError` for values out of range and combinations without a meaning.
    """

    text: str | None = None
    image: ImageSource | None = None
    # compare=False: == of two arrays is an array, which has no truth value
    pixels: Pixels | None = field(default=None, compare=False, repr=False)
    like: str | None = None
    vector: Float[np.ndarray, " dim"] | None = field(default=None, compare=False, repr=False)
    text_weight: float | None = None
    k: int = 10
    offset: int | None = None
    where: tuple[Condition, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    group: Grouping | None = None
    rerank: int | Literal["all"] | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        if self.text is None and self.image is None and self.like is None and self.vector is None:
            raise SettingsError("give a text, a picture, or a picture of the store to search for")
        if self.vector is not None and (self.text, self.image, self.like) != (None, None, None):
            raise SettingsError("a vector is searched by alone")
        if self.image is not None and self.like is not None:
            raise SettingsError("give one picture to search by, a file or one of the store")
        if self.pixels is not None and self.image is None:
            raise SettingsError("pixels: they are of a picture; give it under image")
        if self.k < 1:
            raise SettingsError(f"k: expected at least 1, got {self.k}")
        if self.offset is not None and self.offset < 0:
            raise SettingsError(f"offset: expected at least 0, got {self.offset}")
        # so written, NaN is refused as well
        if self.text_weight is not None and not 0 <= self.text_weight <= 1:
            raise SettingsError(f"text_weight: expected 0 to 1, got {self.text_weight}")
        # an explanation needs one re-ranked hit, so 0 is too few with `explain`
        if self.rerank not in (None, "all") and int(self.rerank) < int(self.explain):
            raise SettingsError(f"rerank: expected at least {int(self.explain)} or 'all', got {self.rerank}")
        if self.text is None and (self.explain or self.rerank not in (None, 0)):
            raise SettingsError("rerank and explain: a reranker reads a text, not a picture")
        if both := set(self.right) & set(self.wrong):
            raise SettingsError(f"marks: {min(both)[:40]!r} is marked both right and wrong")
        # it reads the text alone, and would order as if nothing was marked
        if self.is_marked and (self.explain or self.rerank not in (None, 0)):
            raise SettingsError("marks: a reranker does not know them; leave rerank and explain")

    @property
    def start(self) -> int:
        """Place of the answer's first hit in the ranking, from 0."""
        return self.offset or 0

    @property
    def is_limited(self) -> bool:
        """True if some rows take no part, or the best of groups are looked for."""
        conditions = self.where or self.after is not None or self.before is not None
        return bool(conditions or self.like is not None or self.is_marked or self.group is not None)

    @property
    def is_marked(self) -> bool:
        """True if marks move the query."""
        return bool(self.right or self.wrong)

    @property
    def has_both(self) -> bool:
        """True for a picture with a text beside it, without a weight for their sum."""
        return (
            self.text is not None
            and self.text_weight is None
            and (self.image is not None or self.like is not None)
        )

    @classmethod
    def of(
        cls,
        text: str | None = None,
        *,
        image: ImageInput | None = None,
        like: str | None = None,
        text_weight: float | None = None,
        k: int = 10,
        offset: int | None = None,
        where: Where = (),
        after: datetime | str | None = None,
        before: datetime | str | None = None,
        marks: Mapping[str, str] | None = None,
        group: str | None = None,
        rerank: int | Literal["all"] | None = None,
        explain: bool = False,
    ) -> "Query":
        """Make a query of plain values, as `Store.search` takes them. Raises `SettingsError`."""
        # a Literal is not checked at run time, and an unknown group would be taken for "near"
        if group not in (None, "identity", "near"):
            raise SettingsError(f"group: expected 'identity' or 'near', got {group!r}")
        right, wrong = keys_by_mark(marks or {})
        return cls(
            text=text,
            image=image_of(image),
            like=like,
            text_weight=text_weight,
            k=k,
            offset=offset,
            where=tuple(Condition.parse(one) for one in where_strings(where)),
            after=_time("after", after),
            before=_time("before", before),
            right=right,
            wrong=wrong,
            group=cast(Grouping | None, group),
            rerank=rerank,
            explain=explain,
        )


def image_of(source: ImageInput | None) -> ImageSource | None:
    """Convert an image to search by to one that `Encoder.prepare_image` takes."""
    # a query is a value: its caller may go on writing into a bytearray
    return bytes(source) if isinstance(source, bytearray) else source


def joined(
    text: np.ndarray | None, picture: np.ndarray | None, weight: float | None
) -> np.ndarray | DataError:
    """Join the embeddings of a text and an image: their weighted mean at unit length, or the error if they cancel."""
    if text is None or picture is None:
        alone = picture if text is None else text
        assert alone is not None
        return alone
    share = TEXT_WEIGHT if weight is None else weight
    mean = share * text + (1 - share) * picture
    length = float(np.linalg.norm(mean))
    if length == 0:
        return DataError("the text and the picture are opposites, their mean says nothing; change the weight")
    joined: np.ndarray = (mean / length).astype(np.float32)
    return joined


def _time(name: str, value: datetime | str | None) -> datetime | None:
    if not isinstance(value, str):
        return value
    try:
        return local_time(value)
    except ValueError:
        raise SettingsError(
            f"{name}: expected a time in ISO 8601, e.g. 2026-11-20 or 2026-11-20T08:15, got {value[:40]!r}"
        ) from None

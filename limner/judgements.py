"""The types of judgements: what somebody thinks of found pictures, and how that is handed on.

Like `limner.wire` it needs pydantic alone.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from limner.wire import Item, ResponseModel, StoreModel

MarkName = Literal["right", "wrong", "maybe"]
"""Somebody's judgement of a hit; "maybe" is for later and changes no ranking."""

Marks = Mapping[str, MarkName]
"""Judgements of pictures of the store, by their keys."""

ExportForm = Literal["csv", "json", "qrels", "queries", "sheet", "zip"]
"""Forms of an export (docs/server.md)."""


class JudgedPicture(Item):
    """A picture that a search found, with its judgement."""

    mark: MarkName | None
    """The judgement; null for a picture that was found and not judged."""

    note: str
    """Somebody's words about it."""

    rank: int | None
    """Its rank in the answer in which it was seen, from 1."""

    score: float | None
    """Its cosine in that answer."""

    probability: float | None
    """Its match probability in that answer, 0 to 1."""


class JudgedSearch(ResponseModel):
    """A search and the judgements of its pictures."""

    query: str
    """Name of the search: the same for the same text, picture of the store and store."""

    text: str | None
    """The description that was searched by."""

    like: str | None
    """Key of the picture of the store that was searched by."""

    picture: bool
    """True if a picture of somebody's own was searched by; it is not kept."""

    where: tuple[str, ...]
    """Conditions of the search."""

    pictures: tuple[JudgedPicture, ...]
    """The pictures, in the order in which they were given."""

    error: str | None = None
    """The reason why it could not be answered; null for one that was."""


class Provenance(ResponseModel):
    """The origin of an export."""

    exported: datetime
    """The time, UTC."""

    who: str | None
    """Name of the token that asked for it; null without one."""

    store: str
    """Random number that tells the store from any other one."""

    version: int
    """Version of the store's table of pictures."""

    total: int
    """Pictures of the store."""

    model: StoreModel
    """The store's model."""

    limner: str
    """Version of limner."""


class Judgements(ResponseModel):
    """An export: searches with the judgements of their pictures."""

    provenance: Provenance
    """Where it comes from."""

    searches: tuple[JudgedSearch, ...]
    """The searches."""

    unknown: tuple[str, ...]
    """Keys of pictures that the store does not hold any more; they are in no search."""

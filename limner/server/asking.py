"""From a request's body to a query, and from what the engine says to an answer's body."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from limner.data.capture_time import local_time
from limner.search.conditions import Condition
from limner.search.entry import Entry
from limner.search.hits import Hit
from limner.search.query import Query
from limner.server.problems import RefusedError
from limner.server.schemas import SearchBody
from limner.server.sentence_schemas import SentencesBody
from limner.server.settings import ServerSettings
from limner.server.uploads import shown_name

_ALTERNATIVES = 100
"""Values that one condition may name."""


def query_of(body: SearchBody, settings: ServerSettings) -> Query:
    """The query that a body asks. Raises `RefusedError` and `SettingsError` for values that make none."""
    _check(body, settings.max_k)
    if isinstance(body.rerank, int) and body.rerank > settings.max_rerank:
        raise RefusedError(
            422, f"rerank: this server re-ranks at most {settings.max_rerank:,}, got {body.rerank:,}"
        )
    return Query(
        text=body.text,
        image=None if body.image is None else picture_of(body.image),
        like=body.like,
        text_weight=body.text_weight,
        k=body.k,
        where=conditions_of(body.where),
        after=None if body.after is None else _time(body.after, "after"),
        before=None if body.before is None else _time(body.before, "before"),
        group=body.group,
        rerank=body.rerank,
        explain=body.explain,
    )


def sentences_query_of(body: SentencesBody, max_k: int) -> Query:
    """The same for sentences."""
    _check(body, max_k)
    image = None if body.image is None else picture_of(body.image)
    return Query(text=body.text, image=image, like=body.like, text_weight=body.text_weight, k=body.k)


def _check(body: SearchBody | SentencesBody, max_k: int) -> None:
    if body.k > max_k:
        raise RefusedError(422, f"k: this server gives at most {max_k} answers, got {body.k}")
    if body.text is None and body.image is None and body.like is None:
        raise RefusedError(422, "give a text, an image, or the id of a picture of the store under like")
    if body.image is not None and body.like is not None:
        raise RefusedError(422, "give one picture to search by: image or like")


def conditions_of(where: Sequence[str]) -> tuple[Condition, ...]:
    """Conditions as they are written.

    Raises `RefusedError` for one on paths, which would tell them bit by bit, and for one of very many values.
    """
    conditions = tuple(Condition.parse(one) for one in where)
    if any(len(condition.values) > _ALTERNATIVES for condition in conditions):
        raise RefusedError(422, f"where: a condition names at most {_ALTERNATIVES} values")
    if any(condition.name.strip() == "path" for condition in conditions):
        raise RefusedError(403, "where: this server tells nothing of where its files lie")
    return conditions


def picture_of(text: str) -> bytes:
    """The bytes of a picture. Raises `RefusedError` (422) for what is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(422, "image: expected the bytes of a picture file in base64") from None


def hit_body(hit: Hit, uploads: Path | None) -> dict[str, Any]:
    """A hit without its path."""
    values = hit.to_dict()
    name = shown_name(values.pop("path"), hit.metadata, uploads)
    return {**values, "name": name}


def item_body(one: Entry | Hit, uploads: Path | None) -> dict[str, Any]:
    """What is told of a picture outside of a search."""
    return {
        "id": one.id,
        "name": shown_name(str(one.path), one.metadata, uploads),
        "identity": one.identity,
        "metadata": dict(one.metadata),
        "taken": None if one.taken is None else one.taken.isoformat(),
    }


def _time(text: str, name: str) -> datetime:
    try:
        return local_time(text)
    except ValueError:
        raise RefusedError(422, f"{name}: expected a time in ISO 8601, e.g. 2026-11-20T08:15:00") from None

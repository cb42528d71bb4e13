"""The route that hands judged searches out as a file: `/v1/export`."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from limner.judgements import ExportForm, JudgedPicture, JudgedSearch, Judgements, MarkName, Provenance
from limner.requests import Whole
from limner.search.contact_sheet import contact_sheet
from limner.search.engine import Engine
from limner.search.judgement_files import as_csv, as_json, as_qrels, as_queries, as_zip, file_name, query_name
from limner.search.store import Store
from limner.search.store_info import store_model
from limner.server.access import token_name
from limner.server.answer_forms import for_clients
from limner.server.audit_routes import note
from limner.server.bodies import Key, RequestModel, Sentence, Where
from limner.server.pictures import Decoding, small_or_whole
from limner.server.problems import RefusedError, declared
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.store.snapshot import Snapshot
from limner.wire import Hit, Item

_PICTURES = 5_000
"""Largest number of pictures in one export; a table row each."""

_SHOWN = 200
"""Largest number of pictures in an export that has to decode or to hold them: a contact sheet, a zip."""

_ZIP = 2**26
"""Bytes of picture files that a zip may hold, 64 MiB: it is made in memory."""

_RECORDED = 1_000
"""Number of keys that a line of the audit log names."""

_KINDS: dict[ExportForm, tuple[str, str]] = {
    "csv": ("judgements.csv", "text/csv; charset=utf-8"),
    "json": ("judgements.json", "application/json"),
    "qrels": ("qrels.txt", "text/plain; charset=utf-8"),
    "queries": ("queries.tsv", "text/tab-separated-values; charset=utf-8"),
    "sheet": ("sheet.jpg", "image/jpeg"),
    "zip": ("judgements.zip", "application/zip"),
}
"""File name and media type of each form."""


class FoundPicture(RequestModel):
    """A picture that was found, and what somebody thinks of it."""

    id: Key
    """Its key."""

    mark: MarkName | None = None
    """The judgement; null = none."""

    note: Annotated[str, Field(max_length=1000)] = ""
    """Words about it."""

    rank: Annotated[int, Field(ge=1, le=1_000_000), Whole] | None = None
    """Its rank in the answer in which it was seen."""

    score: Annotated[float, Field(ge=-2, le=2)] | None = None
    """Its cosine in that answer."""

    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Its match probability in that answer."""


class FinishedSearch(RequestModel):
    """A search and the pictures of its answer that are exported."""

    text: Sentence | None = None
    """The description that was searched by."""

    like: Key | None = None
    """Key of the picture of the store that was searched by."""

    picture: bool = False
    """True if a picture of one's own was searched by."""

    where: list[Where] = Field(default=[], max_length=20)
    """Conditions of the search; they are told, and not tested again."""

    pictures: list[FoundPicture] = Field(default=[], max_length=1000)
    """The pictures."""

    error: Annotated[str, Field(max_length=2000)] | None = None
    """The reason why it could not be answered."""


class ExportBody(RequestModel):
    """Judged searches and the form in which they are wanted."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "form": "csv",
                    "searches": [{"text": "a green coat", "pictures": [{"id": "0" * 32, "mark": "right"}]}],
                }
            ],
            # JSON Schema for the check of `_check`
            "anyOf": [
                {"properties": {"form": {"not": {"const": "sheet"}}}},
                {"properties": {"searches": {"maxItems": 1}}},
            ],
        }
    )

    form: ExportForm
    """The form: a table, JSON, TREC's qrels or the queries that belong to them, a contact sheet, or a zip of all."""

    searches: list[FinishedSearch] = Field(min_length=1, max_length=1000)
    """The searches; one for a contact sheet."""


def export_routes(engine: Engine, settings: ServerSettings) -> APIRouter:
    """Make the route of exports."""
    routes = APIRouter(tags=["search"])
    # threads of its own: a zip of 200 pictures takes seconds, in which others want to see theirs
    decoding = Decoding(8)

    @Rules(right="search", audit="export", large=True)
    @routes.post(
        "/v1/export",
        response_class=Response,
        responses={
            200: {
                "description": "The file.",
                "content": {kind.split(";")[0]: {} for _, kind in _KINDS.values()},
            },
            **declared(400, 401, 403, 408, 409, 413, 421, 422, 429, 500, 503),
        },
    )
    async def export(body: ExportBody, request: Request) -> Response:
        """Hand out judged searches as a file, with where they come from."""
        texts = dict.fromkeys(search.text for search in body.searches if search.text is not None)
        where = dict.fromkeys(condition for search in body.searches for condition in search.where)
        likes = [search.like for search in body.searches if search.like is not None]
        # under the names that `limner audit forget` looks through
        note(
            request.scope, form=body.form, text="\n".join(texts), where=list(where), marked=likes[:_RECORDED]
        )
        _check(body)
        judged, snapshot = await run_in_threadpool(_judged, engine, settings, body, token_name(request.scope))
        keys = list(dict.fromkeys(one.id for search in judged.searches for one in search.pictures))
        content = await decoding.run(_file, body.form, judged, engine, snapshot, keep=settings.keep_metadata)
        note(request.scope, found=keys[:_RECORDED], count=len(keys))
        name, kind = _KINDS[body.form]
        disposition = f'attachment; filename="limner-{name}"'
        return Response(content, media_type=kind, headers={"Content-Disposition": disposition})

    return routes


def _check(body: ExportBody) -> None:
    count = sum(len(search.pictures) for search in body.searches)
    most = _SHOWN if body.form in ("sheet", "zip") else _PICTURES
    if count > most:
        raise RefusedError(413, f"searches: at most {most:,} pictures in this form, got {count:,}")
    if body.form == "sheet" and len(body.searches) > 1:
        raise RefusedError(422, "searches: a contact sheet is of one search; a zip has one for each")


def _judged(
    engine: Engine, settings: ServerSettings, body: ExportBody, who: str | None
) -> tuple[Judgements, Snapshot]:
    """Look up what the store knows of the pictures; those that it does not hold are `unknown`."""
    # one snapshot for all, so that provenance and rows are of one version
    snapshot = engine.files.snapshot()
    unknown: dict[str, None] = {}
    searches = []
    for search in body.searches:
        there = [one for one in search.pictures if one.id in snapshot.places]
        unknown |= dict.fromkeys(one.id for one in search.pictures if one.id not in snapshot.places)
        items = _items(snapshot, [one.id for one in there])
        searches.append(
            JudgedSearch(
                query=query_name(search.text, search.like, picture=search.picture),
                text=search.text,
                # a key that was erased is not handed out again
                like=search.like if search.like in snapshot.places else None,
                picture=search.picture,
                where=tuple(search.where),
                error=search.error,
                pictures=tuple(
                    JudgedPicture(
                        **for_clients(item, settings).model_dump(),
                        **one.model_dump(exclude={"id"}),
                    )
                    for item, one in zip(items, there, strict=True)
                ),
            )
        )
    provenance = Provenance(
        exported=datetime.now(UTC).replace(microsecond=0),
        who=who,
        store=engine.files.manifest.id,
        version=snapshot.version,
        total=len(snapshot.keys),
        model=store_model(engine),
        limner=version("limner"),
    )
    return Judgements(provenance=provenance, searches=tuple(searches), unknown=tuple(unknown)), snapshot


def _items(snapshot: Snapshot, keys: Sequence[str]) -> list[Item]:
    return snapshot.items(np.array([snapshot.places[key] for key in keys], np.int64))


def _file(form: ExportForm, judged: Judgements, engine: Engine, snapshot: Snapshot, *, keep: bool) -> bytes:
    if form == "sheet":
        return _sheet(judged.searches[0], engine, snapshot)
    if form == "zip":
        return as_zip(
            judged,
            _pictures(engine, judged, keep=keep),
            {
                f"sheet-{number:03}": _sheet(search, engine, snapshot)
                for number, search in enumerate(judged.searches, start=1)
            },
        )
    # a dict of functions would hide the two that have other arguments
    return {"csv": as_csv, "json": as_json, "qrels": as_qrels, "queries": as_queries}[form](judged)


def _pictures(engine: Engine, judged: Judgements, *, keep: bool) -> dict[str, bytes]:
    """Files of pictures without their metadata, by their names; the thumbnail of one whose file has changed."""
    told = {one.id: one for search in judged.searches for one in search.pictures}
    entries = [entry for key in told if (entry := engine.files.entry(key)) is not None]
    size = sum(entry.size for entry in entries)
    if size > _ZIP:
        raise RefusedError(413, f"the pictures have {size / 2**20:,.0f} MiB; a zip may have {_ZIP >> 20}")
    made: dict[str, bytes] = {}
    for entry in entries:
        content, ending = small_or_whole(engine.files, entry, keep_metadata=keep)
        made[file_name(told[entry.id], ending, made)] = content
    return made


def _sheet(search: JudgedSearch, engine: Engine, snapshot: Snapshot) -> bytes:
    items = _items(snapshot, [one.id for one in search.pictures])
    hits = [
        Hit(
            **item.model_dump(),
            rank=one.rank or place,
            score=one.score or 0.0,
            confidence=None,
            probability=one.probability,
            group=None,
        )
        for place, (item, one) in enumerate(zip(items, search.pictures, strict=True), start=1)
    ]
    marks = {one.id: one.mark for one in search.pictures if one.mark is not None}
    file = io.BytesIO()
    heading = search.text or "Pictures like one of somebody's own"
    sheet = contact_sheet(hits, thumbnail=Store(engine).thumbnail, query=heading, marks=marks)
    sheet.save(file, "JPEG", quality=90)
    return file.getvalue()

"""The routes that list, show, add, delete and erase the pictures of the store."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathPart
from pydantic import ConfigDict, Field, JsonValue, field_validator
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from limner.conditions import wrong_name
from limner.errors import UnfinishedErasureError
from limner.requests import where_strings
from limner.search.engine import Engine
from limner.search.find_pictures import coming_back
from limner.server.access import rights_of
from limner.server.answer_forms import for_clients, json_size, pictures_that_fit, rows_that_fit
from limner.server.audit_routes import begun, note, settle
from limner.server.batching import Worker
from limner.server.bodies import Key, Picture, RequestModel, Where, conditions_of
from limner.server.pictures import Decoding, check_pixels, known_image, readers, send_picture, send_thumbnail
from limner.server.problems import RefusedError, declared
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.server.turns import Turns
from limner.server.uploads import Changes
from limner.store.erasable import erasable
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store_reports import ErasureReport
from limner.wire import (
    Item,
    Items,
    ResponseModel,
)

# twenty of them must fit into the header of a request, for which h11 takes 16 KiB
WhereInAddress = Annotated[Where, Field(max_length=200)]
"""A condition in an address, whose length is limited."""


_NAMED = 1_000
"""Largest number of keys that a request to erase may name, and that its line in the audit log has."""

_DOT = "R0lGODdhAQABAIEAAMgeHgAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw=="
"""A red GIF of one pixel."""


_BLANK = r"[\s\x1c-\x1f\x85]"
"""A sign that `str.strip` takes away; a schema's own class of blanks has fewer."""


class NewItem(RequestModel):
    """A picture to add."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "dot.gif", "image": _DOT, "metadata": {"camera": 3}}]}
    )

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the picture; the server chooses the file's name itself."""

    image: Picture
    """The picture file in base64."""

    identity: Annotated[str, Field(max_length=200)] | None = None
    """The identity that it shows; null or empty = none. If it is not sent, a picture that is there keeps its own."""

    metadata: dict[str, JsonValue] = Field(
        default={},
        max_length=50,
        json_schema_extra={
            "propertyNames": {"minLength": 1, "not": {"pattern": rf"^path$|^{_BLANK}|{_BLANK}$"}}
        },
    )
    """Other facts, under names without blanks at their ends; `taken` is a time in ISO 8601 that replaces the one in the
    file. A picture that is there keeps those that are not sent; null takes one away."""

    @field_validator("metadata")
    @classmethod
    def _with_names(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        """Refuse a fact of a name that a condition cannot mean."""
        for wrong in filter(None, map(wrong_name, metadata)):
            raise PydanticCustomError("name", "{wrong}", {"wrong": wrong})
        return metadata


class ErasureBody(RequestModel):
    """The pictures to erase: those that are named, and those that meet `identity` and every condition.

    Without any of these only what was deleted earlier is erased.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"identity": "17"}]})

    ids: list[Key] = Field(default=[], max_length=_NAMED)
    """Keys of pictures and sentences; those that the store does not hold are `unknown` in the report."""

    identity: Annotated[str, Field(max_length=200)] | None = None
    """An identity."""

    where: list[Where] = Field(default=[], max_length=20)
    """Conditions."""


class Removal(ResponseModel):
    """A picture that was removed."""

    returning: int
    """Files of it in folders that the store follows: the next look indexes them again, as a new picture."""


Id = Annotated[Key, PathPart(description="The picture's key.")]

_BINARY = {"schema": {"type": "string", "format": "binary"}}


def _note_erased(scope: Scope, keys: Sequence[str]) -> None:
    settle(scope)
    # no more than a request may name: `count` is that of all
    note(scope, found=list(keys[:_NAMED]), count=len(keys))


def item_routes(engine: Engine, worker: Worker, changes: Changes, settings: ServerSettings) -> APIRouter:
    """The routes of items and their pictures."""
    routes = APIRouter(tags=["pictures"])
    # two threads for these files beside the two of searches: a page of results must not keep a query waiting
    uploads, decoding, reading = changes.folder, Decoding(), readers()
    always = (401, 421, 422, 500, 503)
    turns = Turns()

    def may_change() -> None:
        if not settings.changes:
            raise RefusedError(403, "this server's pictures cannot be changed; start it with --allow-changes")

    def may_add() -> None:
        may_change()
        if uploads is None:
            raise RefusedError(403, "this server takes no pictures; start it with --uploads FOLDER")

    @Rules(right="search", audit="items")
    @routes.get("/v1/items", responses=declared(400, 403, 409, 429, *always))
    async def items(
        request: Request,
        # 2^53: the last whole number that JavaScript counts to, and far below what an array index may be
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        where: Annotated[list[WhereInAddress], Query(max_length=20)] = [],  # noqa: B006 - as FastAPI has it
        newest: bool = False,
    ) -> Items:
        """List pictures in the order of their paths, or the newest first."""

        def listed() -> Items:
            # one snapshot for the rows and their number, though other processes add and delete
            snapshot = engine.files.snapshot()
            until = time.monotonic() + settings.query_seconds
            conditions = conditions_of(where, paths=settings.show_paths)
            rows = snapshot.meeting(conditions, until=until)
            rows = snapshot.newest_first(rows) if newest else rows
            absent = snapshot.metadata.absent(conditions) if conditions else {}
            # before they are read: 500 pictures with metadata of 8 MB would be 4 GB of Python objects
            part = snapshot.items(rows_that_fit(snapshot, rows[offset : offset + limit], settings.max_answer))
            told = [for_clients(one, settings) for one in part]
            return Items(items=pictures_that_fit(told, settings.max_answer), total=len(rows), absent=absent)

        # before the reading of the conditions, so that a refused question is recorded, too
        note(request.scope, where=where, offset=offset, limit=limit)
        answer = await run_in_threadpool(listed)
        note(request.scope, found=[one.id for one in answer])
        return answer

    @Rules(right="search", audit="item")
    @routes.get("/v1/items/{id}", responses=declared(403, 404, 429, *always))
    def item(id: Id) -> Item:
        """Describe one picture."""
        return for_clients(known_image(engine.files, id).to_item(), settings)

    @Rules(right="add", audit="add", changes=True, large=True)
    @routes.post(
        "/v1/items",
        status_code=201,
        responses=declared(400, 403, 408, 409, 413, 429, *always),
        dependencies=[Depends(may_add)],
    )
    async def add(body: NewItem, request: Request) -> Item:
        """Add a picture; one with the same bytes gets the facts that are sent, and keeps the others."""
        if (size := json_size(body.metadata)) > settings.max_metadata:
            most = settings.max_metadata
            raise RefusedError(413, f"metadata: at most {most:,} bytes of JSON here, got {size:,}")
        # by the header, before the image waits in line for the model
        check_pixels(body.image, settings.max_pixels)
        await begun(request.scope)
        # not given up when the client leaves: half a change helps nobody, and who sends it again gets the same image
        given = body.model_dump(include={"identity", "metadata"}, exclude_unset=True)
        stored = await turns.take(
            lambda: asyncio.wrap_future(worker.change(changes.add, body.image, body.name, given))
        )
        note(request.scope, found=[stored.id])
        return for_clients(stored.to_item(), settings)

    @Rules(right="erase", audit="delete", changes=True)
    @routes.delete(
        "/v1/items/{id}",
        responses=declared(403, 404, 408, 413, 429, *always),
        dependencies=[Depends(may_change)],
    )
    async def delete(id: Id, request: Request) -> Removal:
        """Remove a picture from the store; its file is deleted only if it was added here."""
        # first, or the line would name a picture that was erased
        stored = await run_in_threadpool(known_image, engine.files, id)
        back = await run_in_threadpool(coming_back, engine.files, stored.paths)
        await begun(request.scope)
        # in the thread of the model, which also adds
        await turns.take(lambda: asyncio.wrap_future(worker.change(changes.delete, id)))
        return Removal(returning=len(back))

    @Rules(right="erase", audit="erase", changes=True)
    @routes.post(
        "/v1/erase",
        responses=declared(400, 403, 408, 409, 413, 429, *always),
        dependencies=[Depends(may_change)],
    )
    async def erasure(body: ErasureBody, request: Request) -> ErasureReport:
        """Erase pictures: nothing of them is left on the disk, nor of what was deleted earlier.

        A search of the store's files proves it; `found` must be empty. Other changes wait meanwhile.
        """
        # as conditions, which `limner.server.audit.forget` knows how to remove
        where = [*body.where, *([] if body.identity is None else where_strings({"identity": body.identity}))]
        note(request.scope, where=where)
        conditions_of(body.where, paths=settings.show_paths)

        def erased() -> tuple[list[str], ErasureReport]:
            # a handle of its own, so that searches go on in the thread of the model
            files = StoreFiles.open(engine.files.folder)
            with files.writing():
                chosen = erasable(files, body.ids, identity=body.identity, where=body.where)
                report = erase(files, body.ids, identity=body.identity, where=body.where, uploads=uploads)
            back = coming_back(files, [path for image in chosen.images for path in image.paths])
            # what this server holds of them in memory goes as well
            engine.files.follow()
            return chosen.told, report.model_copy(update={"returning": len(back)})

        await begun(request.scope)
        try:
            keys, report = await turns.take(lambda: run_in_threadpool(erased), first=True)
        except UnfinishedErasureError as error:
            _note_erased(request.scope, error.keys)
            raise
        _note_erased(request.scope, keys)
        if "search" not in rights_of(request.scope):
            # conditions that are judged alone, beside an identity that nobody has, would spell every field out and
            # erase nothing; so would the number of pictures that have an asked name, too
            return report.without_clues()
        # what it tells of pictures that stay is an answer to a question like any other
        told = {
            "unmet": list(report.unmet),
            "similar": list(report.similar),
            "naming": list(report.naming),
        }
        note(request.scope, **{name: some[:_NAMED] for name, some in told.items() if some})
        return report

    # no cost: a page of results asks for a hundred of these at once, and they do not use the model
    @Rules(right="search", audit="image", cost=0.0)
    @routes.get(
        "/v1/images/{id}",
        response_class=Response,
        responses={
            200: {"description": "The picture.", "content": {"image/*": _BINARY}},
            **declared(403, 404, 409, 410, *always),
        },
    )
    async def image(id: Id) -> Response:
        """Send the picture as JPEG or PNG, without metadata, if its file is still the one that was indexed."""
        return await send_picture(engine.files, id, decoding, reading, keep_metadata=settings.keep_metadata)

    @Rules(right="search", audit="thumbnail", cost=0.0)
    @routes.get(
        "/v1/thumbnails/{id}",
        response_class=Response,
        responses={
            200: {"description": "A JPEG of at most 256 pixels.", "content": {"image/jpeg": _BINARY}},
            304: {"description": "The client has it already."},
            **declared(403, 404, 409, 410, *always),
        },
    )
    async def small(id: Id, request: Request) -> Response:
        """Send a small form of the picture. If this server lets clients keep it, it has an ETag for If-None-Match."""
        asked = request.headers.get("if-none-match")
        return await send_thumbnail(
            engine.files, id, decoding, reading, seconds=settings.thumbnail_seconds, asked=asked
        )

    return routes

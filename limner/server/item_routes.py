"""The pictures of the store: listed, shown, added and deleted."""

import asyncio
import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathPart
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from limner.search.engine import Engine
from limner.server.asking import conditions_of, item_body, picture_of
from limner.server.audit import Audit
from limner.server.batching import Worker
from limner.server.decoding import Decoding, check_pixels
from limner.server.item_schemas import Item, Items, NewItem, WhereInAddress
from limner.server.pictures import known_entry, send_picture, send_thumbnail
from limner.server.problems import RefusedError, declared
from limner.server.schemas import Key
from limner.server.settings import ServerSettings
from limner.server.uploads import Changes

Id = Annotated[Key, PathPart(description="The picture's key.")]


def item_routes(
    engine: Engine, worker: Worker, changes: Changes, audit: Audit, settings: ServerSettings
) -> APIRouter:
    """The routes of items and their pictures."""
    routes = APIRouter(tags=["pictures"])
    uploads, decoding = changes.folder, Decoding()
    always = (401, 421, 422, 500, 503)

    def may_change() -> None:
        if not settings.changes:
            raise RefusedError(403, "this server's pictures cannot be changed; start it with --allow-changes")

    def may_add() -> None:
        may_change()
        if uploads is None:
            raise RefusedError(403, "this server takes no pictures; start it with --uploads FOLDER")

    @routes.get("/v1/items", response_model=Items, responses=declared(403, 409, 429, *always))
    async def items(
        request: Request,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        where: Annotated[list[WhereInAddress], Query(max_length=20)] = [],  # noqa: B006 - as FastAPI has it
    ) -> dict[str, Any]:
        """List pictures in the order of their paths."""

        def listed() -> dict[str, Any]:
            snapshot = engine.store.snapshot()
            until = time.monotonic() + settings.query_seconds
            rows = snapshot.meeting(conditions_of(where), until=until)
            part = rows[offset : offset + limit]
            hits = snapshot.hits(part, np.zeros(len(part), np.float32))
            return {"items": [item_body(hit, uploads) for hit in hits], "total": len(rows)}

        if not where:
            return await run_in_threadpool(listed)
        asked = {"where": where, "offset": offset, "limit": limit}
        async with audit.noted(request, "items", asked) as found:
            body = await run_in_threadpool(listed)
            found += [one["id"] for one in body["items"]]
        return body

    @routes.get("/v1/items/{id}", response_model=Item, responses=declared(404, 429, *always))
    def item(id: Id) -> dict[str, Any]:
        """Tell of one picture."""
        return item_body(known_entry(engine.store, id), uploads)

    @routes.post(
        "/v1/items",
        status_code=201,
        response_model=Item,
        responses=declared(400, 403, 408, 409, 413, 429, *always),
        dependencies=[Depends(may_add)],
    )
    async def add(body: NewItem) -> dict[str, Any]:
        """Add a picture; one of the same bytes gets the new facts."""
        content = picture_of(body.image)
        check_pixels(content, settings.max_pixels)
        entry = await asyncio.wrap_future(
            worker.call(changes.add, content, body.name, body.identity, body.metadata)
        )
        return item_body(entry, uploads)

    @routes.delete(
        "/v1/items/{id}",
        status_code=204,
        responses=declared(403, 404, 408, 413, 429, *always),
        dependencies=[Depends(may_change)],
    )
    async def delete(id: Id) -> None:
        """Take a picture out of the store; its file is deleted only if it was added here."""
        await asyncio.wrap_future(worker.call(changes.delete, id))

    @routes.get(
        "/v1/images/{id}",
        response_class=Response,
        responses={
            200: {"description": "The picture file.", "content": {"image/*": _BINARY}},
            **declared(404, 409, 410, *always),
        },
    )
    async def image(id: Id) -> Response:
        """The picture's file, if it is still the one that was indexed; as JPEG where browsers do not show it."""
        return await send_picture(engine.store, id, decoding)

    @routes.get(
        "/v1/thumbnails/{id}",
        response_class=Response,
        responses={
            200: {"description": "A JPEG of at most 256 pixels.", "content": {"image/jpeg": _BINARY}},
            **declared(404, 409, 410, *always),
        },
    )
    async def small(id: Id) -> Response:
        """A small form of the picture."""
        return await send_thumbnail(engine.store, id, decoding)

    return routes


_BINARY = {"schema": {"type": "string", "format": "binary"}}

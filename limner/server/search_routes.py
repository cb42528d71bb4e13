"""Searching and explaining: `/v1/search`, `/v1/sentences` and `/v1/explain`."""

import asyncio
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from limner.errors import LimnerError
from limner.search.engine import Engine
from limner.search.entry import key_of
from limner.server.asking import hit_body, query_of, sentences_query_of
from limner.server.audit import Audit
from limner.server.batching import Worker
from limner.server.pictures import known_entry
from limner.server.problems import declared
from limner.server.rate import client_of
from limner.server.schemas import ExplainBody, Explanation, SearchAnswer, SearchBody
from limner.server.sentence_schemas import SentencesAnswer, SentencesBody


def search_routes(
    engine: Engine, worker: Worker, audit: Audit, max_k: int, uploads: Path | None
) -> APIRouter:
    """The routes that make the model work."""
    routes = APIRouter(tags=["search"])
    refusals = declared(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 500, 503)

    @routes.post(
        "/v1/search", response_model=SearchAnswer, response_model_exclude_unset=True, responses=refusals
    )
    async def search(body: SearchBody, request: Request) -> dict[str, Any]:
        """Find the pictures that fit best."""
        began = time.perf_counter()
        query = query_of(body, max_k)
        client = client_of(request.scope)
        try:
            if query.like is not None:
                await run_in_threadpool(known_entry, engine.store, query.like)
            answer = await asyncio.wrap_future(worker.ask(query))
        except LimnerError as error:
            audit.note(client, query, str(error))
            raise
        audit.note(client, query, [hit.id for hit in answer.hits])
        return {
            **answer.to_dict(),
            "hits": [hit_body(hit, uploads) for hit in answer.hits],
            "took_ms": round(1000 * (time.perf_counter() - began), 2),
        }

    @routes.post("/v1/sentences", response_model=SentencesAnswer, responses=refusals)
    async def sentences(body: SentencesBody, request: Request) -> dict[str, Any]:
        """Find the sentences of the store that describe a picture best."""
        query = sentences_query_of(body, max_k)
        client = client_of(request.scope)
        try:
            if query.like is not None:
                await run_in_threadpool(known_entry, engine.store, query.like)
            found = await asyncio.wrap_future(worker.call(engine.sentences, query))
        except LimnerError as error:
            audit.note(client, query, str(error))
            raise
        places = await run_in_threadpool(lambda: engine.store.snapshot().places)
        ids = [None if hit.path is None else key_of(str(hit.path)) for hit in found]
        audit.note(client, query, [one for one in ids if one is not None])
        hits = [
            {"rank": hit.rank, "score": hit.score, "text": hit.text, "id": one if one in places else None}
            for hit, one in zip(found, ids, strict=True)
        ]
        return {"sentences": hits, "total": engine.sentence_count}

    @routes.post("/v1/explain", response_model=Explanation, responses=refusals)
    async def explain(body: ExplainBody) -> dict[str, Any]:
        """Say which words, and where the model has a matcher which regions, made a picture's score."""
        await run_in_threadpool(known_entry, engine.store, body.id)
        found = await asyncio.wrap_future(worker.call(engine.explain, body.text, body.id))
        return {
            "words": list(found.words),
            "weights": None if found.weights is None else list(found.weights),
            "attention": None if found.attention is None else found.attention.to_dict(),
            "score": found.score,
            "confidence": found.confidence,
        }

    return routes

"""Searching and explaining: `/v1/search`, `/v1/sentences` and `/v1/explain`."""

import time
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from limner.search.engine import Engine
from limner.search.entry import key_of
from limner.search.query import Query
from limner.server.asking import hit_body, query_of, sentences_query_of
from limner.server.audit import Audit, asked_of
from limner.server.batching import Worker
from limner.server.decoding import Decoding, with_pixels
from limner.server.leaving import unless_gone
from limner.server.problems import RefusedError, declared
from limner.server.schemas import ExplainBody, Explanation, SearchAnswer, SearchBody
from limner.server.sentence_schemas import SentencesAnswer, SentencesBody
from limner.server.settings import ServerSettings


def search_routes(engine: Engine, worker: Worker, audit: Audit, settings: ServerSettings) -> APIRouter:
    """The routes that make the model work, in the thread of `worker`."""
    routes = APIRouter(tags=["search"])
    refusals = declared(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 500, 503)
    decoding = Decoding()

    async def decoded(query: Query) -> Query:
        if query.image is None:
            return query
        return await decoding.run(with_pixels, engine, query, settings.max_pixels)

    def bounded(query: Query) -> Query:
        """The query with no more to re-rank than allowed: asked for, that is refused, by the recipe, it is cut."""
        wanted = engine.encoder.rerank if query.rerank is None else query.rerank
        if wanted != "all" or len(engine.store) <= settings.max_rerank:
            return query
        if query.rerank == "all":
            raise RefusedError(422, f"rerank: this server re-ranks at most {settings.max_rerank:,}")
        by_matcher = engine.encoder.reranker is not None and query.image is None and query.like is None
        return replace(query, rerank=settings.max_rerank) if by_matcher else query

    @routes.post(
        "/v1/search", response_model=SearchAnswer, response_model_exclude_unset=True, responses=refusals
    )
    async def search(body: SearchBody, request: Request) -> dict[str, Any]:
        """Find the pictures that fit best."""
        began = time.perf_counter()
        async with audit.noted(request, "search", asked_of(body)) as found:
            query = await run_in_threadpool(bounded, query_of(body, settings))
            answer = await unless_gone(request, worker.ask(await decoded(query)))
            found += [hit.id for hit in answer.hits]
        return {
            **answer.to_dict(),
            "hits": [hit_body(hit, settings.uploads) for hit in answer.hits],
            "took_ms": round(1000 * (time.perf_counter() - began), 2),
        }

    @routes.post("/v1/sentences", response_model=SentencesAnswer, responses=refusals)
    async def sentences(body: SentencesBody, request: Request) -> dict[str, Any]:
        """Find the sentences of the store that describe a picture best."""
        async with audit.noted(request, "sentences", asked_of(body)) as found:
            query = await decoded(sentences_query_of(body, settings.max_k))
            hits = await unless_gone(request, worker.call(engine.sentences, query))
            places = await run_in_threadpool(lambda: engine.store.snapshot().places)
            ids = [None if hit.path is None else key_of(str(hit.path)) for hit in hits]
            found += [one for one in ids if one is not None]
        told = [
            {"rank": hit.rank, "score": hit.score, "text": hit.text, "id": one if one in places else None}
            for hit, one in zip(hits, ids, strict=True)
        ]
        return {"sentences": told, "total": engine.sentence_count}

    @routes.post("/v1/explain", response_model=Explanation, responses=refusals)
    async def explain(body: ExplainBody, request: Request) -> dict[str, Any]:
        """Say which words, and where the model has a matcher which regions, made a picture's score."""
        async with audit.noted(request, "explain", body.model_dump()) as found:
            explanation = await unless_gone(request, worker.call(engine.explain, body.text, body.id))
            found.append(body.id)
        return explanation.to_dict()

    return routes

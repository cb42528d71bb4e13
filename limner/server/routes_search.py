"""The routes that search and explain: `/v1/search`, `/v1/sentences` and `/v1/explain`."""

import time
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, JsonValue, Strict
from starlette.concurrency import run_in_threadpool

from limner.judgements import MarkName
from limner.requests import SearchRequest, SentencesRequest, Whole
from limner.search.engine import Engine
from limner.server.answer_forms import for_clients, pictures_that_fit, sentences_that_fit
from limner.server.audit_routes import asked_of, note
from limner.server.batching import Worker, unless_disconnected
from limner.server.bodies import (
    Key,
    Picture,
    RequestModel,
    Sentence,
    Where,
    conditions_of,
)
from limner.server.pictures import Decoding, with_pixels
from limner.server.problems import RefusedError, declared
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.store.entry import key_of
from limner.wire import Answer, Explanation, SentencesAnswer, WordMethodName

_TEXT: dict[str, JsonValue] = {"type": "string"}
SEARCHES: dict[str, JsonValue] = {
    "examples": [{"text": "a woman in a green coat", "k": 5, "where": ["camera=3"]}],
    # JSON Schema for the check of `SentencesRequest`: a description that allowed it would be wrong (schemathesis tries)
    "allOf": [
        # "type": a null counts as not given, so that the name alone is not enough
        {"anyOf": [{"required": [one], "properties": {one: _TEXT}} for one in ("text", "image", "like")]},
        {"not": {"required": ["image", "like"], "properties": {"image": _TEXT, "like": _TEXT}}},
    ],
}
"""JSON Schema of a search: at least one of text and picture, and one picture only."""


class SearchBody(RequestModel, SearchRequest):
    """A search: by a text, a picture, a picture of the store, or a text beside one of these."""

    # further fields are those of `SearchRequest`; these have limits that only strangers need, or another form in JSON
    model_config = ConfigDict(json_schema_extra=SEARCHES)

    text: Sentence | None = None

    image: Picture | None = None
    """A picture file in base64."""

    like: Key | None = None

    offset: Annotated[int, Field(ge=0, le=10_000), Whole] | None = None

    # not strict: JSON has no tuples
    where: Annotated[tuple[Where, ...], Field(max_length=20), Strict(False)] = ()

    marks: dict[Key, MarkName] = Field({}, max_length=500, json_schema_extra={"additionalProperties": False})


class SentencesBody(RequestModel, SentencesRequest):
    """A search for sentences that describe a picture, or that are near to a text."""

    model_config = ConfigDict(json_schema_extra={**SEARCHES, "examples": [{"text": "a green coat", "k": 5}]})

    text: Sentence | None = None
    """A text."""

    image: Picture | None = None
    """A picture file in base64."""

    like: Key | None = None
    """Key of a picture of the store."""

    k: Annotated[int, Field(ge=1), Whole] = 10
    """Largest number of sentences in the answer."""


class ExplainBody(RequestModel):
    """A request to explain a picture's score."""

    text: Sentence
    """A description."""

    id: Key
    """The picture's key."""

    method: WordMethodName = "masked-regression"
    """The method that gives words their weights (docs/searching.md)."""


def search_routes(engine: Engine, worker: Worker, decoding: Decoding, settings: ServerSettings) -> APIRouter:
    """Make the routes that use the model, in the thread of `worker`; `decoding` has those of their images."""
    routes = APIRouter(tags=["search"])
    refusals = declared(400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 500, 503)

    async def decoded(query: SearchRequest) -> SearchRequest:
        if query.image is None:
            return query
        # in other threads than the model's: a large image takes seconds, in which all queries would wait
        return await decoding.run(with_pixels, engine, query, settings.max_pixels)

    def reranks_all(query: SearchRequest) -> bool:
        return (engine.encoder.rerank if query.rerank is None else query.rerank) == "all"

    def bounded(query: SearchRequest) -> SearchRequest:
        """Limit what a query re-ranks of all: refuse a client's "all" beyond the limit, and cut a recipe's."""
        # cut, because the client has asked for nothing: refused, each query of such a model would be an error
        if len(engine.files) <= settings.max_rerank:
            return query
        if query.rerank == "all":
            raise RefusedError(422, f"rerank: this server re-ranks at most {settings.max_rerank:,}")
        alone = query.image is None and query.like is None and not query.is_moved
        by_reranker = engine.encoder.reranker is not None and alone
        return query.replace(rerank=settings.max_rerank) if by_reranker else query

    @Rules(right="search", audit="search", large=True)
    @routes.post("/v1/search", responses=refusals)
    async def search(body: SearchBody, request: Request) -> Answer:
        """Find the pictures that fit best."""
        # before the waiting and decoding: `took_ms` is what the client has waited here
        began = time.perf_counter()
        # before anything can fail: refused queries are recorded as well
        note(request.scope, **asked_of(body))
        query = _checked(body, settings)
        if reranks_all(query):
            # it counts the rows of the store, and the reading of a disk must not hold up the event loop
            query = await run_in_threadpool(bounded, query)
        asked = worker.ask(await decoded(query))
        answer = await unless_disconnected(request, asked, settings.query_seconds)
        # after the engine, which answers the library with the same hits and their paths
        hits = pictures_that_fit([for_clients(hit, settings) for hit in answer.hits], settings.max_answer)
        note(request.scope, found=[hit.id for hit in hits])
        took = round(1000 * (time.perf_counter() - began), 2)
        left_out = len(answer.hits) - len(hits)
        return answer.model_copy(update={"hits": hits, "left_out": left_out, "took_ms": took})

    @Rules(right="search", audit="sentences", large=True)
    @routes.post("/v1/sentences", responses=refusals)
    async def sentences(body: SentencesBody, request: Request) -> SentencesAnswer:
        """Find the sentences of the store that describe a picture best."""
        note(request.scope, **asked_of(body))
        _check_k(body, settings)
        query = await decoded(SearchRequest(**dict(body)))
        asked = worker.call(engine.sentences, query)
        found_hits = await unless_disconnected(request, asked, settings.query_seconds)
        hits = sentences_that_fit(found_hits, settings.max_answer)
        # also for images that the store no longer holds: their sentences tell of them all the same
        found = [hit.id or key_of(str(hit.path)) for hit in hits if hit.path is not None]
        note(request.scope, found=found, count=len(hits))
        if not settings.show_paths:
            hits = tuple(hit.model_copy(update={"path": None}) for hit in hits)
        return SentencesAnswer(
            sentences=hits, total=engine.sentence_count, left_out=len(found_hits) - len(hits)
        )

    @Rules(right="search", audit="explain")
    @routes.post("/v1/explain", responses=refusals)
    async def explain(body: ExplainBody, request: Request) -> Explanation:
        """Say what a picture's score does without each word, and which regions a reranker looked at."""
        note(request.scope, **body.model_dump())
        return await unless_disconnected(
            request, worker.call(engine.explain, body.text, body.id, body.method)
        )

    return routes


def _check_k(body: SentencesRequest, settings: ServerSettings) -> None:
    # a limit of this server, so not in the model of the body, which is the same for all
    if body.k > settings.max_k:
        raise RefusedError(422, f"k: this server gives at most {settings.max_k} answers, got {body.k}")


def _checked(body: SearchRequest, settings: ServerSettings) -> SearchRequest:
    """Hold a request against the limits of this server. Raises `RefusedError`."""
    _check_k(body, settings)
    if isinstance(body.rerank, int) and body.rerank > settings.max_rerank:
        raise RefusedError(
            422, f"rerank: this server re-ranks at most {settings.max_rerank:,}, got {body.rerank:,}"
        )
    conditions_of(body.where, paths=settings.show_paths)
    # without the form of HTTP: from here on it is a request like any other
    return SearchRequest(**dict(body))

"""The server's app: its routes, and around them access, rate and size limits."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Security
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from limner.alert_reports import AlertReport
from limner.search.engine import Engine
from limner.search.store import Store
from limner.search.store_info import store_info
from limner.server.access import Access, forget, remember, rights_of
from limner.server.answer_forms import Compressing, Guarded, HeadRequests, fields_that_fit
from limner.server.audit import AuditLog
from limner.server.audit_routes import Auditing, note
from limner.server.batching import Worker
from limner.server.counters import MEDIA_TYPE, Counters
from limner.server.following import Follower, Found, following_routes
from limner.server.health import Health, Probe, health_routes
from limner.server.limits import Bodies, Buckets, RateLimit, Unread
from limner.server.page import RootPath, page_routes
from limner.server.pictures import Decoding
from limner.server.problems import Fault, declared, expect_known, install_handlers, problem_schema
from limner.server.request_log import RequestLog
from limner.server.routes import Routes, Ruled, Rules
from limner.server.routes_alerts import alert_routes
from limner.server.routes_embeddings import embedding_routes
from limner.server.routes_export import export_routes
from limner.server.routes_items import item_routes
from limner.server.routes_search import search_routes
from limner.server.settings import ServerSettings
from limner.server.tokens import Tokens, read_tokens
from limner.server.uploads import Changes
from limner.store_reports import ProbeName, SyncReport
from limner.wire import StoreInfo

_ABOUT = (
    "Find the pictures of a store by a description, by a picture, or by both. "
    "What is refused is told as `application/problem+json`."
)


def create_app(
    store: Store,
    settings: ServerSettings | None = None,
    *,
    told: Callable[[SyncReport | AlertReport | str], None] | None = None,
    found: Found | None = None,
) -> FastAPI:
    """Make the app that serves a store, by itself or mounted in another app.

    If it is mounted (`other.mount("/pictures", app)`), its page, routes and description lie below that path; token,
    limits and audit log are its own. The lifespan of a mounted app does not run: call `app.state.turn_away()` when
    the other app ends, or let its threads, which are daemons, end with the process.

    With `settings.watch`, `told` is called with what was done, with what alerts have found, and with a line for what
    went wrong. `found` is what alerts have found so far, with their web hooks, for an app in the place of another one:
    whoever gives it is told of these by it, and closes its `hooks`.

    Raises `SettingsError` for an uploads folder or audit log that cannot be written, and for a file of tokens that
    cannot be read.
    """
    settings = settings or ServerSettings()
    engine = store.engine
    engine.words.search_folders(settings.show_paths)
    counters = Counters(engine.files.fingerprint)
    worker = Worker(
        engine.begin,
        seconds=settings.query_seconds,
        max_batch=settings.max_batch,
        max_waiting=settings.max_waiting,
        on_batch=counters.batches.observe,
        on_wait=counters.waits.observe,
        observe=counters.stage,
    )
    decoding = Decoding(on_seconds=partial(counters.stage, "decode"))
    changes = Changes(engine, settings.uploads)
    audit, needed = None, dict[ProbeName, Callable[[], object]]()
    if settings.audit is not None:
        audit = AuditLog(settings.audit, days=settings.audit_days, fsync=settings.audit_fsync)
        needed["audit"] = audit.check
    if settings.tokens is not None:
        # of its own: `Tokens` is for asyncio's loop alone
        needed["tokens"] = partial(read_tokens, settings.tokens)
    health = Health(engine, worker, settings, needed)
    follower, alerts = None, found or Found(told)
    if settings.watch:
        follower = Follower(engine, settings.kept_days, told, found=alerts, worker=worker, audit=audit)
    counters.follow(
        pictures=lambda: health.pictures,
        changed_at=lambda: health.changed_at,
        waiting=lambda: worker.waiting,
        decoding=lambda: decoding.waiting,
        ready=lambda: not health.faults(),
        away=lambda: None if follower is None else follower.away,
        doubted=lambda: None if follower is None else follower.doubted,
        probes={probe.name: partial(_is_up, probe) for probe in health.probes},
    )
    needs_token = settings.token is not None or settings.tokens is not None
    tokens = Tokens(settings.token, settings.tokens) if needs_token else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if follower is not None:
            follower.start()
        async with health.timed():
            yield
        if follower is not None:
            follower.stop()
        health.stop()
        # these wait for what has begun, which the event loop must not
        await run_in_threadpool(worker.close)
        if found is None:
            await run_in_threadpool(alerts.hooks.close)
        if audit is not None:
            audit.close()

    app = FastAPI(
        title="limner",
        description=_ABOUT,
        version=version("limner"),
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url="/docs" if settings.docs else None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    # uvicorn runs the lifespan's end after all requests: a server that stops earlier turns them away by this
    app.state.turn_away = partial(_turn_away, health, worker)
    app.state.following = None if follower is None else follower.now
    # at the first sign that the server stops, while it still answers
    app.state.stopping = health.stop
    # in the one thread that changes the store
    app.state.between = worker.change
    app.state.settled = health.settled
    # of connections that end before their request reaches the app
    app.state.refused = lambda reason: counters.refusals.labels(reason).inc()
    # of the file of settings that SIGHUP reads: False if it was refused, and this app stays
    app.state.reloaded = counters.reloaded.set
    # `limner.server.connections.Server` counts the bytes that its clients have not read; under others nobody does
    app.state.unread = lambda: 0
    # outermost last: who is not let in has no body read, an unread body ends the connection whoever refuses it, every
    # refusal has the guarded headers and is counted
    allowed, guesses, opened = (
        Buckets(settings.rate, settings.burst) if settings.rate else None for _ in range(3)
    )
    app.add_middleware(HeadRequests)
    app.add_middleware(Compressing)
    # what is counted as unread is what has been compressed
    app.add_middleware(Unread, unread=lambda: app.state.unread())
    if allowed is not None:
        app.add_middleware(RateLimit, buckets=allowed)
    app.add_middleware(Access, tokens=tokens, hosts=settings.hosts, guesses=guesses, opened=opened)
    app.add_middleware(Bodies, largest=settings.max_body)
    if audit is not None:
        app.add_middleware(Auditing, audit=audit, files=engine.files)
    app.add_middleware(Guarded)
    app.add_middleware(RequestLog, counters=counters)
    routes = Routes()
    app.add_middleware(Ruled, routes=routes)
    if settings.root_path:
        app.add_middleware(RootPath, root_path=settings.root_path)
    app.state.routes = routes
    # before `RootPath` has seen the request
    app.state.changes = lambda scope: routes.find({**scope, "root_path": settings.root_path}).changes

    folder = changes.folder
    # absolute, as the store spells paths: by it the routes tell an upload from other images
    settings = settings.model_copy(update={"uploads": folder})
    behind_token = (
        search_routes(engine, worker, decoding, settings),
        embedding_routes(engine, worker, decoding, settings),
        export_routes(engine, settings),
        item_routes(engine, worker, changes, settings),
        _server_routes(engine, health, counters, settings),
        following_routes(follower, paths=settings.show_paths),
        alert_routes(engine, worker, alerts, settings),
    )
    # FastAPI's own: the description, and a page of it that loads its parts from elsewhere
    for route in app.routes:
        is_page = getattr(route, "path", None) == app.docs_url
        routes.add([route], Rules(is_open=True, policy=None) if is_page else Rules(is_open=True))
    # for the description only: FastAPI checks dependencies after it has parsed the body, the middleware before
    guarded = [Security(HTTPBearer(auto_error=False))] if needs_token else []
    # of the page none: its addresses are shared with whatever a mail program adds to them
    strict = [Depends(expect_known)]
    for router in (*behind_token, health_routes(health), page := page_routes(), _forgetting()):
        routes.add(router.routes)
        others = guarded if router in behind_token else []
        app.include_router(router, dependencies=others if router is page else [*strict, *others])
    place = engine.files.folder
    # a store opened by a relative path may be named either way in a message
    secret = {str(place), *([str(place.absolute())] if isinstance(place, Path) else [])}
    install_handlers(app, [*sorted(secret, key=len, reverse=True), *([str(folder)] if folder else [])])
    _describe_openapi(app, settings)
    return app


def _forgetting() -> APIRouter:
    """Make the route that is open so that a token which is not taken any more is forgotten, too."""
    routes = APIRouter(tags=["server"])

    @Rules(is_open=True)
    @routes.delete("/v1/token", status_code=204, responses=declared(429, 421, 500))
    async def forgotten(request: Request, response: Response) -> None:
        """Let this browser forget the token."""
        forget(request.scope, response)

    return routes


def _server_routes(engine: Engine, health: Health, counters: Counters, settings: ServerSettings) -> APIRouter:
    """Make the routes that tell of the server itself."""
    routes = APIRouter(tags=["server"])
    always = (421, 500)

    @Rules(right="search", audit="info")
    @routes.get("/v1/info", responses=declared(401, 403, 429, 503, *always))
    def info(request: Request) -> StoreInfo:
        """Describe the store, its model, this server's limits, and what the token allows."""
        rights = rights_of(request.scope)
        changes = settings.changes and "erase" in rights
        adds = settings.changes and settings.uploads is not None and "add" in rights
        told = store_info(engine, max_k=settings.max_k, changes=changes, adds=adds)
        note(request.scope, count=told.pictures)
        return told.model_copy(update={"fields": fields_that_fit(told.fields, settings.max_answer)})

    @Rules()
    @routes.post("/v1/token", status_code=204, responses=declared(401, 429, 503, *always))
    async def remembered(request: Request, response: Response) -> None:
        """Let this browser remember the token for 90 days, in a cookie that no script reads."""
        remember(request.scope, response)

    @Rules(cost=0.0)
    @routes.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"description": "Counters.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **declared(401, 429, 503, *always),
        },
    )
    async def metrics() -> Response:
        """Counters in the text form of Prometheus."""
        # no thread, and no disk: a scrape is answered while both hang
        await health.settled()
        return Response(counters.text(), media_type=MEDIA_TYPE)

    return routes


def _is_up(probe: Probe) -> bool:
    return probe.report().reason is None


def _turn_away(health: Health, worker: Worker, seconds: float = 1.0) -> None:
    health.stop()
    worker.close(seconds)


def _describe_openapi(app: FastAPI, settings: ServerSettings) -> None:
    """Add problems and the limits of this server to `/openapi.json`."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                servers=[{"url": settings.root_path}] if settings.root_path else None,
            )
            schemas = schema["components"]["schemas"]
            schemas["Problem"] = problem_schema()
            schemas["Fault"] = Fault.model_json_schema()
            for model in () if settings.show_paths else ("Hit", "Item", "FoundSentence"):
                schemas[model]["properties"].pop("copies", None)
                del schemas[model]["properties"]["path"]
            for model, always in (("Answer", "took_ms"), ("StoreInfo", "max_k")):
                # null in the library only
                described = schemas[model]["properties"][always]
                described.update(described.pop("anyOf")[0])
                schemas[model]["required"] = sorted({*schemas[model]["required"], always})
            for body in ("SearchBody", "SentencesBody"):
                schemas[body]["properties"]["k"]["maximum"] = settings.max_k
            schemas["SearchBody"]["properties"]["rerank"]["anyOf"][0]["maximum"] = settings.max_rerank
            app.openapi_schema = schema
        return app.openapi_schema

    # the way to change it that FastAPI documents
    app.openapi = openapi  # type: ignore[method-assign]

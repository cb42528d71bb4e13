"""The server's counters, in the text form of Prometheus."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = CONTENT_TYPE_LATEST

# from an answer out of memory to `query_seconds`, the longest that a query may take
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# up to `max_batch`
_QUERIES = (1, 2, 4, 8, 16, 32, 64)


class Counters:
    """The counters of one app, in a registry of their own.

    `pictures` and `waiting` are called when somebody reads the counters.
    """

    def __init__(self, pictures: Callable[[], int], waiting: Callable[[], int]) -> None:
        # of its own: two apps in one process would register the same names in the global one, which raises
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        # each combination is a series that Prometheus keeps for good, so no label may come from a client
        labels = ["route", "method", "status"]
        self.requests = Counter("limner_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "limner_request_seconds",
            "Time from a request's arrival to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "limner_batch_queries",
            "Queries that were answered together.",
            buckets=_QUERIES,
            registry=self.registry,
        )
        held = Gauge("limner_store_pictures", "Pictures in the store.", registry=self.registry)
        # read when asked for: other processes add images, too
        held.set_function(pictures)
        queue = Gauge("limner_waiting_requests", "Requests that wait for the model.", registry=self.registry)
        queue.set_function(waiting)

    def text(self) -> bytes:
        """Write all counters as Prometheus reads them."""
        return generate_latest(self.registry)


class Counting:
    """ASGI middleware that counts requests by route, method and status, and times them."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self.app = app
        self.counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count how it was answered."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        # 500 unless an answer begins: a bug leaves this middleware as an exception
        began, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            return await self.app(scope, receive, watched)
        finally:
            # the route's pattern, not the address: one label for all images, none for what clients make up
            route = getattr(scope.get("route"), "path", "other")
            # likewise: HTTP allows any word as a method
            method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE") else "other"
            self.counters.requests.labels(route, method, str(status)).inc()
            self.counters.seconds.labels(route).observe(time.perf_counter() - began)

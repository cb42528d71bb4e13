"""The server's counters, in the text form of Prometheus."""

import math
import platform
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import Scope

from limner.search.stage_times import Stage
from limner.server.problems import reason_of
from limner.server.routes import method_name, route_name

MEDIA_TYPE = CONTENT_TYPE_LATEST

# from an answer out of memory to `query_seconds`, the longest that a query may take
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# up to `max_batch`
_QUERIES = (1, 2, 4, 8, 16, 32, 64)
_STAGES: tuple[Stage, ...] = ("encode", "search", "rerank", "decode")


class Counters:
    """The counters of one app, in a registry of their own.

    Gauges get functions with `follow`, which are called when somebody reads the counters and must not wait for a disk.
    """

    def __init__(self, fingerprint: str) -> None:
        # of its own: two apps in one process would register the same names in the global one, which raises
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        # each combination is a series that Prometheus keeps for good, so no label may come from a client
        labels = ["route", "method", "status"]
        self.requests = Counter("limner_requests", "Requests answered.", labels, registry=self.registry)
        self.refusals = Counter(
            "limner_refusals",
            "Requests refused, by reason; also connections that were closed before their request was read.",
            ["reason"],
            registry=self.registry,
        )
        self.seconds = self._histogram(
            "limner_request_seconds", "Time from a request's arrival to the end of its answer.", ["route"]
        )
        self.batches = Histogram(
            "limner_batch_queries",
            "Queries that were answered together.",
            buckets=_QUERIES,
            registry=self.registry,
        )
        self.waits = self._histogram(
            "limner_queue_wait_seconds", "Time that a request has waited for the model.", []
        )
        self.stages = self._histogram(
            "limner_stage_seconds",
            "Time of the parts of queries; texts of a batch are encoded together.",
            ["stage"],
        )
        for stage in _STAGES:
            # a series that begins at 0: the first rise of one that appears with a value is lost to `rate`
            self.stages.labels(stage)
        build = Info("limner_build", "Versions of what runs.", registry=self.registry)
        build.info(
            {
                "version": version("limner"),
                "python": platform.python_version(),
                "torch": _torch_version(),
            }
        )
        model = Info("limner_model", "Digest of the model.", registry=self.registry)
        model.info({"fingerprint": fingerprint})

        self.reloaded = Gauge(
            "limner_last_reload_successful",
            "0 if what SIGHUP was to read anew was refused, and the server goes on as it was.",
            registry=self.registry,
        )
        self.reloaded.set(1)

    def _histogram(self, name: str, text: str, labels: list[str]) -> Histogram:
        return Histogram(name, text, labels, buckets=_SECONDS, registry=self.registry)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered, and a refusal by its reason."""
        # the route's pattern, not the address: one label for all images, none for what clients make up
        route = route_name(scope)
        self.requests.labels(route, method_name(scope), str(status)).inc()
        self.seconds.labels(route).observe(seconds)
        if status >= 400:
            self.refusals.labels(reason_of(scope, status)).inc()

    def stage(self, stage: Stage, seconds: float) -> None:
        """Count the seconds of a stage."""
        self.stages.labels(stage).observe(seconds)

    def follow(
        self,
        *,
        pictures: Callable[[], int | None],
        changed_at: Callable[[], float | None],
        waiting: Callable[[], int],
        decoding: Callable[[], int],
        ready: Callable[[], bool],
        away: Callable[[], int | None],
        doubted: Callable[[], int | None],
        probes: Mapping[str, Callable[[], bool]],
    ) -> None:
        """Make the gauges. None becomes NaN, so that it is not read as 0 or as an old value.

        `waiting`, `decoding`: requests that wait for the model, and images that wait to be decoded; `ready`: what
        `/readyz` says; `away`, `doubted`: what `/v1/following` says, None where no folder is watched; `probes`: the
        state of each probe by its name.
        """
        gauges: dict[str, tuple[str, Callable[[], int | float | None]]] = {
            "limner_store_pictures": ("Pictures in the store; NaN while it cannot be read.", pictures),
            "limner_last_commit_timestamp_seconds": (
                "Time of the last change of the store, in seconds since 1970; NaN while it cannot be read.",
                changed_at,
            ),
            "limner_waiting_requests": ("Requests that wait for the model.", waiting),
            "limner_ready": ("1 if /readyz says so.", ready),
            "limner_folders_away": ("Followed folders that seem to be away; NaN without --watch.", away),
            "limner_pictures_doubted": (
                "Pictures that stay though their files are gone, so many that a disk may be away; NaN without --watch.",
                doubted,
            ),
            "limner_waiting_pictures": ("Pictures that wait to be decoded, or are.", decoding),
        }
        for name, (text, function) in gauges.items():
            Gauge(name, text, registry=self.registry).set_function(partial(_called, function))
        state = Gauge(
            "limner_probe_up",
            "1 if the server's probe of this part succeeds.",
            ["probe"],
            registry=self.registry,
        )
        for name, is_up in probes.items():
            state.labels(name).set_function(partial(_called, is_up))

    def text(self) -> bytes:
        """Write all counters as Prometheus reads them."""
        return generate_latest(self.registry)


def _called(function: Callable[[], int | float | None]) -> float:
    value = function()
    return math.nan if value is None else float(value)


def _torch_version() -> str:
    """The installed version, without the import; "" on a machine that searches by an exported tower."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""

"""Workers of a Ray cluster that look at images and encode them: `limner index --cluster`.

Each worker holds the model. Lists of paths go to the workers, and facts, embeddings, region features and thumbnails
come back through Ray's object store; pixels never do. The process that called writes what comes back, under the
store's lock and in commits as always: rows replace those of the same key, sentences of replaced pictures are forgotten,
and each row has its digest. Fragments that workers write where they are would need all of that a second time, since
Lance's Append replaces no key, and what would be saved is small: some kilobytes a picture.

A list whose worker was killed is done again, by any worker, and only an answer is written: nothing is lost, and nothing
is there twice. A list that kills its worker twice is halved, so that one picture that kills whoever reads it is found
and listed, and the others are indexed.
"""

import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limner.errors import ClusterError, LimnerError, SettingsError, install_hint
from limner.export.exported import ExportedModel, load_export
from limner.search.batch_look import Looked, looked_at, skips
from limner.search.image_look import Task
from limner.types import Encoder

if TYPE_CHECKING:
    # its import takes torch
    from limner.inference.precision import InferenceEngine

LOCAL = "local"
"""The address of a cluster of this machine alone, which is started and ended with the call."""

_AT_ONCE = 3
"""Lists at one worker: one is decoded while another is encoded, and the third is there when that ends."""

_START = 600.0
"""Seconds that all workers may take to start: an autoscaler may have to find machines."""

_DEATHS = 5
"""Deaths for each worker without one answer in between that are put down to pictures; after more, all ends."""


@dataclass(frozen=True)
class Share:
    """The part of a machine that a worker has."""

    cpus: int
    gpus: int = 0


class Worker:
    """The actor: an encoder and threads that decode. Lists are done two at a time (`max_concurrency`)."""

    def __init__(self, load: Callable[[], Encoder], cpus: int, regions: bool) -> None:
        self._load, self._cpus, self._regions = load, cpus, regions
        self._encoding = threading.Lock()

    def open(self) -> tuple[str, str]:
        """Load the model and return its fingerprint, and the version of limner."""
        # not in __init__: of an error there Ray tells the text alone
        self._threads = ThreadPoolExecutor(self._cpus)
        self._encoder = self._load()
        return self._encoder.fingerprint, version("limner")

    def look(self, tasks: Sequence[Task]) -> Looked:
        """Do one list."""
        return looked_at(tasks, self._encoder, self._threads, self._encoding, regions=self._regions)


@contextmanager
def connected(address: str) -> Iterator["Cluster"]:
    """Connect to a cluster: "local" for one of this machine alone, or `ray://HOST:PORT` of a cluster's client server.

    To be called before a store is opened: Ray starts its processes by fork, which LanceDB's threads may not survive.
    Raises as `check_address`, and `ClusterError` for a cluster that cannot be reached.
    """
    ray = check_address(address)
    _connect(ray, address)
    try:
        yield Cluster(ray)
    finally:
        # of a cluster of others, this ends the actors of this call alone
        ray.shutdown()


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    ray: Any

    def workers(
        self,
        load: Callable[[], Encoder],
        fingerprint: str,
        *,
        regions: bool = False,
        cpu: bool = False,
        shares: Sequence[Share] | None = None,
    ) -> "RayWorkers":
        """Start a worker on each accelerator of the cluster, or on each machine if it has none.

        - `load`: gives the model on a worker (`loader`); pictures and model have the same paths there as here.
        - `fingerprint`: that of the model here, which each worker's has to equal.
        - `regions`: the store keeps region features. `cpu`: no accelerator is used. `shares`: other workers.

        Raises `ClusterError` for a cluster without a processor; while the workers are used what `load` raises, and
        `ClusterError` for workers that find no room or die again and again.
        """
        chosen = _shares(self.ray.nodes(), cpu) if shares is None else shares
        return RayWorkers(self.ray, partial(_actor, self.ray, load, regions), fingerprint, chosen)


def check_address(address: str) -> Any:
    """The library Ray. Raises `SettingsError` if it is not installed, or if it cannot be an address of a cluster."""
    if address != LOCAL and not address.startswith("ray://"):
        raise SettingsError(f"--cluster: expected 'local' or ray://HOST:PORT, got {address[:80]!r}")
    # Ray reads both when it is imported. It would tell its makers of each use
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # a cluster of this machine listens on its network, too: without the token nobody can give it work. Ray's client
    # sends no token unless it is told, and then waits for half a minute for an answer
    if address == LOCAL or _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError:
        raise SettingsError(f"--cluster: Ray is not installed; {install_hint('cluster')}") from None
    return ray


def _has_token() -> bool:
    named = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    return bool(named) or (Path.home() / ".ray" / "auth_token").is_file()


def loader(
    encoder: Encoder, *, cpu: bool = False, engine: "InferenceEngine" = "torch"
) -> Callable[[], Encoder]:
    """The call that loads a model of limner once more, on another machine with the same files.

    Raises `SettingsError` for a model that has no files.
    """
    path = getattr(encoder, "path", None)
    if not isinstance(path, Path):
        raise SettingsError(
            "--cluster: needs a model that workers can load by its path: a run, or an export of one"
        )
    # workers have another working directory
    if isinstance(encoder, ExportedModel):
        return partial(load_export, path.absolute())
    # here: torch takes two seconds to load, which an export need not wait for
    from limner.inference.load import load_model

    device = "cpu" if cpu else None
    # that of this process: its processor may be of another kind
    precision = getattr(encoder, "precision", None)
    return partial(load_model, path.absolute(), device=device, precision=precision, engine=engine)


class RayWorkers:
    """Workers on a cluster; a `limner.search.batch_look.Workers`. One that dies is replaced."""

    def __init__(
        self, ray: Any, start: Callable[[Share], Any], fingerprint: str, shares: Sequence[Share]
    ) -> None:
        self._ray, self._start = ray, start
        self._expected = fingerprint, version("limner")
        errors = ray.exceptions
        # of a machine that is lost after the work, the answer is lost; memory is watched by Ray, which kills
        self._killed = (
            *(errors.RayActorError, errors.OutOfMemoryError, errors.WorkerCrashedError),
            *(errors.ObjectLostError, errors.NodeDiedError),
        )
        self._deaths, self._most = 0, _DEATHS * len(shares)
        self._starting: dict[Any, _Hand] = {}
        self._ready: list[_Hand] = []
        self._again: deque[_Attempt] = deque()
        for share in shares:
            self._begin(share)

    def looks(self, lists: Iterable[Sequence[Task]]) -> Iterator[Looked]:
        """Yield the answer to each list once, as they come. Raises as `Cluster.workers`."""
        try:
            yield from self._looks(iter(lists))
        # Python's own, which Ray's client raises where it cannot come back to a server
        except ConnectionError as error:
            raise ClusterError(
                f"--cluster: the connection was lost ({error}); what is written stays, and the same command goes on"
            ) from None

    def _looks(self, source: Iterator[Sequence[Task]]) -> Iterator[Looked]:
        first = next(source, None)
        if first is None:
            # all is known: no need to wait for workers
            return
        source = chain([first], source)
        since = time.monotonic()
        while True:
            all_given = self._hand_out(source)
            at_work = {answer: hand for hand in self._ready for answer in hand.at_work}
            if all_given and not at_work and not self._again:
                return
            if self._ready:
                since = time.monotonic()
            # Ray itself would wait: a machine may join. That of a local cluster, or the head, does not come back
            elif not any(node["Alive"] for node in self._ray.nodes()):
                raise ClusterError(
                    "--cluster: Ray has lost all machines of the cluster; what is written stays, and the same command "
                    "goes on"
                )
            elif time.monotonic() - since > _START:
                raise ClusterError(
                    f"--cluster: no worker has started in {_START:.0f} seconds; each needs a whole machine, or an "
                    "accelerator of its own, that no other job has: look at `ray status`"
                )
            # a second: Ctrl-C must not wait for an answer
            for answer in self._ray.wait([*at_work, *self._starting], num_returns=1, timeout=1.0)[0]:
                if answer in at_work:
                    yield from self._answers(at_work[answer], answer)
                else:
                    self._welcome(answer)

    def _hand_out(self, source: Iterator[Sequence[Task]]) -> bool:
        """Give lists to workers that have room, evenly; True if the source has no more."""
        for room in range(_AT_ONCE):
            for hand in self._ready:
                if len(hand.at_work) > room or any(attempt.deaths for attempt in hand.at_work.values()):
                    continue
                # alone: of several lists at a worker that dies, nobody knows which has killed it
                if self._again and not hand.at_work:
                    attempt = self._again.popleft()
                elif (tasks := next(source, None)) is not None:
                    attempt = _Attempt(tasks)
                else:
                    return True
                hand.at_work[hand.actor.look.remote(attempt.tasks)] = attempt
        return False

    def _answers(self, hand: "_Hand", answer: Any) -> Iterator[Looked]:
        try:
            looked = self._get(answer)
        except self._killed as error:
            self._ready.remove(hand)
            self._replace(hand, error)
            for attempt in hand.at_work.values():
                yield from self._once_more(attempt)
            return
        del hand.at_work[answer]
        self._deaths = 0
        yield looked

    def _once_more(self, attempt: "_Attempt") -> Iterator[Looked]:
        """Do a list again whose worker has died: the whole, and if it was alone with the worker, its halves."""
        tasks = attempt.tasks
        if attempt.deaths == 0:
            self._again.append(_Attempt(tasks, 1))
        elif len(tasks) > 1:
            middle = len(tasks) // 2
            self._again += [_Attempt(tasks[:middle], 1), _Attempt(tasks[middle:], 1)]
        elif attempt.deaths == 1:
            # a machine may have failed in this moment
            self._again.append(_Attempt(tasks, 2))
        else:
            self._deaths = 0
            yield Looked(skips(tasks[0], "each worker that read it was killed"), [], None)

    def _begin(self, share: Share) -> None:
        actor = self._start(share)
        self._starting[actor.open.remote()] = _Hand(actor, share)

    def _welcome(self, opened: Any) -> None:
        hand = self._starting.pop(opened)
        try:
            found = self._get(opened)
        except self._killed as error:
            self._replace(hand, error)
            return
        if found != self._expected:
            told = " and ".join(
                f"model {model[:12]} of limner {release}" for model, release in (found, self._expected)
            )
            raise ClusterError(
                f"--cluster: a worker and this process have {told}; on each machine the same limner has to be "
                "installed, and the same model lie at the same path"
            )
        self._ready.append(hand)

    def _replace(self, hand: "_Hand", error: Exception) -> None:
        self._deaths += 1
        if self._deaths > self._most:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ClusterError(
                f"--cluster: workers died {self._deaths} times without doing any list ({reason}); is their memory "
                "enough? What is written stays, and the same command goes on"
            )
        # one that Ray only cannot reach would keep the share from its successor
        self._ray.kill(hand.actor)
        self._begin(hand.share)

    def _get(self, answer: Any) -> Any:
        try:
            return self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            # Ray makes a class of both, whose text is a stack trace
            if isinstance(error.cause, LimnerError):
                # a path that is named in it may exist here
                raise type(error.cause)(f"on a worker of the cluster: {error.cause}") from None
            raise


@dataclass(eq=False)
class _Hand:
    """A worker with the answers that it owes."""

    actor: Any
    share: Share
    at_work: "dict[Any, _Attempt]" = field(default_factory=dict)


@dataclass(frozen=True)
class _Attempt:
    """A list, and how often its worker has died: at first among others, then alone."""

    tasks: Sequence[Task]
    deaths: int = 0


def _connect(ray: Any, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if address == LOCAL:
        quiet["include_dashboard"] = False
    try:
        with warnings.catch_warnings():
            # of a server that does not answer, which is told below
            warnings.simplefilter("ignore")
            ray.init(address=address, **quiet)
    # of a raylet that does not come up, or is killed meanwhile, Ray raises a bare Exception
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if address == LOCAL:
            raise ClusterError(
                f"--cluster local: Ray has not started ({reason}); the same command tries it again"
            ) from None
        raise ClusterError(
            f"--cluster {address}: cannot be reached ({reason}); start it with `ray start --head`, with the Ray and "
            "the Python that are here, and have its token here"
        ) from None


def _shares(nodes: Sequence[Mapping[str, Any]], cpu: bool) -> list[Share]:
    """One worker an accelerator, or one a machine if the cluster has none: a process uses all of a machine's cores."""
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    cores = [(int(found.get("CPU", 0)), 0 if cpu else int(found.get("GPU", 0))) for found in resources]
    # not both: a list takes a processor many times as long as a GPU
    on_gpus = [Share(max(1, cpus // gpus), 1) for cpus, gpus in cores for _ in range(gpus)]
    shares = on_gpus or [Share(cpus) for cpus, _ in cores if cpus]
    if not shares:
        raise ClusterError("--cluster: no machine of the cluster has a processor to work with")
    return shares


def _actor(ray: Any, load: Callable[[], Encoder], regions: bool, share: Share) -> Any:
    # no restarts by Ray: a new worker has to load the model before it is given lists
    options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_concurrency": 2, "max_restarts": 0}
    made = ray.remote(Worker).options(**options, scheduling_strategy="SPREAD")
    return made.remote(load, share.cpus, regions)

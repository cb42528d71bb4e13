"""What is done when workers die, answers are lost, and models differ: on a Ray of the tests' own, without processes."""

import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limner.errors import CheckpointError, ClusterError, SettingsError
from limner.search import cluster
from limner.search.batch_look import Looked, looked_at
from limner.search.cluster import RayWorkers, Share, check_address, connected, loader
from limner.search.image_look import Task
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder, draw
from tests.search.test_batch_look import check_equal, made


class DiedError(Exception):
    pass


class LostError(Exception):
    pass


class TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__("a stack trace")
        self.cause = cause


class Call:
    """A method of an actor; its answer is a call without arguments that `FakeRay.get` makes."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def remote(self, *arguments: Any) -> Any:
        # a function of its own, since answers are keys
        return lambda: self._method(*arguments)


class FakeRay:
    """As much of Ray as `RayWorkers` uses. Each call is made when its answer is asked for."""

    exceptions = SimpleNamespace(
        RayActorError=DiedError,
        OutOfMemoryError=DiedError,
        WorkerCrashedError=DiedError,
        ObjectLostError=LostError,
        NodeDiedError=DiedError,
        RayTaskError=TaskError,
    )

    def __init__(self) -> None:
        self.killed: list[Any] = []
        self.alive = True
        self._random = random.Random(0)

    def wait(self, answers: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert answers
        shuffled = self._random.sample(answers, len(answers))
        return shuffled[:num_returns], shuffled[num_returns:]

    def get(self, answer: Callable[[], Any]) -> Any:
        return answer()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": False}, {"Alive": self.alive}]

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


class Actor:
    """A worker that dies of what `kills` says, after which all that it owes is lost."""

    def __init__(self, kills: Callable[[Sequence[Task]], bool], fingerprint: str = "a" * 64) -> None:
        self._kills, self._dead, self._fingerprint = kills, False, fingerprint
        self.open, self.look = Call(self._open), Call(self._look)
        self.seen: list[int] = []

    def _open(self) -> tuple[str, str]:
        return self._fingerprint, version("limner")

    def _look(self, tasks: Sequence[Task]) -> Looked:
        if self._dead or self._kills(tasks):
            self._dead = True
            raise DiedError("the actor died")
        self.seen.append(len(tasks))
        with ThreadPoolExecutor(1) as threads:
            return looked_at(tasks, FakeEncoder(), threads, threading.Lock(), regions=False)


def started(
    ray: FakeRay, kills: Callable[[Sequence[Task]], bool], count: int = 2
) -> tuple[RayWorkers, list[Actor]]:
    actors: list[Actor] = []

    def start(share: Share) -> Actor:
        actors.append(Actor(kills))
        return actors[-1]

    return RayWorkers(ray, start, "a" * 64, [Share(1)] * count), actors


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [draw(tmp_path / "pictures" / f"{number:02}.png", number) for number in range(40)]


@pytest.fixture
def alone(tmp_path: Path, pictures: list[Path]) -> StoreFiles:
    """The store that one process makes."""
    store = made(tmp_path / "alone")
    index_pictures(FakeEncoder(), store, pictures, batch_size=4)
    return store


def test_lists_are_given_evenly() -> None:
    workers, _ = started(FakeRay(), lambda tasks: False)
    for opened in list(workers._starting):
        workers._welcome(opened)
    tasks = [Task("a.png", None, None)]
    assert workers._hand_out(iter([tasks] * 4))
    assert [len(hand.at_work) for hand in workers._ready] == [2, 2]
    # no more than three each
    left = iter([tasks] * 4)
    assert not workers._hand_out(left)
    assert [len(hand.at_work) for hand in workers._ready] == [3, 3]
    assert len(list(left)) == 2


def test_a_list_whose_worker_died_is_alone_with_the_next() -> None:
    """Otherwise a list beside it would count as one that kills, too."""
    workers, _ = started(FakeRay(), lambda tasks: False)
    for opened in list(workers._starting):
        workers._welcome(opened)
    tasks = [Task("a.png", None, None)]
    suspect = cluster._Attempt(tasks, 1)
    workers._again.append(suspect)
    assert workers._hand_out(iter([tasks] * 2))
    assert [len(hand.at_work) for hand in workers._ready] == [1, 2]
    assert list(workers._ready[0].at_work.values()) == [suspect]
    # nor is it given to one that is at work
    workers._ready[0].at_work.clear()
    workers._hand_out(iter([tasks]))
    workers._again.append(suspect)
    workers._hand_out(iter([]))
    assert list(workers._again) == [suspect]


@pytest.mark.parametrize(("count", "deaths"), [(1, [3]), (3, [3]), (1, [3, 9])])
def test_a_list_whose_worker_died_is_done_again(
    tmp_path: Path, pictures: list[Path], alone: StoreFiles, count: int, deaths: list[int]
) -> None:
    ray, store = FakeRay(), made(tmp_path / "store")
    left = list(deaths)

    def kills(tasks: Sequence[Task]) -> bool:
        left[:] = [number - 1 for number in left]
        return 0 in left

    workers, actors = started(ray, kills, count)
    report = index_pictures(FakeEncoder(), store, pictures, batch_size=4, cluster=workers)
    assert (report.added, report.skipped) == (40, ())
    assert (len(actors), len(ray.killed)) == (count + len(deaths), len(deaths))
    # whole: one death says nothing of the pictures
    assert {size for actor in actors for size in actor.seen} == {4}
    check_equal(store, alone)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("poison", [["17"], ["00"], ["38", "39"], ["03", "20", "21"]])
def test_a_picture_that_kills_its_worker_is_found_and_listed(
    tmp_path: Path, pictures: list[Path], poison: list[str], count: int
) -> None:
    store = made(tmp_path / "store")

    def kills(tasks: Sequence[Task]) -> bool:
        return any(Path(task.path).stem in poison for task in tasks)

    workers, _ = started(FakeRay(), kills, count)
    report = index_pictures(FakeEncoder(), store, pictures, batch_size=8, cluster=workers)
    assert report.added == 40 - len(poison)
    assert [(Path(path).stem, reason) for path, reason in report.skipped] == [
        (name, "each worker that read it was killed") for name in poison
    ]
    good = [path for path in pictures if path.stem not in poison]
    alone = made(tmp_path / "alone")
    index_pictures(FakeEncoder(), alone, good)
    check_equal(store, alone)


def test_workers_that_do_nothing_but_die_end_it(tmp_path: Path, pictures: list[Path]) -> None:
    store = made(tmp_path / "store")
    enough = iter(range(3))
    workers, _ = started(FakeRay(), lambda tasks: next(enough, None) is None)
    with pytest.raises(ClusterError, match=r"died 11 times without doing any list \(the actor died\)"):
        index_pictures(FakeEncoder(), store, pictures, batch_size=4, cluster=workers)
    # what was done stays, and the same call goes on
    assert len(StoreFiles.open(store.folder)) == 12
    workers, _ = started(FakeRay(), lambda tasks: False)
    report = index_pictures(FakeEncoder(), store, pictures, batch_size=4, cluster=workers)
    assert (report.added, report.unchanged) == (28, 12)


def test_errors_of_a_worker_are_those_of_its_cause(
    pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [[Task(str(pictures[0]), None, None)]]

    def failing(error: Exception) -> RayWorkers:
        actor = Actor(lambda tasks: False)

        def open_it() -> None:
            raise error

        actor.open = Call(open_it)
        return RayWorkers(FakeRay(), lambda share: actor, "a" * 64, [Share(1)])

    with pytest.raises(CheckpointError, match=r"^on a worker of the cluster: no model here$"):
        list(failing(TaskError(CheckpointError("no model here"))).looks(lists))
    with pytest.raises(TaskError):
        list(failing(TaskError(ValueError("a bug"))).looks(lists))
    with pytest.raises(ClusterError, match="died 6 times"):
        list(failing(DiedError("no memory")).looks(lists))
    other = RayWorkers(FakeRay(), lambda share: Actor(lambda tasks: False, "b" * 64), "a" * 64, [Share(1)])
    with pytest.raises(
        ClusterError, match=r"model bbbbbbbbbbbb of limner .* and model aaaaaaaaaaaa of limner"
    ):
        list(other.looks(lists))
    waiting = FakeRay()
    monkeypatch.setattr(waiting, "wait", lambda answers, num_returns, timeout: ([], answers))
    monkeypatch.setattr(cluster, "_START", -1.0)
    with pytest.raises(ClusterError, match="no worker has started"):
        list(started(waiting, lambda tasks: False)[0].looks(lists))


def test_a_lost_connection_is_one_line(pictures: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()

    def lost(answers: list[Any], num_returns: int, timeout: float) -> None:
        raise ConnectionError("Client is shutting down.")

    monkeypatch.setattr(ray, "wait", lost)
    with pytest.raises(ClusterError, match=r"connection was lost \(Client is .*the same command goes on"):
        list(started(ray, lambda tasks: False)[0].looks([[Task(str(pictures[0]), None, None)]]))


def test_a_cluster_without_a_machine_is_not_waited_for(
    pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray tells that the actors died, and takes the order for new ones, which nobody starts any more."""
    ray, lists = FakeRay(), [[Task(str(pictures[0]), None, None)]]
    workers, _ = started(ray, lambda tasks: True, 1)
    replace = workers._replace

    def lost(hand: Any, error: Exception) -> None:
        replace(hand, error)
        ray.alive = False
        monkeypatch.setattr(ray, "wait", lambda answers, num_returns, timeout: ([], answers))

    monkeypatch.setattr(workers, "_replace", lost)
    with pytest.raises(ClusterError, match=r"lost all machines of the cluster; .* the same command goes on"):
        list(workers.looks(lists))


def test_without_work_no_worker_is_waited_for() -> None:
    ray = FakeRay()
    workers, _ = started(ray, lambda tasks: pytest.fail("no work"))
    assert list(workers.looks([])) == []


def test_a_lost_answer_is_made_again(tmp_path: Path, pictures: list[Path], alone: StoreFiles) -> None:
    store, ray = made(tmp_path / "store"), FakeRay()
    lost = iter([False] * 4 + [True])

    def get(answer: Callable[[], Any]) -> Any:
        found = answer()
        if next(lost, False):
            raise LostError("its machine is gone")
        return found

    ray.get = get  # type: ignore[method-assign]
    workers, _ = started(ray, lambda tasks: False)
    assert index_pictures(FakeEncoder(), store, pictures, batch_size=4, cluster=workers).added == 40
    check_equal(store, alone)


@pytest.mark.parametrize(
    ("machines", "cpu", "shares"),
    [
        ([{"CPU": 8.0}, {"CPU": 4.0}], False, [Share(8), Share(4)]),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}], False, [Share(4, 1), Share(4, 1)]),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}], True, [Share(8), Share(4)]),
        ([{"CPU": 1.0, "GPU": 2.0}, {"memory": 1.0}], False, [Share(1, 1), Share(1, 1)]),
    ],
)
def test_each_machine_has_its_workers(
    machines: list[dict[str, float]], cpu: bool, shares: list[Share]
) -> None:
    nodes = [{"Alive": True, "Resources": found} for found in machines]
    gone = {"Alive": False, "Resources": {"CPU": 64.0}}
    assert cluster._shares([*nodes, gone], cpu) == shares
    with pytest.raises(ClusterError, match="no machine of the cluster has a processor"):
        cluster._shares([gone], cpu)


def test_a_cluster_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**given: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")

    monkeypatch.setattr(cluster, "check_address", lambda address: SimpleNamespace(init=init))
    for address, told in (
        (
            "local",
            r"^--cluster local: Ray has not started \(The current node .* startup\.\); the same command",
        ),
        (
            "ray://head:10001",
            r"^--cluster ray://head:10001: cannot be reached \(The current node .*; start it",
        ),
    ):
        with pytest.raises(ClusterError, match=told), connected(address):
            pytest.fail("it is connected")


def test_a_wrong_address_and_a_missing_library_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("", "ray", "http://head:10001", "auto"):
        with pytest.raises(SettingsError, match=r"expected 'local' or ray://HOST:PORT, got"):
            check_address(address)
    monkeypatch.setitem(sys.modules, "ray", None)
    for address in ("local", "ray://head:10001"):
        with pytest.raises(SettingsError, match=r"Ray is not installed; .*pip install 'limner\[cluster\]'"):
            check_address(address)


def test_what_ray_is_told_before_it_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No usage reports, ever; a token for a cluster of this machine, and where there is one."""
    names = ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.setenv("HOME", str(tmp_path))

    def told(address: str, **given: str) -> tuple[str | None, str | None]:
        for name in names:
            # set first, so that it is as before when the test has ended
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        check_address(address)
        return os.environ.get(names[0]), os.environ.get(names[1])

    assert told("local") == ("0", "token")
    assert told("ray://head:10001") == ("0", None)
    assert told("ray://head:10001", RAY_AUTH_TOKEN="x" * 64) == ("0", "token")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x" * 64)
    assert told("ray://head:10001") == ("0", "token")
    assert told("ray://head:10001", RAY_AUTH_MODE="disabled") == ("0", "disabled")


def test_a_model_without_files_cannot_be_sent() -> None:
    with pytest.raises(SettingsError, match="load by its path"):
        loader(FakeEncoder())

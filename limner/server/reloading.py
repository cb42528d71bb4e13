"""A server that takes new settings, another model or another store while it answers.

SIGHUP makes a whole new app, of what the files say then. Requests that come from then on go to the new app, those that
have begun end with the old one, and connections stay open. A whole app and not its parts: model, calibration, store,
tokens and limits of one answer then belong together, and what cannot be made leaves the old app as it is. The price is
the memory of two models as long as both are there.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from limner.errors import LimnerError
from limner.server.systemd import notify, notify_reloading

Prepare = Callable[[], Callable[[], FastAPI]]
"""Does the slow part, such as loading a model, and returns the function that makes the app."""

log = logging.getLogger("limner.server")


class _Generation:
    """One app, with the requests that it answers, and the task in which its lifespan runs."""

    def __init__(self, app: FastAPI, before: "_Generation | None" = None) -> None:
        self.app, self.before = app, before
        self.requests = self.changes = 0
        self.changed = asyncio.Condition()
        self._begun, self._ended = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin the app's lifespan, and wait for its first probes: `/readyz` must not say 503 in between."""
        self._task = asyncio.create_task(self._live())
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait([self._task, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._task.done():
            # its exception
            self._task.result()

    async def end(self) -> None:
        """End the lifespan."""
        self._ended.set()
        if self._task is not None:
            await self._task

    async def _live(self) -> None:
        # one task for both ends of it
        async with self.app.router.lifespan_context(self.app):
            self._begun.set()
            await self._ended.wait()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; one that changes the store begins when the app before this one has ended its own."""
        changes = bool(self.app.state.changes(scope))
        self.requests += 1
        self.changes += changes
        try:
            if changes and self.before is not None:
                # two apps that write at once would refuse each other
                await self.before.until(lambda before: not before.changes)
            await self.app(scope, receive, send)
        finally:
            self.requests -= 1
            self.changes -= changes
            async with self.changed:
                self.changed.notify_all()

    async def until(self, holds: "Callable[[_Generation], bool]") -> None:
        """Wait until something holds of the requests."""
        async with self.changed:
            await self.changed.wait_for(lambda: holds(self))


class Reloading:
    """ASGI app that passes requests on to the newest of its apps, and makes a new one at SIGHUP.

    `app`: the first one; `prepare` prepares each further one, in a thread, and raises `LimnerError` if it cannot be
    made. It has the `state` of an app of `limner.server.app.create_app`, which `limner.server.connections.Server` uses.
    """

    def __init__(self, app: FastAPI, prepare: Prepare) -> None:
        self._now, self._prepare = _Generation(app), prepare
        self._old: set[_Generation] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._reload: asyncio.Task[None] | None = None
        self._is_asked = self._stops = False
        self.state = State()
        self.state.turn_away = self._turn_away
        self.state.stopping = self._stopping
        self.state.refused = lambda reason: self._now.app.state.refused(reason)
        self.state.unread = lambda: 0
        self._connect(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or run the lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._now.answer(scope, receive, send)

    def reload(self) -> None:
        """Begin to make a new app; asked again meanwhile, another one follows. To be called in asyncio's loop."""
        self._is_asked = not self._stops
        if self._is_asked and (self._reload is None or self._reload.done()):
            self._reload = asyncio.create_task(self._renew())

    def reload_later(self) -> None:
        """Make a new app as soon as the first one has begun: for a SIGHUP that comes before there is a loop."""
        self._is_asked = True

    async def _renew(self) -> None:
        while self._is_asked:
            self._is_asked = False
            notify_reloading()
            try:
                await self._replace(await asyncio.to_thread(self._prepare))
            except LimnerError as error:
                self._now.app.state.reloaded(False)
                log.error("SIGHUP: %s; the server goes on as it was", error)
                notify(f"STATUS=SIGHUP: {error}".replace("\n", " "))
            except Exception as error:
                self._now.app.state.reloaded(False)
                # of a bug its kind alone: its message may hold anything
                log.error("SIGHUP: %s; the server goes on as it was", type(error).__name__)
            else:
                log.warning("SIGHUP: settings, tokens, model and store have been read anew")
                notify("STATUS=")
            notify("READY=1")

    async def _replace(self, make: Callable[[], FastAPI]) -> None:
        old = self._now
        for one in self._old:
            # after two reloads in a second the one before the last may still write to a store that comes back now; no
            # further request goes to it
            await one.until(lambda one: not one.changes)
        # in the thread that changes the store: a new app looks after what an interrupted change has left
        app = await asyncio.wrap_future(old.app.state.between(make))
        if self._stops:
            return
        self._connect(app)
        new = _Generation(app, old)
        await new.begin()
        await app.state.settled()
        self._now = new
        self._old.add(old)
        task = asyncio.create_task(self._retire(old))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _retire(self, old: _Generation) -> None:
        await old.until(lambda old: not old.requests)
        await old.end()
        self._old.discard(old)
        # with it goes its model
        if self._now.before is old:
            self._now.before = None

    def _connect(self, app: FastAPI) -> None:
        app.state.unread = lambda: self.state.unread()

    def _turn_away(self, *seconds: float) -> None:
        for one in (self._now, *self._old):
            one.app.state.turn_away(*seconds)

    def _stopping(self) -> None:
        self._stops, self._is_asked = True, False
        notify("STOPPING=1")
        self._now.app.state.stopping()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._now.begin()
        with self._listening():
            await send({"type": "lifespan.startup.complete"})
            notify("READY=1")
            if self._is_asked:
                self.reload()
            await receive()
        self._stops = True
        for one in (self._now, *self._old):
            await one.end()
        await send({"type": "lifespan.shutdown.complete"})

    @contextmanager
    def _listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # signals come to the main thread only
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        try:
            yield
        finally:
            # not the default, which would kill a server that stops
            loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)


App = FastAPI | Reloading
"""An app, or several of which the newest answers."""

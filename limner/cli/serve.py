"""`limner serve`: search a store over HTTP."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limner.cli.console import err, out
from limner.cli.contract import as_json, command, emit, group
from limner.cli.options import device, store_folder
from limner.cli.setting_options import given, with_options
from limner.counted import counted
from limner.documented import Result
from limner.errors import SettingsError, install_hint
from limner.server.configuration import AT_START, ServeSettings, read_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from limner.search.store import Store
    from limner.server.connections import Server

app = group("Serve.")

OwnStore = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE", help="Folder of the store, or s3://BUCKET/FOLDER; settings may name it, too."
    ),
]


# with the address, since --port 0 leaves the port to the system
class Served(Result):
    """A server that takes requests, printed on one line when it does."""

    store: str
    """The store."""
    pictures: int
    """Pictures in it."""
    url: str
    """Address of the search page; `unix:FILE` for a socket file."""


@command(app, "serve", schema=Served)
@with_options(ServeSettings, "store")
def serve_command(
    context: Any,
    store: OwnStore = None,
    config: Annotated[
        Path | None, "TOML file of settings by the names of these options; SIGHUP reads it again."
    ] = None,
    **options: Any,
) -> None:
    """Serve a store's search page and API until Ctrl-C.

    Settings also come from LIMNER_SERVE_NAME and --config. docs/server.md tells of them, of tokens, limits and the
    audit log.
    """
    flags = given(context, options) | ({} if store is None else {"store": store})
    chosen = read_settings(flags, os.environ, config)
    try:
        from limner.server.access import is_loopback
        from limner.server.app import create_app
        from limner.server.connections import Server
        from limner.server.following import Found
        from limner.server.listening import url_of
        from limner.server.log_lines import log_to
        from limner.server.reloading import Reloading
    except ModuleNotFoundError as error:
        # a module of ours that is missing is a bug and no missing extra
        if (error.name or "").startswith("limner"):
            raise
        raise SettingsError(f"the server needs {error.name}: {install_hint('server')}") from None

    def prepare() -> "Callable[[], FastAPI]":
        """Read everything anew, at SIGHUP."""
        now = read_settings(flags, os.environ, config)
        _expect_reloadable(chosen, now)
        settings, opened = now.server_settings(), _open(now)
        return lambda: create_app(opened, settings, found=found)

    settings, found = chosen.server_settings(), Found()
    folder = _folder(chosen)
    # before the model, which takes seconds to load
    with _listening(chosen) as listening:
        opened = _open(chosen)
        serving = Reloading(create_app(opened, settings, found=found), prepare)
        server = Server(serving, settings, chosen.behind_proxy)
        # behind `Server`, where uvicorn sets up loggers of its own
        log_to(lines=chosen.log_format, level=chosen.log_level)
        if not is_loopback(chosen.host) and chosen.behind_proxy is None:
            err.print(
                "strangers belong behind a proxy (docs/server.md#strangers): without one they can read the token and "
                "the answers on the network, and keep others out by slow connections"
            )
        served = Served(store=folder, pictures=len(opened), url=url_of(listening))
        # whose model would stay in memory after SIGHUP has replaced it
        del opened
        with ending_well(server, serving.reload_later), closing(found.hooks):
            tell(served)
            server.run(sockets=[listening])


def tell(served: "Served") -> None:
    """Print where a server is, which whoever started it waits for."""
    out.print(f"{served.store}: {counted(served.pictures, 'pictures')} at {served.url} (Ctrl-C stops)")
    if as_json():  # on one line: who starts a server reads it to learn the port
        emit(served, lines=True)
    # a reader behind a pipe waits for it
    sys.stdout.flush()


def _listening(settings: ServeSettings) -> AbstractContextManager[socket.socket]:
    from limner.server.listening import listen, listen_at

    return listen(settings.host, settings.port) if settings.uds is None else listen_at(settings.uds)


def _folder(settings: ServeSettings) -> str:
    if settings.store is None:
        raise SettingsError(
            "expected a store: name it as STORE, as LIMNER_SERVE_STORE or as store in --config"
        )
    return settings.store


def _open(settings: ServeSettings) -> "Store":
    from limner.search.store import open_store

    folder = store_folder(_folder(settings))
    # a link that is set to another store takes effect at SIGHUP, with the model; until then the old one is served
    opened = open_store(
        folder.resolve() if isinstance(folder, Path) and folder.is_symlink() else folder,
        run=settings.run,
        device=device(settings.cpu),
        approximate_from=settings.approximate_from,
    )
    # or the first query would wait: the graph of 160,000 vectors takes 26 s (docs/log/2026-11-22.md)
    opened.engine.prepare()
    return opened


def _expect_reloadable(old: ServeSettings, new: ServeSettings) -> None:
    """Refuse new settings that a running server cannot take."""
    changed = [name for name in AT_START if getattr(old, name) != getattr(new, name)]
    if old.needs_token != new.needs_token:
        changed.append("token_file" if old.tokens is None and new.tokens is None else "tokens")
    if changed:
        raise SettingsError(f"{', '.join(changed)}: changes only when the server is started again")


# uvicorn sets handlers of its own, and restores these before it raises the signals anew
@contextmanager
def ending_well(server: "Server", hang_up: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the server with exit code 0: uvicorn, once it has stopped, raises them anew.

    If whoever reads the address is quick, a signal comes before the server listens to it: it stops then as soon as it
    has started, and of SIGHUP, which ends it in no case, `hang_up` is called.
    """
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: hang_up())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

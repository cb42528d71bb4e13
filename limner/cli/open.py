"""`limner open`: from folders of pictures to a search page that stays current."""

import hashlib
import os
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import err
from limner.cli.contract import command, group
from limner.cli.options import Cpu, device
from limner.cli.serve import Served, ending_well, tell
from limner.cli.watch import tell_line
from limner.counted import counted
from limner.errors import SettingsError
from limner.models.known import DEFAULT_MODEL, KNOWN

if TYPE_CHECKING:
    from limner.search.store import Store
    from limner.server.following import Following
    from limner.store.folders import Folder

app = group("Open.")

_PORT = 8000
_EVERY = 10.0
"""Seconds between two lines of progress."""


@command(app, "open", schema=Served)
def open_command(
    pictures: Annotated[list[Path], typer.Argument(help="Folders of pictures.")],
    store: Annotated[
        Path | None,
        "Folder of the store; if not given, one of its own in the user's data folder, which is printed.",
    ] = None,
    model: Annotated[
        str | None,
        "Of a new store, as `limner index` takes it: hf:ORG/NAME, or the folder of a run, an export or a pretrained "
        f"model; if not given, hf:{DEFAULT_MODEL}.",
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"Port; if not given, {_PORT} or one that is free.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Show the page in the browser.")
    ] = True,
    yes: Annotated[bool, "Fetch the model without a question."] = False,
    cpu: Cpu = False,
) -> None:
    """Open a search page for folders of pictures, which are indexed and watched meanwhile.

    The page is there at once, and finds what is indexed so far. The same command opens the same store again, and looks
    for what has changed. Only this machine is answered; `limner serve` is for others.
    """
    from limner.search.watch import expect_watchfiles
    from limner.store.files import has_store
    from limner.store.folders import Folder

    expect_watchfiles()
    # before the model is loaded or fetched
    folders = []
    for path in pictures:
        if path.is_file():
            raise SettingsError(f"{path}: expected a folder of pictures; `limner index` takes single files")
        if not path.is_dir():
            raise SettingsError(f"{path}: there is no such folder; is its disk mounted?")
        folders.append(Folder(os.path.abspath(path)))  # noqa: PTH100 - resolve() would follow links
        if not any(path.iterdir()):
            err.print(f"{path}: is empty; pictures are found as they come")
    folder = store or _folder_of([one.path for one in folders])
    if model is not None or not has_store(folder):
        _expect_model(model or f"hf:{DEFAULT_MODEL}", yes=yes)
    with _listening(port) as listening:
        _serve(_opened(folder, model, folders, cpu), listening, browser=browser)


def _folder_of(folders: list[str]) -> Path:
    """The folder of the store of some folders, in `$XDG_DATA_HOME` or `~/.local/share`."""
    # the XDG specification says that a relative path is to be ignored
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    data = data if data.is_absolute() else Path("~/.local/share").expanduser()
    digest = hashlib.sha256("\0".join(sorted(folders)).encode("utf-8", "surrogateescape")).hexdigest()
    return data / "limner" / f"{Path(folders[0]).name or 'pictures'}-{digest[:8]}"


def _expect_model(model: str, *, yes: bool) -> None:
    """Ask once before a model is fetched."""
    from limner.inference.hub_runs import is_in_cache
    from limner.inference.source import HUB

    if not model.startswith(HUB) or is_in_cache(model.removeprefix(HUB), "config.json") or yes:
        return
    size = next((f"{4 * one.parameters / 1000:.1f} GB" for one in KNOWN if f"{HUB}{one.name}" == model), None)
    needs = f"{model} is not on this machine ({size or 'its size is not known'})"
    if not typer.get_text_stream("stdin").isatty():
        raise SettingsError(
            f"{needs}: add --yes to fetch it, or name a model's folder by --model (docs/models.md)"
        )
    if not typer.confirm(f"{needs}. Fetch it now, once?", default=True, err=True):
        raise SettingsError("nothing was fetched; --model names another one, or the folder of one")


def _opened(folder: Path, model: str | None, folders: "Sequence[Folder]", cpu: bool) -> "Store":
    from limner.search.open_source import open_source
    from limner.search.store import open_store
    from limner.store.files import has_store
    from limner.store.folders import folders_of, follow_folders

    if model is None and has_store(folder):
        opened = open_store(folder, device=device(cpu))
    else:
        encoder, files = open_source(model or f"hf:{DEFAULT_MODEL}", folder, device=device(cpu))
        opened = open_store(files.folder, run=encoder)
    # of one that is followed it is known what is left out
    known = {one.path for one in folders_of(opened.files)}
    follow_folders(opened.files, [one for one in folders if one.path not in known])
    return opened


def _listening(port: int | None) -> socket.socket:
    from limner.server.listening import listen

    try:
        return listen("127.0.0.1", _PORT if port is None else port)
    except SettingsError:
        if port is not None:
            raise
    return listen("127.0.0.1", 0)


def _serve(opened: "Store", listening: socket.socket, *, browser: bool) -> None:
    from limner.server.app import create_app
    from limner.server.configuration import ServeSettings
    from limner.server.connections import Server
    from limner.server.following import Found
    from limner.server.listening import url_of
    from limner.server.log_lines import log_to
    from limner.server.reloading import Reloading

    chosen = ServeSettings(store=str(opened.files.folder), watch=True)
    # the one who opens it is the one who is told
    settings = chosen.server_settings().replace(alerts=True)
    served = Served(store=str(opened.files.folder), pictures=len(opened), url=url_of(listening))
    found = Found(tell_line)
    app = create_app(opened, settings, told=tell_line, found=found)
    serving = Reloading(app, lambda: lambda: create_app(opened, settings, told=tell_line, found=found))
    server = Server(serving, settings, None)
    log_to(lines=chosen.log_format, level="error")
    with ending_well(server, lambda: None), closing(found.hooks):
        tell(served)
        threading.Thread(target=_tell_progress, args=(app.state.following,), daemon=True).start()
        if browser:
            # one of the terminal holds the caller until it ends
            threading.Thread(target=webbrowser.open, args=(served.url,), daemon=True).start()
        server.run(sockets=[listening])


def _tell_progress(following: "Callable[[], Following]") -> None:
    """Print from time to time how far a long look is."""
    while True:
        time.sleep(_EVERY)
        now = following()
        if now.rate and now.seconds_left is not None:
            left = timedelta(seconds=round(now.seconds_left))
            err.print(
                f"{now.done:,} of {counted(now.total, 'pictures')}, {now.rate:.0f} a second, {left} left"
            )

"""`limner serve`: search a store over HTTP."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from limner.cli.console import err, out
from limner.cli.contract import as_json, command, emit, group
from limner.cli.options import Cpu, MovedRun, StoreFolder, device
from limner.cli.schemas import Served
from limner.errors import SettingsError, install_hint

app = group("Serve.")


@command(app, "serve", schema=Served)
def serve_command(
    store: StoreFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = one that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token that clients may send; it has all rights.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="File of named tokens with rights, made by `limner token add`.")
    ] = None,
    run: MovedRun = None,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Let clients delete pictures, and add them with --uploads."),
    ] = False,
    uploads: Annotated[
        Path | None, typer.Option(help="Folder for pictures that clients add; made if it is not there.")
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="File that gets a line of JSON for each request: who, when, what, how many."),
    ] = None,
    audit_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove lines of the audit log that are older than so many days."),
    ] = None,
    audit_fsync: Annotated[
        bool,
        typer.Option(
            "--audit-fsync", help="Answer only when the line is on the disk, so that it outlives a power cut."
        ),
    ] = False,
    keep_metadata: Annotated[
        bool,
        typer.Option(
            "--keep-metadata", help="Send pictures with their EXIF, XMP and IPTC data, the place among them."
        ),
    ] = False,
    max_k: Annotated[int, typer.Option(min=1, help="Most pictures in one answer.")] = 100,
    max_rerank: Annotated[
        int, typer.Option(min=0, help="Most pictures that a query may have re-ranked.")
    ] = 10_000,
    query_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds that a query may take.")] = 30,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second that one client may send; 0 = no limit.")
    ] = 50,
    max_body: Annotated[int, typer.Option(min=1, help="Largest body of a request, in MiB.")] = 12,
    max_metadata: Annotated[
        int, typer.Option(min=1, help="Largest metadata of a picture that a client adds, in KiB of JSON.")
    ] = 16,
    max_answer: Annotated[
        int, typer.Option(min=1, help="MiB after which a list of pictures, hits or sentences ends early.")
    ] = 4,
    request_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a request may take to arrive, body included.")
    ] = 30,
    answer_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a client may take to read an answer.")
    ] = 60,
    max_connections: Annotated[
        int, typer.Option(min=2, help="Most open connections; half are kept from slow clients without token.")
    ] = 800,
    client_connections: Annotated[
        int, typer.Option(min=1, help="Connections of one client above which its slow ones are closed.")
    ] = 100,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Most queries that are answered together; 1 = each on its own.")
    ] = 64,
    approximate_from: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="From so many pictures on, a graph proposes what is scored (needs limner[approximate]).",
        ),
    ] = None,
    probe_interval: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds between two probes of store and model; /readyz tells of them."),
    ] = 5,
    probe_limit: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds after which a probe counts as failed; without it, 10 more than --query-seconds.",
        ),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds in which a server that stops still takes requests; /readyz says 503."
        ),
    ] = 0,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(help="Lines of the log on stderr: text, or JSON for a program that collects them."),
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Least level of a line in the log; info has a line for each request."),
    ] = "warning",
    behind_proxy: Annotated[
        str | None,
        typer.Option(help="Address of a reverse proxy; its X-Forwarded-For header names the client."),
    ] = None,
    docs: Annotated[
        bool, typer.Option("--docs", help="Show the API at /docs; the page loads scripts from the web.")
    ] = False,
    cpu: Cpu = False,
) -> None:
    """Serve a store's search page and API until Ctrl-C.

    docs/server.md tells of tokens, limits and the audit log.
    """
    try:
        from limner.server.access import LOCAL, is_loopback, read_token
        from limner.server.app import create_app
        from limner.server.connections import Server
        from limner.server.listening import listen, url_of
        from limner.server.log_lines import log_to
        from limner.server.settings import ServerSettings
    except ModuleNotFoundError as error:
        # a module of ours that is missing is a bug and no missing extra
        if (error.name or "").startswith("limner"):
            raise
        raise SettingsError(f"the server needs {error.name}: {install_hint('server')}") from None
    from limner.search.store import open_store

    # an error and no warning: whoever reaches the port sees the pictures
    if token_file is None and tokens is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host}: other machines may reach it, which needs --token-file FILE or --tokens FILE; "
            "`openssl rand -hex 24 > FILE` makes one token, `limner token add FILE NAME` a file of them"
        )
    # --uploads says where to and --allow-changes whether, since that allows deletions too
    if uploads is not None and not allow_changes:
        raise SettingsError("--uploads: clients add pictures only with --allow-changes")
    if audit is None and (audit_days is not None or audit_fsync):
        raise SettingsError("--audit-days, --audit-fsync: there is no audit log without --audit FILE")
    token = None if token_file is None else read_token(token_file)
    # before the model, which takes seconds to load
    listening = listen(host, port)
    with listening:
        settings = ServerSettings(
            token=token,
            tokens=tokens,
            # without a token, only this machine's names: a foreign page may point its own here (DNS rebinding)
            hosts=() if token is not None or tokens is not None else (*LOCAL, host),
            changes=allow_changes,
            uploads=uploads,
            audit=audit,
            audit_days=audit_days,
            audit_fsync=audit_fsync,
            keep_metadata=keep_metadata,
            max_k=max_k,
            max_body=max_body * 2**20,
            max_metadata=max_metadata * 2**10,
            max_answer=max_answer * 2**20,
            max_batch=max_batch,
            max_rerank=max_rerank,
            query_seconds=query_seconds,
            request_seconds=request_seconds,
            answer_seconds=answer_seconds,
            max_connections=max_connections,
            client_connections=client_connections,
            probe_interval=probe_interval,
            probe_limit=probe_limit,
            drain_seconds=drain_seconds,
            docs=docs,
            rate=rate,
            # a page of results asks for a thumbnail of each hit at once; at least 1 where there is no limit
            burst=max(1, round(2 * rate)),
        )
        opened = open_store(store, run=run, device=device(cpu), approximate_from=approximate_from)
        # or the first query would wait: the graph of 160,000 vectors takes 26 s (docs/log/2026-11-22.md)
        opened.engine.prepare()
        app = create_app(opened, settings)

        server = Server(app, settings, behind_proxy)
        # behind `Server`, where uvicorn sets up loggers of its own
        log_to(lines=log_format, level=log_level)
        if not is_loopback(host) and behind_proxy is None:
            err.print(
                "without a TLS proxy before it, others on the network can read the token and the answers"
            )
        served = Served(store=str(store), pictures=len(opened), url=url_of(listening))
        out.print(f"{store}: {served.pictures} pictures at {served.url} (Ctrl-C stops)")
        if as_json():  # on one line: who starts a server reads it to learn the port
            emit(served, lines=True)
        # a reader behind a pipe waits for it
        sys.stdout.flush()
        with _ending_well():
            server.run(sockets=[listening])


# handlers that do nothing: uvicorn sets its own, and restores these before it raises the signals anew
@contextmanager
def _ending_well() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the server with exit code 0: uvicorn, once it has stopped, raises them anew."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

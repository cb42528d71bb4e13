"""Slow clients without a token, against a server behind the proxies of `deploy/`: does the right token still get in?

    python -m benchmarks.slow_clients STORE [--connections 999] [--tries 30] [--addresses 8] [--again] [--quick]

`limner serve STORE` runs in a process of its own with a token, behind nginx and behind Caddy, each with the file that
`deploy/` has for it. For each kind of attack so many connections are opened at once, and each sends a byte a second, or
a request as soon as it has the answer to the last one. Then the right token asks for `/v1/info`, on a new connection
for each try, from an address that attacks, too. With `--again` a connection that was closed is opened anew. With
`--quick` there are quick clients as well, of which nothing is claimed, and no file is written.

The claim (docs/server.md): under the slow ones every try is answered. `tests/cli/test_serve_proxies.py` holds it.
"""

import argparse
import asyncio
import getpass
import http.client
import os
import re
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import cannot_run, write

DEPLOY = Path(__file__).parents[1] / "deploy"
PREFIX = {"nginx": "/photos", "caddy": ""}
"""The proxies of `deploy/`, with the path below which each shows the server."""

_HOST = b"Host: localhost\r\n"
_POST = b"POST /v1/search HTTP/1.1\r\nContent-Type: application/json\r\n"
SLOW = {
    "GET with a trickled body": b"GET /health HTTP/1.1\r\n" + _HOST + b"Content-Length: 100000\r\n\r\n",
    "chunked GET": b"GET /health HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n",
    "POST after its 401": _POST + _HOST + b"Content-Length: 60000\r\n\r\n",
    "trickled header": b"GET /health HTTP/1.1\r\n" + _HOST + b"X-Slow: ",
    "pipelined GETs, never read": b"GET /page/app.js HTTP/1.1\r\n" + _HOST + b"\r\n",
}
"""What each connection sends; paths are those below the proxy's prefix."""

QUICK = {
    "quick GETs": b"GET /openapi.json HTTP/1.1\r\n" + _HOST + b"\r\n",
    "quick GETs of 10,000 headers": b"GET /v1/info HTTP/1.1\r\n" + _HOST + b"a:b\r\n" * 10_000 + b"\r\n",
    "quick GETs of 8,000 chunks": b"GET /health HTTP/1.1\r\n"
    + _HOST
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"1\r\na\r\n" * 8_000
    + b"0\r\n\r\n",
    "quick GETs, wrong token": b"GET /v1/info HTTP/1.1\r\nAuthorization: Bearer wrong\r\n" + _HOST + b"\r\n",
    "quick GETs of the page": b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n",
    "quick POSTs to what has no POST": b"POST /health HTTP/1.1\r\n" + _HOST + b"Content-Length: 0\r\n\r\n",
    "quick GETs, a connection for each": b"GET /v1/info HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n",
}
SETTLED = 4
"""Seconds from the first connection to the first try."""


def temporary_folders(folder: Path) -> str:
    """Directives by which nginx writes below a folder, and not where only root may."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)


def program_of(name: str) -> str | None:
    """The program of a proxy, if it is installed."""
    # Debian's place of servers, which users have not in their PATH
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _configuration(proxy: str, folder: Path, port: int, server: str) -> str:
    """The file of `deploy/` for this machine: it listens on a port without TLS, and reaches the server where it is."""
    if proxy == "nginx":
        text = (DEPLOY / "nginx.conf").read_text()
        differs = {
            "user www-data;": f"user {getpass.getuser()};",
            "/run/nginx.pid": f"{folder}/pid",
            "/var/log/nginx/error.log": f"{folder}/errors",
            "access_log off;": f"access_log off; {temporary_folders(folder)}",
            "listen 443 ssl;": f"listen 127.0.0.1:{port};",
            "ssl_certificate /etc/ssl/pictures.pem;": "",
            "ssl_certificate_key /etc/ssl/private/pictures.key;": "",
            "server 127.0.0.1:8000": f"server {server.removeprefix('http://')}",
        }
    else:
        text = (DEPLOY / "Caddyfile").read_text()
        differs = {
            "servers {": "admin off\n\tservers {",
            "{$LIMNER_HOST:localhost} {": f"http://localhost:{port} {{\n\tbind 127.0.0.1",
            "unix//run/limner/limner.sock": f"unix/{server.removeprefix('unix:')}",
        }
        if _before_buffers():
            differs["request_buffers 256KiB"] = "buffer_requests"
            differs["response_buffers 256KiB"] = "buffer_responses\n\tmax_buffer_size 256KiB"
    for shipped, ours in differs.items():
        assert shipped in text, shipped
        text = text.replace(shipped, ours)
    return text


def _before_buffers() -> bool:
    """True for a Caddy before 2.7, such as that of Debian 12, which has other names for two settings."""
    said = subprocess.run(
        [program_of("caddy") or "caddy", "version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    assert found, said.stdout
    return (int(found[1]), int(found[2])) < (2, 7)


@contextmanager
def behind(proxy: str, server: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run a proxy as `deploy/` configures it before a server, `http://…` or `unix:FILE`, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / proxy
    config.write_text(_configuration(proxy, folder, port, server))
    program = program_of(proxy) or proxy
    command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    if proxy == "nginx":
        command = [program, "-p", str(folder), "-c", str(config), "-g", "daemon off;"]
    environment = {**os.environ, **dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(folder))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as running:
        try:
            until = time.monotonic() + 20
            while running.poll() is None and time.monotonic() < until:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            assert running.poll() is None, f"{proxy} did not start"
            yield "127.0.0.1", port
        finally:
            running.terminate()


@contextmanager
def served(store: Path, proxy: str, token: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run `limner serve` behind a proxy, and yield the proxy's address."""
    file = folder / "token"
    file.write_text(token)
    command = ["serve", store, "--cpu", "--token-file", file]
    if proxy == "nginx":
        command += ["--port", "0", "--behind-proxy", "127.0.0.1", "--root-path", PREFIX[proxy]]
    else:
        command += ["--uds", folder / "limner.sock", "--behind-proxy", "unix"]
    with subprocess.Popen(
        [sys.executable, "-m", "limner", *map(str, command)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"(http://[^/]+:\d+|unix:\S+)", server.stdout.readline())
            assert found, "the server did not start"
            with behind(proxy, found[1], folder) as address:
                yield address
        finally:
            server.terminate()


async def _attack(
    address: tuple[str, int], sent: bytes, wait: float, source: str, *, again: bool, quick: bool
) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(wait)
    while True:
        with socket.socket() as one, suppress(OSError):
            # a small window: what is not read must wait at the server
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            one.bind((source, 0))
            await loop.sock_connect(one, address)
            await loop.sock_sendall(one, sent)
            while quick and await _answered(one):
                await loop.sock_sendall(one, sent)
            while not quick:
                await asyncio.sleep(1)
                await loop.sock_sendall(one, b"a" if len(sent) < 1000 else sent)
        if not again:
            return
        await asyncio.sleep(0.01)


async def _answered(one: socket.socket) -> bool:
    """Read an answer to its end; False if the connection has ended."""
    loop, got = asyncio.get_running_loop(), b""
    while part := await loop.sock_recv(one, 65536):
        got += part
        head, blank, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        if blank and len(body) >= int(length[1] if length else 0):
            return True
    return False


def _tries(address: tuple[str, int], path: str, token: str, count: int) -> list[tuple[str, float]]:
    seen = []
    for _ in range(count):
        began, connection = time.perf_counter(), http.client.HTTPConnection(*address, timeout=20)
        try:
            connection.request("GET", path, headers={"Host": "localhost", "Authorization": f"Bearer {token}"})
            outcome = str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            outcome = type(error).__name__
        finally:
            connection.close()
        seen.append((outcome, time.perf_counter() - began))
    return seen


async def attacked(
    address: tuple[str, int],
    prefix: str,
    name: str,
    token: str,
    *,
    connections: int = 999,
    tries: int = 30,
    addresses: int = 8,
    again: bool = True,
) -> list[tuple[str, float]]:
    """Attack a server, and let the right token ask it meanwhile: what came of each try, and its seconds."""
    sent = (SLOW | QUICK)[name].replace(b" /", b" " + prefix.encode() + b"/", 1)
    if name.startswith("pipelined"):
        sent *= 200
    attackers = [
        asyncio.create_task(
            _attack(
                address,
                sent,
                2 * number / connections,
                # every address of 127.0.0.0/8 is this machine, on Linux
                f"127.0.0.{1 + number % addresses}",
                again=again,
                quick=name in QUICK,
            )
        )
        for number in range(connections)
    ]
    await asyncio.sleep(SETTLED)
    seen = await asyncio.to_thread(_tries, address, f"{prefix}/v1/info", token, tries)
    for attacker in attackers:
        attacker.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--connections", type=int, default=999)
    parser.add_argument("--tries", type=int, default=30)
    parser.add_argument("--addresses", type=int, default=8, help="addresses that the connections come from")
    parser.add_argument("--again", action="store_true", help="open closed connections anew")
    parser.add_argument("--quick", action="store_true", help="attack by quick clients, too")
    given = parser.parse_args()
    if None in map(program_of, PREFIX):
        cannot_run("needs nginx and caddy")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seen: dict[str, dict[str, Any]] = {}
    token = secrets.token_hex(24)
    for proxy, prefix in PREFIX.items():
        with TemporaryDirectory() as folder, served(given.store, proxy, token, Path(folder)) as address:
            for name in (*SLOW, *(QUICK if given.quick else ())):
                options = {key: value for key, value in vars(given).items() if key not in ("store", "quick")}
                tries = asyncio.run(attacked(address, prefix, name, token, **options))
                slowest = round(max(seconds for _, seconds in tries), 3)
                answers = Counter(outcome for outcome, _ in tries)
                seen[f"{proxy}, {name}"] = {"answers": answers, "slowest_seconds": slowest}
                print(proxy, name, dict(answers), f"slowest {slowest:.2f} s", sep="  ", flush=True)
                time.sleep(1)
    if not given.quick:
        write("slow_clients", {**vars(given), "store": "given", "seen": seen})


if __name__ == "__main__":
    main()

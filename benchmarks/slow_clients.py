"""Slow clients without a token, against the server on this machine: does the right token still get in?

    python -m benchmarks.slow_clients STORE [--connections 999] [--tries 30] [--addresses 1] [--again]

`limner serve STORE` runs in a process of its own with a token. For each kind of attack so many connections are opened
at once, and each sends a byte a second, or a request as soon as it has the answer to the last one. Then the right token
asks for `/v1/info`, on a new connection for each try. With `--again` a connection that was closed is opened anew.

The claim (docs/server.md): every try is answered. Before there were these limits it was 0 of 30 for the first four
kinds and 12 of 30 for the fifth.
"""

import argparse
import asyncio
import http.client
import re
import resource
import secrets
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import write

_HOST = b"Host: localhost\r\n"
_POST = b"POST /v1/search HTTP/1.1\r\nContent-Type: application/json\r\n"
ATTACKS = {
    "GET with a trickled body": b"GET /health HTTP/1.1\r\n" + _HOST + b"Content-Length: 100000\r\n\r\n",
    "chunked GET": b"GET /health HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n",
    "POST after its 401": _POST + _HOST + b"Content-Length: 60000\r\n\r\n",
    "trickled header": b"GET /health HTTP/1.1\r\n" + _HOST + b"X-Slow: ",
    "pipelined GETs, never read": (b"GET /page/app.js HTTP/1.1\r\n" + _HOST + b"\r\n") * 200,
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


def _tries(address: tuple[str, int], token: str, count: int) -> list[tuple[str, float]]:
    seen = []
    for _ in range(count):
        began, connection = time.perf_counter(), http.client.HTTPConnection(*address, timeout=5)
        try:
            connection.request("GET", "/v1/info", headers={"Authorization": f"Bearer {token}"})
            outcome = str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            outcome = type(error).__name__
        finally:
            connection.close()
        seen.append((outcome, time.perf_counter() - began))
    return seen


async def _measure(
    address: tuple[str, int], sent: bytes, token: str, given: argparse.Namespace, *, quick: bool
) -> list[tuple[str, float]]:
    count = given.connections
    attackers = [
        asyncio.create_task(
            _attack(
                address,
                sent,
                2 * number / count,
                # every address of 127.0.0.0/8 is this machine, on Linux
                f"127.0.0.{1 + number % given.addresses}",
                again=given.again,
                quick=quick,
            )
        )
        for number in range(count)
    ]
    await asyncio.sleep(SETTLED)
    seen = await asyncio.to_thread(_tries, address, token, given.tries)
    for attacker in attackers:
        attacker.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--connections", type=int, default=999)
    parser.add_argument("--tries", type=int, default=30)
    parser.add_argument("--addresses", type=int, default=1, help="addresses that the connections come from")
    parser.add_argument("--again", action="store_true", help="open closed connections anew")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seen: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        token = secrets.token_hex(24)
        file = Path(folder) / "token"
        file.write_text(token)
        command = ["serve", given.store, "--port", "0", "--cpu", "--token-file", file]
        with subprocess.Popen(
            [sys.executable, "-m", "limner", *map(str, command)], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://([^:/]+):(\d+)/", server.stdout.readline())
                assert found, "the server did not start"
                for name, sent in ATTACKS.items():
                    quick = name.startswith("quick")
                    tries = asyncio.run(_measure((found[1], int(found[2])), sent, token, given, quick=quick))
                    slowest = round(max(seconds for _, seconds in tries), 3)
                    seen[name] = {
                        "answers": Counter(outcome for outcome, _ in tries),
                        "slowest_seconds": slowest,
                    }
                    print(name, dict(seen[name]["answers"]), f"slowest {slowest:.2f} s", sep="  ", flush=True)
                    time.sleep(1)
            finally:
                server.terminate()
    write("slow_clients", {**vars(given), "store": "given", "seen": seen})


if __name__ == "__main__":
    main()

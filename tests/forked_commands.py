"""`limner` for a shell whose commands are forks of the process that has imported it (`tests.forked`).

A program hands its arguments, folder, variables and streams to the tests over a socket. It takes a signal to the fork,
ends as that ends, and the fork does not outlive it.
"""

import json
import os
import runpy
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.forked import started

_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

tests = socket.socket(socket.AF_UNIX)
tests.connect({address!r})
told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(tests, [len(told).to_bytes(4, "big")], [0, 1, 2])
tests.sendall(told)
for one in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(one, lambda number, _: tests.send(bytes([number])))
sys.exit(tests.recv(1)[0])
"""


# multiprocessing looks for processes that have ended whenever one begins, and two threads must not see the same end
_LOCK = threading.Lock()


@contextmanager
def forked_limner(folder: Path) -> Iterator[str]:
    """The text of a program that is `limner` as long as the block runs; `folder` is for its socket."""
    # the first one starts the fork server, which only one thread may do
    started(time.sleep, 0).join()
    address = folder / "limner.socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        threading.Thread(target=_listen, args=(listening,), daemon=True).start()
        try:
            yield _PROGRAM.format(python=sys.executable, address=str(address))
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _listen(listening: socket.socket) -> None:
    while True:
        try:
            program, _ = listening.accept()
        # the block has ended
        except OSError:
            return
        threading.Thread(target=_answer, args=(program,), daemon=True).start()


def _answer(program: socket.socket) -> None:
    with program:
        length, streams, _, _ = socket.recv_fds(program, 4, 3)
        told = program.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        arguments, folder, environment = json.loads(told)
        # as connections, which a process can be given
        given = [Connection(stream) for stream in streams]
        with _LOCK:
            process = started(_limner, arguments, folder, *given, environment=environment)
        for stream in given:
            stream.close()
        while program in wait([program, process.sentinel]):
            if not (number := program.recv(1)):
                process.kill()
                break
            assert process.pid is not None
            os.kill(process.pid, number[0])
        wait([process.sentinel])
        with _LOCK:
            process.join()
        code = process.exitcode
        assert code is not None
        # as a shell tells a signal; a program that was killed hears it no more
        with suppress(OSError):
            program.sendall(bytes([code if code >= 0 else 128 - code]))


def _limner(arguments: list[str], folder: str, *streams: Connection) -> None:
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["limner", *arguments]
    runpy.run_module("limner", run_name="__main__", alter_sys=True)

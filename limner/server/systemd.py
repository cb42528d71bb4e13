"""Messages to systemd: the server is ready, reads its settings anew, or stops (sd_notify(3))."""

import logging
import os
import socket
import time

log = logging.getLogger("limner.server")


def notify(*lines: str) -> None:
    """Send lines such as "READY=1" to the socket that NOTIFY_SOCKET names; without one nothing is sent."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    # the two kinds that the protocol has here: a path, and a name without a file
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # a manager that does not read must not keep the server from answering
            sender.settimeout(1.0)
            sender.sendto("\n".join(lines).encode(), f"\0{address[1:]}" if address[0] == "@" else address)
    except OSError as error:
        log.warning("NOTIFY_SOCKET: nothing can be sent (%s)", error.strerror or error)


def notify_reloading() -> None:
    """Say that the settings are read anew, with the time that systemd's `Type=notify-reload` needs."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

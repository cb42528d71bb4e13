"""Slow strangers, and the right token among them, at a server behind the proxies that are shipped."""

import asyncio
import resource
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks import slow_clients


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> Iterator[None]:
    """999 connections are more files than a process may often have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("proxy", slow_clients.PREFIX)
def test_slow_strangers_do_not_keep_the_right_token_out(store: Path, tmp_path: Path, proxy: str) -> None:
    """Nor where it comes from an address that attacks, and each connection that is closed is opened anew."""
    if slow_clients.program_of(proxy) is None:
        pytest.skip(f"{proxy} is not installed")
    token, prefix, seen = secrets.token_hex(24), slow_clients.PREFIX[proxy], {}
    with slow_clients.served(store, proxy, token, tmp_path) as address:
        for name in slow_clients.SLOW:
            tries = asyncio.run(slow_clients.attacked(address, prefix, name, token))
            seen[name] = Counter(outcome for outcome, _ in tries)
        # and the others come back
        assert httpx.get(f"http://localhost:{address[1]}{prefix}/", timeout=30).status_code == 200
    assert seen == {name: Counter({"200": 30}) for name in slow_clients.SLOW}

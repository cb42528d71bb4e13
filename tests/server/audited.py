"""Audit logs of tests: lines that are written, and read again."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from limner.server.audit import AuditLog, verify

PER_EXAMPLE = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="ascii")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def written(file: Path, *lines: dict[str, Any]) -> AuditLog:
    file.unlink(missing_ok=True)
    log = AuditLog(file)
    for line in lines:
        log.append(line)
    return log


def eight_queries(file: Path) -> tuple[str, list[bytes]]:
    """Write a log of eight queries behind its first line; the digest to keep elsewhere, and the lines."""
    written(file, *({"request": "search", "text": f"query {n}"} for n in range(8)))
    kept = verify(file).digest
    assert kept is not None
    return kept, file.read_bytes().splitlines()

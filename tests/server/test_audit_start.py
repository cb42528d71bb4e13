"""An audit log whose first line was cut off by a power cut goes on; a file that is no audit log is refused."""

import json
from pathlib import Path

import pytest

from limner.errors import SettingsError
from limner.server.audit import AuditLog, forget, verify


def test_a_first_line_that_is_cut_off_anywhere(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    AuditLog(log)
    whole = log.read_bytes()
    for length in range(len(whole)):
        log.write_bytes(whole[:length])
        AuditLog(log).append({"request": "search"})
        assert [line[:10] for line in log.read_bytes().splitlines()] == [b'{"time": "'] * 2, length
        assert verify(log).sound, length


@pytest.mark.parametrize("content", [b"x", b"{", b'{"time"', b'{"times": 1}', b"[1]", b"\n", b"\x89PNG\r\n"])
def test_a_short_file_that_is_no_log(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other"
    other.write_bytes(content)
    if b'{"time": "'.startswith(content):
        # a first line that was cut off there
        AuditLog(other)
    else:
        with pytest.raises(SettingsError, match="no audit log"):
            AuditLog(other)
        assert other.read_bytes() == content


@pytest.mark.parametrize("damaged", [1, 3])
def test_a_last_line_that_is_damaged_has_its_number(tmp_path: Path, damaged: int) -> None:
    """Lines go on behind it, and are sound once it has been taken out."""
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    for _ in range(3):
        log.append({"request": "search"})
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-damaged]) + b"no line\n" * damaged)
    AuditLog(file).append({"request": "search"})
    assert verify(file).broken == 5 - damaged
    forget(file, ["0" * 32])
    assert verify(file).sound
    assert json.loads(file.read_bytes().splitlines()[-1])["number"] == 5

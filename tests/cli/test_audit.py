import json
from pathlib import Path

from limner.server.audit import AuditLog
from tests.cli.command import Limner, refused

KEY = "0123456789abcdef" * 2


def test_verify_and_forget(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    log.append({"request": "search", "text": "a red coat", "found": [KEY]})
    log.append({"request": "search", "text": "a bag", "found": []})
    report = json.loads(limner("audit", "verify", file, "--json").out)
    assert (report["lines"], report["sound"]) == (3, True)
    assert report["digest"] in limner("audit", "verify", file).out
    assert limner("audit", "verify", file, "--holds", report["digest"]).code == 0
    assert "from 1 line" in limner("audit", "forget", file, "--id", KEY).out
    assert limner("audit", "verify", file).code == 0
    still = limner("audit", "verify", file, "--holds", report["digest"])
    assert (still.code, "parts of 1 forgotten" in still.out) == (0, True)
    other = limner("audit", "verify", file, "--holds", "0" * 64)
    assert (other.code, "written anew" in other.out) == (1, True)
    assert "coat" not in file.read_text()
    assert "bag" in file.read_text()
    assert json.loads(limner("audit", "forget", file, "--text", "a bag", "--json").out)["changed"] == 1
    assert "bag" not in file.read_text()
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], *lines[2:]]))
    broken = limner("audit", "verify", file)
    assert (
        broken.code,
        "line 2: the line does not follow line 1: one of the two was changed" in broken.out,
    ) == (1, True)


def test_mistakes(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    refused(limner("audit", "verify", file), "cannot be read")
    refused(limner("audit", "forget", file, "--id", KEY), "no such file")
    AuditLog(file)
    refused(limner("audit", "forget", file), "give --id or --text")

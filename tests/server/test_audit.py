import json
import os
import signal
import subprocess
import sys
import threading
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from limner.errors import DataError, SettingsError
from limner.requests import where_strings
from limner.server import audit, audit_lines
from limner.server.audit import AuditLog, ErasableLog, forget, trim, verify
from limner.server.audit_reports import AuditForgotten
from tests.server.audited import PER_EXAMPLE, read, written


def test_each_line_holds_the_digest_of_its_predecessor(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file, {"request": "search", "text": "a “coat”\nand more"}, {"request": "item"})
    assert file.stat().st_mode & 0o077 == 0
    begin, first, _ = read(file)
    assert (begin["request"], begin["previous"]) == ("begin", None)
    assert first["text"] == "a “coat”\nand more"
    assert first["time"].endswith("+00:00")
    report = verify(file)
    assert (report.lines, report.sound, report.removed, report.holds) == (3, True, 0, None)
    # a server that starts again, and one that has written meanwhile
    AuditLog(file).append({"request": "third"})
    log.append({"request": "fourth"})
    assert verify(file, report.digest).holds
    assert [line["request"] for line in read(file)] == ["begin", "search", "item", "third", "fourth"]
    # a file that was moved away is begun anew
    file.rename(tmp_path / "old.jsonl")
    log.append({"request": "fifth"})
    assert [line["request"] for line in read(file)] == ["begin", "fifth"]
    assert verify(file).sound
    assert verify(tmp_path / "old.jsonl").lines == 5
    gone = verify(file, report.digest)
    assert (gone.sound, gone.holds, gone.broken) == (False, False, None)
    with pytest.raises(DataError, match="cannot be read"):
        verify(tmp_path / "missing")


@PER_EXAMPLE
@given(data=st.data())
def test_a_line_that_is_changed_removed_put_in_or_moved_is_found(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "audit.jsonl"
    number = data.draw(st.integers(2, 8))
    written(file, *({"request": "search", "text": f"query {n}"} for n in range(number)))
    last = verify(file).digest
    lines = file.read_bytes().splitlines(keepends=True)
    kind = data.draw(st.sampled_from(["change", "remove", "put in", "swap", "cut", "cut off the end"]))
    at = data.draw(st.integers(0, len(lines) - 2))
    if kind == "change":
        place = data.draw(st.integers(0, len(lines[at]) - 2))
        letter = data.draw(st.integers(32, 126).filter(lambda value: value != lines[at][place]))
        lines[at] = lines[at][:place] + bytes([letter]) + lines[at][place + 1 :]
    elif kind == "remove":
        del lines[at]
    elif kind == "put in":
        lines.insert(at, lines[data.draw(st.integers(0, len(lines) - 1))])
    elif kind == "swap":
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    elif kind == "cut":
        lines[-1] = lines[-1][: data.draw(st.integers(1, len(lines[-1]) - 1))]
    else:
        del lines[at + 1 :]
    file.write_bytes(b"".join(lines))
    report = verify(file, last)
    assert not report.sound
    if kind == "cut off the end":
        # the chain itself cannot tell; a digest that is kept elsewhere can
        assert (report.broken, report.holds) == (None, False)
    elif kind != "cut":
        assert report.broken is not None
        assert at + 1 <= report.broken <= at + 2
        # the line that was changed is named
        assert report.broken == at + 1 or f"does not follow line {at + 1}:" in str(report.reason)


@PER_EXAMPLE
@given(
    ages=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=4),
    days=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_old_lines_go_and_the_others_stay_as_they_are(
    tmp_path: Path, ages: list[list[int]], days: list[int]
) -> None:
    """Those at the start, also where the clock has gone back and forth, and after several days of it."""
    file = tmp_path / "audit.jsonl"
    file.unlink(missing_ok=True)
    now = datetime(2026, 11, 24, tzinfo=UTC)
    with pytest.MonkeyPatch.context() as patch:
        today = now
        patch.setattr(audit, "_now", lambda: today.isoformat(timespec="milliseconds"))
        log = AuditLog(file)
        total = 0
        for some, age in zip(ages, [*days, *[5] * len(ages)], strict=False):
            for one in some:
                today = now - timedelta(days=one)
                log.append({"request": "search", "n": total})
                total += 1
            today = now
            before = file.read_bytes().splitlines()
            cutoff = now - timedelta(days=age, hours=12)
            digests = [verify(file).digest]
            removed = trim(file, cutoff)
            kept = file.read_bytes().splitlines()
            report = verify(file)
            assert report.sound, report.reason
            own = [line for line in before if not audit.lines_removed(line)]
            times = [json.loads(line)["time"] for line in own]
            oldest = cutoff.isoformat(timespec="milliseconds")
            # up to the last old line before the first young one; those of the same moment count as ahead of the clock
            young = next((at for at, time in enumerate(times) if oldest <= time < audit._now()), len(own))
            fresh = own[max((at + 1 for at in range(young) if times[at] < oldest), default=0) :]
            assert [line for line in kept if not audit.lines_removed(line)] == fresh
            assert report.removed + len(fresh) == total + 1
            # a kept digest fits as long as its line stands
            assert verify(file, digests[-1]).holds == (bool(fresh) or removed == 0)
            assert removed == sum(not audit.lines_removed(line) for line in before) - len(fresh)
        log.append({"request": "last"})
        assert verify(file).sound


def test_retention_at_the_start_and_daily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(audit, "_now", lambda: "2026-01-01T00:00:00.000+00:00")
        written(file, {"request": "search", "text": "of January"})
    AuditLog(file).append({"request": "item"})
    assert len(read(file)) == 3
    trimmed = threading.Event()
    real = audit.trim

    def once_more(*given: Any) -> int:
        trimmed.set()
        return real(*given)

    log = AuditLog(file, days=30, fsync=True)
    try:
        gap, item = read(file)
        assert (gap["request"], gap["reason"], gap["removed"]) == ("begin", "old lines were removed", 2)
        assert item["request"] == "item"
        monkeypatch.setattr(audit, "trim", once_more)
        monkeypatch.setattr(audit, "_DAY", 0.01)
        other = AuditLog(file, days=30)
        trimmed.clear()
        assert trimmed.wait(30)
        other.close()
    finally:
        log.close()
    assert verify(file).sound


KEYS = [f"{n:032x}" for n in range(6)]
WORDS = ["a red coat", "Ann", "a bag"]


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    line: dict[str, Any] = {"who": "ann-laptop", "request": "search", "status": 200}
    if draw(st.booleans()):
        line |= {"text": " and ".join(draw(st.lists(st.sampled_from(WORDS), max_size=3)))}
    if draw(st.booleans()):
        line |= {draw(st.sampled_from(["id", "like"])): draw(st.sampled_from(KEYS))}
    if draw(st.booleans()):
        line |= {"where": draw(st.lists(st.sampled_from(["identity=Ann|Bo", "camera=3"]), max_size=2))}
    if draw(st.booleans()):
        return line | {"refused": f"{line.get('text')}: no word is known"}
    return line | {"found": draw(st.lists(st.sampled_from(KEYS), unique=True)), "count": 3}


@PER_EXAMPLE
@given(
    lines=st.lists(requests(), max_size=8),
    keys=st.lists(st.sampled_from(KEYS), max_size=3),
    texts=st.lists(st.sampled_from(["ann", "a red coat", "Bo"]), max_size=2),
)
def test_what_is_forgotten_is_gone_and_the_rest_stays(
    tmp_path: Path, lines: list[dict[str, Any]], keys: list[str], texts: list[str]
) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file, *lines)
    before, digests = read(file), {verify(file).digest}
    done = forget(file, keys, texts)
    report, after = verify(file), read(file)
    assert report.sound, report.reason
    content = file.read_text()
    assert not any(key in content for key in keys)
    asked = [str([line.get("text"), line.get("where"), line.get("refused")]).casefold() for line in after]
    assert not any(text.casefold() in line for text in texts for line in asked)
    assert done.changed == sum("forgotten" in line for line in after)
    if not done.changed:
        assert after == before
    else:
        assert [line["time"] for line in after] == [line["time"] for line in before]
        assert all(line["who"] == "ann-laptop" for line in after[1:])
        # without the random part nobody can try what fits the old digest
        assert all("salt" not in line for line in after if "forgotten" in line)
        assert report.forgotten == done.changed
    # a digest that was kept still fits, whatever was changed
    assert verify(file, digests.pop()).holds
    for line, old in zip(after[::-1], before[::-1], strict=False):
        if "forgotten" not in line:
            assert line == old
    log.append({"request": "goes on"})
    assert verify(file).sound
    assert not forget(file, keys, texts).changed


NAMES = [
    'O"Brien',
    "C:\\ann",
    "ann|eve",
    "Zoë Müller",
    "Zoe\u0308 Mu\u0308ller",
    "Ann Lee",
    "ǅemal",
    "5%",
    "*",
]


@PER_EXAMPLE
@given(
    name=st.one_of(st.sampled_from(NAMES), st.text(min_size=1, max_size=8).filter(str.strip)),
    form=st.sampled_from(["NFC", "NFD"]),
    kind=st.sampled_from(["erase", "quotes", "one of", "text", "pattern"]),
)
@example(name="À", form="NFD", kind="pattern")
def test_any_identity_is_forgotten(tmp_path: Path, name: str, form: Any, kind: str) -> None:
    asked = unicodedata.normalize(form, name)
    line: dict[str, Any] = {"request": "items", "status": 200, "found": []}
    if kind == "text":
        line |= {"text": f"somebody like {asked} in red"}
    elif kind == "pattern":
        line |= {"where": [f"identity~{asked[:1]}*"]} if asked[:1] not in "=!<>~" else {"text": asked}
    else:
        where = where_strings({"identity": asked if kind != "one of" else ["x", asked]})
        line |= {"where": [f"identity!={json.dumps(asked)}"] if kind == "quotes" else where}
    file = tmp_path / "audit.jsonl"
    written(file, line, {"request": "items", "where": ["identity=nobody"], "text": "qqq"})
    folded = audit_lines._folded(name)
    assume(name[:1].strip() == name[:1] and name == name.strip())
    others = folded in "identity=nobody qqq"
    done = forget(file, [], [name])
    assert done.changed == 1 or (others and done.changed == 2)
    assert not {"text", "where"} & read(file)[1].keys()
    assert verify(file).sound


_KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from limner.server import audit, audit_lines
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
audit.trim(Path(sys.argv[1]), datetime(2026, 2, 1, tzinfo=UTC))
"""


@pytest.mark.parametrize("then", ["start", "trim", "forget", "forget nothing", "moved away"])
def test_what_a_killed_trim_leaves_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    file = tmp_path / "audit.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(audit, "_now", lambda: "2026-01-01T00:00:00.000+00:00")
        log = written(file, {"request": "search", "text": "of January"})
    log.append({"request": "search", "text": "Ann in red", "found": [KEYS[0]]})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _KILLED, str(file)], env=environment, timeout=120)
    assert done.returncode == -signal.SIGKILL
    left = tmp_path / ".audit.jsonl.part"
    assert left.exists()
    assert left.stat().st_mode & 0o077 == 0
    if then == "start":
        AuditLog(file)
    elif then == "trim":
        trim(file, datetime(2020, 1, 1, tzinfo=UTC))
    elif then == "moved away":
        file.rename(tmp_path / "old.jsonl")
        forget(file, [KEYS[0]])
    else:
        forget(file, [KEYS[0]] if then == "forget" else [KEYS[1]])
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("how", ["forget", "trim"])
def test_a_log_that_root_writes_anew_stays_that_of_the_server(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the server could write no line any more, and answer nothing."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda handle, user, group: given.append((user, group)))
    file = tmp_path / "audit.jsonl"
    written(file, {"request": "search", "text": "Ann in red", "found": [KEYS[0]]})
    file.chmod(0o640)
    if how == "forget":
        assert forget(file, [KEYS[0]]).changed == 1
    else:
        assert trim(file, datetime(2099, 1, 1, tzinfo=UTC)) == 2
    assert file.stat().st_mode & 0o777 == 0o640
    assert given == [(file.stat().st_uid, file.stat().st_gid)]


@pytest.mark.parametrize("how", ["forget", "trim", "erase"])
def test_a_link_to_the_log(tmp_path: Path, how: str) -> None:
    """The log itself is written anew, and the link still leads to it."""
    file, link = tmp_path / "logs" / "audit.jsonl", tmp_path / "link"
    file.parent.mkdir()
    written(file, {"request": "search", "text": "Ann in red", "found": [KEYS[0]]})
    link.symlink_to(file)
    if how == "forget":
        assert forget(link, [KEYS[0]]).changed == 1
    elif how == "trim":
        assert trim(link, datetime(2099, 1, 1, tzinfo=UTC)) == 2
    else:
        log = ErasableLog(link)
        assert log.left([KEYS[0]]) == 1
        with log.forgetting([KEYS[0]], []) as changed:
            assert changed == 1
        assert log.left([KEYS[0]]) == 0
    assert link.is_symlink()
    assert "Ann" not in file.read_text(encoding="ascii")
    assert verify(file).sound


@pytest.mark.parametrize("how", ["forget", "trim"])
def test_a_log_of_two_names(tmp_path: Path, how: str) -> None:
    """The other one would keep what is removed."""
    file = tmp_path / "audit.jsonl"
    written(file, {"request": "search", "text": "Ann in red", "found": [KEYS[0]]})
    (tmp_path / "other").hardlink_to(file)
    before = file.read_bytes()
    call = (
        partial(forget, file, [KEYS[0]])
        if how == "forget"
        else partial(trim, file, datetime(2099, 1, 1, tzinfo=UTC))
    )
    with pytest.raises(OSError, match="a hard link"):
        call()
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "other"]
    (tmp_path / "other").unlink()
    assert forget(file, [KEYS[0]]).changed == 1


@pytest.mark.parametrize("changed", [0, 1])
def test_no_line_is_added_while_an_erasure_holds_the_log(tmp_path: Path, changed: int) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file, {"request": "search", "text": "Ann in red", "found": [KEYS[0]]})
    with ErasableLog(file).forgetting([KEYS[0]] if changed else [], []) as count:
        assert count == changed
        thread = threading.Thread(target=log.append, args=({"request": "search"},))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert len(read(file)) == 2
    thread.join(20)
    assert len(read(file)) == 3
    assert verify(file).sound


def test_a_line_of_what_was_erased_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file)
    facts = {
        "request": "search",
        "text": "Ann in red",
        "where": ["identity=Ann"],
        "found": KEYS[:2],
        "count": 2,
    }
    log.append(facts, lambda keys: {KEYS[0]} & set(keys))
    log.append({"request": "item", "id": KEYS[0]}, lambda keys: set(keys))
    log.append(facts, lambda keys: set())
    first, second, third = read(file)[1:]
    assert (first["found"], first["forgotten"], first["count"]) == ([KEYS[1]], True, 2)
    assert not {"text", "where"} & first.keys()
    assert "id" not in second
    assert (third["text"], third["found"]) == ("Ann in red", KEYS[:2])
    # what was left out was never written, so that the whole line is proven
    assert (verify(file).sound, verify(file).forgotten) == (True, 0)


def test_nothing_to_forget(tmp_path: Path) -> None:
    assert forget(tmp_path / "missing", KEYS) == AuditForgotten(lines=0, changed=0)
    assert not (tmp_path / "missing").exists()


def test_forgetting_after_old_lines_were_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(audit, "_now", lambda: "2026-01-01T00:00:00.000+00:00")
        log = written(file, {"request": "search", "text": "of January"})
    log.append({"request": "item", "id": KEYS[0]})
    # a line that is damaged could hold anything
    with file.open("ab") as end:
        end.write(b"damaged " + KEYS[0].encode() + b"\n")
    trim(file, datetime(2026, 2, 1, tzinfo=UTC))
    assert verify(file).broken == 3
    assert forget(file, [KEYS[0]]).changed == 2
    assert KEYS[0] not in file.read_text()
    report = verify(file)
    assert (report.sound, report.removed, report.forgotten) == (True, 2, 2)


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file, {"request": "before"})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("os.write", lambda handle, line: write(handle, line[:10]))
        with pytest.raises(OSError, match="disk full"):
            log.append({"request": "lost"})
    # of a power cut
    with file.open("ab") as end:
        end.write(b'{"time": "2026-')
    assert not verify(file).sound
    log.append({"request": "after"})
    assert [line["request"] for line in read(file)] == ["begin", "before", "after"]
    assert verify(file).sound


def test_files_that_are_no_audit_log(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        AuditLog(tmp_path / "missing" / "audit.jsonl")
    (tmp_path / "old.jsonl").write_text('{"time": "2026-11-20", "request": "search"}\n')
    with pytest.raises(SettingsError, match="move it away"):
        AuditLog(tmp_path / "old.jsonl")
    assert verify(tmp_path / "old.jsonl").broken == 1


_WRITER = """
import sys
from pathlib import Path
from limner.server.audit import AuditLog
log = AuditLog(Path(sys.argv[1]))
for number in range(100):
    log.append({"request": "search", "n": number, "pad": "x" * (37 * number % 400)})
"""


def test_servers_threads_and_rewriting_at_once(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = written(file)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    others = [subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], env=environment) for _ in range(2)]

    def ask() -> None:
        for _ in range(50):
            log.append({"request": "item", "id": KEYS[1]})

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        forget(file, [KEYS[1]])
    while any(other.poll() is None for other in others):
        forget(file, [KEYS[1]])
        trim(file, datetime(2020, 1, 1, tzinfo=UTC))
    assert [other.wait() for other in others] == [0, 0]
    report = verify(file)
    assert report.sound, report.reason
    found = read(file)
    assert sum(line["request"] == "search" for line in found) == 200
    assert sum(line["request"] == "item" for line in found) == 100


def test_names_that_an_erasure_has_told_are_forgotten(tmp_path: Path) -> None:
    # NFKC: the asked name is not the told one by its letters, so that only `similar` has it
    asked = {"where": ['identity="ｇｒｅｔｅ geheim"'], "unmet": ['identity="ｇｒｅｔｅ geheim"']}
    file = tmp_path / "audit.jsonl"
    written(file, {"request": "erase", **asked, "similar": ["Grete Geheim"]}, {"request": "erase", **asked})
    assert forget(file, texts=["grete geheim"]).changed == 1
    assert verify(file).sound
    first, second = read(file)[1:]
    assert not {"where", "unmet", "similar"} & first.keys()
    assert second["unmet"] == asked["unmet"]

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.errors import DataError
from limner.search.metadata import read_metadata


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "facts.csv"
    file.write_text(
        '\ufefffile,identity,note\r\na.jpg,7,"x, ""y"""\r\n\r\nsub/../b.jpg,,\r\n/abs/c.jpg,q\r\n', "utf-8"
    )
    assert read_metadata(file) == {
        str(tmp_path / "a.jpg"): {"identity": "7", "note": 'x, "y"'},
        str(tmp_path / "b.jpg"): {"identity": None, "note": None},
        "/abs/c.jpg": {"identity": "q", "note": None},
    }


def test_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"file": "a.jpg", "identity": 7, "box": [1, 2.5], "none": None},
        {"file": "/abs/c.jpg", "ok": False},
    ]
    (tmp_path / "facts.jsonl").write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    monkeypatch.chdir(tmp_path)
    assert read_metadata("facts.jsonl") == {
        str(tmp_path / "a.jpg"): {"identity": "7", "box": [1, 2.5], "none": None},
        "/abs/c.jpg": {"ok": False},
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "ends in .csv or .jsonl"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"path,x\na,b\n", "column 'file'"),
        ("a.csv", b"file,x,x\n", "same name"),
        ("a.csv", b"file,x\na,b,c\n", "line 2: 3 values for 2 columns"),
        ("a.csv", b"file,x\n,b\n", "line 2: expected the picture's path"),
        ("a.csv", b'file,x\na,"b\n', "line 2: CSV was expected"),
        ("a.csv", b"file,x\na,b\na,c\n", "line 3: .*second time"),
        ("a.csv", b"file\n\xff\n", "line 2: UTF-8 text was expected"),
        ("a.csv", b"file\na\x00b\n", "line 2"),
        ("a.jsonl", b"{\n", "line 1: not JSON"),
        ("a.jsonl", b"[1]\n", "expected a JSON object"),
        ("a.jsonl", b'{"file": "a"}\n{"file": 3}\n', "line 2: expected the picture's path"),
        ("a.jsonl", b'{"file": "a", "identity": [1]}\n', "under 'identity'"),
        ("a.jsonl", b'{"file": "a", "identity": true}\n', "under 'identity'"),
        ("a.jsonl", b'{"file": "a", "path": "b"}\n', "line 1: 'path' is the picture's own"),
        ("a.csv", b"file,\na,b\n", "line 2: expected names without blanks at their ends, got ''"),
        (
            "a.jsonl",
            b'{"file": "a", " x": 1}\n',
            "line 1: expected names without blanks at their ends, got ' x'",
        ),
        ("a.csv", b"file,path\na,b\n", "line 2: 'path' is the picture's own"),
        ("a.jsonl", b'{"file": "a", "x": NaN}\n', "not JSON"),
        ("a.jsonl", b'{"file": "\\ud800"}\n', "not JSON"),
        ("a.jsonl", b'{"file": "./a"}\n{"file": "a"}\n', "second time"),
        ("a.jsonl", b'{"x": ' + b"[" * 100_000, "not JSON"),
        ("a.jsonl", b"9" * 5000, "not JSON"),
    ],
)
def test_faults_are_named_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_metadata(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_of_spreadsheets(separator: str, encoding: str, tmp_path: Path) -> None:
    rows = ("file|identity|note", f"{tmp_path}/ä.jpg|7|a, b! c", "b.jpg")
    text = "\r\n".join(rows).replace("|", separator)
    if separator == ",":
        text = text.replace("a, b! c", '"a, b! c"')
    for begin in ("", f"sep={separator}\r\n"):
        (tmp_path / "facts.csv").write_bytes((begin + text).encode(encoding))
        assert read_metadata(tmp_path / "facts.csv") == {
            str(tmp_path / "ä.jpg"): {"identity": "7", "note": "a, b! c"},
            str(tmp_path / "b.jpg"): {"identity": None, "note": None},
        }


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_metadata(tmp_path / "missing.csv")


lines = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.text(alphabet='file,identity"\n\r\0{}[]:19 -é\\', max_size=30).map(lambda text: text.encode()),
        st.sampled_from([b"file,identity", b'{"file": "a"}', b'{"file": "b", "identity": 1e999}', b'a,"b']),
    ),
    max_size=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["f.csv", "f.jsonl"]), lines)
def test_any_bytes_are_read_or_refused(tmp_path: Path, name: str, parts: list[bytes]) -> None:
    (tmp_path / name).write_bytes(b"\n".join(parts))
    message = ""
    facts: dict[str, dict[str, object]] = {}
    try:
        facts = read_metadata(tmp_path / name)
    except DataError as error:
        message = str(error)
    assert len(message.splitlines()) == bool(message)
    assert all(Path(path).is_absolute() for path in facts)
    json.dumps(facts, allow_nan=False, ensure_ascii=False).encode()

"""LanceDB comes when a table is opened, and without the HTTP client of remote catalogues."""

import subprocess
import sys
from pathlib import Path

import pytest

import limner
from limner.search import lancedb_import
from limner.store.entry import key_of
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw
from tests.server.serving import toy_engine

CLIENT = "lance_namespace_urllib3_client"
ROOMS = sorted(
    f"limner.search.{file.stem}"
    for file in (Path(limner.__file__).parent / "search").glob("*.py")
    if file.stem != "__init__"
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_room_imports_it() -> None:
    print_found = (
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'lancedb', 'lance_namespace'}))"
    )
    assert run(f"import sys, {', '.join(ROOMS)}; {print_found}") == "[]\n"


def test_a_search_does_without_the_client(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    assert toy_engine(tmp_path).files.fingerprint == encoder.fingerprint
    draw(tmp_path / "more.png", 9)
    code = f"""
import sys
from limner.search.engine import Engine
from limner.search.store import Store
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder
store = Store(Engine(StoreFiles.open({str(tmp_path / "store")!r}), FakeEncoder()))
assert len(store.search("a red coat", k=3)) == 3
store.add({str(tmp_path / "more.png")!r})
print("lancedb" in sys.modules, "{CLIENT}.api_client" in sys.modules, "urllib3" in sys.modules)
import {CLIENT}
print({CLIENT}.ApiClient.__name__, "{CLIENT}.api_client" in sys.modules, {CLIENT}.__version__ > "0")
"""
    assert run(code).split("\n")[:2] == ["True False False", "ApiClient True True"]


@pytest.mark.parametrize("first", ["import lancedb", f"import {CLIENT}", "pass"])
def test_whoever_came_before_keeps_what_there_is(first: str) -> None:
    code = f"""
{first}
import sys
before = sys.modules.get("{CLIENT}")
from limner.search.lancedb_import import lancedb
assert lancedb() is lancedb() is sys.modules["lancedb"]
assert before is None or sys.modules["{CLIENT}"] is before
try:
    sys.modules["{CLIENT}"].no_such_name
except AttributeError as error:
    print(error)
"""
    assert "no_such_name" in run(code)


def test_its_data_types_work_though_they_are_built_later() -> None:
    code = f"""
from pydantic import BaseModel, ValidationError
from limner.search.lancedb_import import lancedb
before = BaseModel.model_config
lancedb()
assert BaseModel.model_config is before
from {CLIENT}.models import JsonArrowDataType, JsonArrowField
made = JsonArrowField(name="id", nullable=False, type=JsonArrowDataType(type="utf8"))
try:
    JsonArrowField(name=3, nullable=False, type=made.type)
except ValidationError:
    print(made.name)
"""
    assert run(code) == "id\n"


def test_commits_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LanceDB keeps what it reads of each commit; without a limit 30 adds and deletes leave 1.5 MB there."""
    limit = 2**18
    monkeypatch.setattr(lancedb_import, "CACHED", limit)
    lancedb_import.session.cache_clear()
    try:
        encoder, picture = FakeEncoder(), draw(tmp_path / "picture.png", 1)
        files = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
        index_pictures(encoder, files, [draw(tmp_path / "stays.png", 2)])
        for _ in range(30):
            index_pictures(encoder, files, [picture])
            assert files.delete([key_of(str(picture))]) == 1
            assert len(files.snapshot().keys) == 1
        # it has been used, and it has been emptied
        assert limit / 4 < lancedb_import.session().size_bytes < 1.5 * limit
    finally:
        lancedb_import.session.cache_clear()


def test_overrides_are_checked_again_afterwards() -> None:
    """LanceDB's methods are marked, and another package's are looked at as ever."""
    code = """
import overrides
from limner.search import lancedb_import
lancedb = lancedb_import.lancedb()
print(lancedb.db.LanceDBConnection.open_table.__override__)
class Parent:
    pass
try:
    class Child(Parent):
        @overrides.override
        def absent(self): pass
except TypeError as error:
    print("No super class" in str(error))
"""
    assert run(code) == "True\nTrue\n"

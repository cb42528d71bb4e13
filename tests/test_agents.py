import asyncio
import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

import limner
from limner.client import Client
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.files import StoreFiles
from tests.server.running import running
from tests.server.serving import COUNT, toy_engine

mcp = pytest.importorskip("mcp")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(toy_engine(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module", params=["store", "server"])
def library(request: pytest.FixtureRequest, store: Store) -> Iterator[Store | Client]:
    if request.param == "store":
        yield store
        return
    served = Store(Engine(StoreFiles.open(store.files.folder), store.engine.encoder))
    with running(create_app(served, ServerSettings(rate=0))) as url, Client(url) as client:
        yield client


def called(place: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of tools that the library's own client calls, one after the other."""

    async def call() -> list[Any]:
        async with mcp.Client(place) as client:
            return [await client.call_tool(*one) for one in calls]

    return asyncio.run(call())


def pictures_of(result: Any) -> Image.Image:
    (content,) = result.content
    assert (content.type, content.mime_type) == ("image", "image/jpeg")
    return Image.open(io.BytesIO(base64.b64decode(content.data)))


def test_an_agent_finds_looks_and_counts(library: Store | Client) -> None:
    from limner.agents import agent_server

    server = agent_server(library)
    about, found, more, newest, count = called(
        server,
        ("describe_library", {}),
        ("search_pictures", {"description": "a red coat", "limit": 3}),
        ("search_pictures", {"description": "a red coat", "limit": 3, "offset": 3}),
        ("search_pictures", {"where": ["camera=1"], "limit": 2}),
        ("count_pictures", {"where": ["camera=1"]}),
    )
    assert about.structured_content["pictures"] == COUNT
    assert "camera" in [field["name"] for field in about.structured_content["fields"]]
    hits = found.structured_content["found"] + more.structured_content["found"]
    expected = library.search("a red coat", k=6).hits
    assert [hit["key"] for hit in hits] == [hit.id for hit in expected]
    assert hits[0]["score"] == pytest.approx(expected[0].score)
    matching = library.items(where="camera=1", newest=True)
    assert [hit["key"] for hit in newest.structured_content["found"]] == [one.id for one in matching][:2]
    # a place is told as it is of hits
    assert [hit["name"] for hit in newest.structured_content["found"]] == [
        str(one.path or one.name) for one in matching
    ][:2]
    assert count.structured_content["result"] == newest.structured_content["matching"] == matching.total
    keys = [hit["key"] for hit in hits]
    sheet, close, facts = called(
        server,
        ("look_at_pictures", {"keys": keys}),
        ("look_closely", {"key": keys[0]}),
        ("picture_facts", {"key": keys[0]}),
    )
    assert pictures_of(sheet).size == (5 * 224, 2 * 224)
    assert max(pictures_of(close).size) <= 1024
    assert facts.structured_content["id"] == keys[0]


def test_notes_and_refusals_tell_how_to_go_on(library: Store | Client) -> None:
    from limner.agents import agent_server

    unknown, condition, key, many, none = called(
        agent_server(library),
        ("search_pictures", {"where": ["camra=1"]}),
        ("count_pictures", {"where": ["camera"]}),
        ("picture_facts", {"key": "f" * 32}),
        ("look_at_pictures", {"keys": ["a"] * 21}),
        ("look_at_pictures", {"keys": []}),
    )
    assert "camera" in unknown.structured_content["notes"][0]
    for refused in (condition, key, many, none):
        assert refused.is_error
    assert "camera" in condition.content[0].text or "where" in condition.content[0].text
    assert "holds no picture" in key.content[0].text


def test_a_wrong_argument_is_told_in_one_line(store: Store) -> None:
    from limner.agents import agent_server

    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "unknown argument 'query'; known here: description, like": (
            "search_pictures",
            {"query": "a red coat"},
        ),
        "unknown argument 'limt'; did you mean 'limit'?": ("search_pictures", {"limt": 3}),
        "unknown argument 'k'; known here: ": ("describe_library", {"k": 3}),
        "limit: expected at most 50, got 100": ("search_pictures", {"limit": 100}),
        "key: Field required": ("picture_facts", {}),
        "keys: Input should be a valid list": ("look_at_pictures", {"keys": 3}),
    }
    for expected, told in zip(calls, called(agent_server(store), *calls.values()), strict=True):
        assert told.is_error
        text = told.content[0].text
        assert expected in text
        assert "\n" not in text


def test_the_server_has_a_version_and_its_tools_take_no_other_arguments(store: Store) -> None:
    from limner.agents import agent_server

    async def asked() -> Any:
        async with mcp.Client(agent_server(store)) as client:
            return client.server_info.version, await client.list_tools()

    version, listed = asyncio.run(asked())
    assert version == limner.__version__
    assert {tool.input_schema["additionalProperties"] for tool in listed.tools} == {False}
    # the client holds answers against these; a picture has none
    answers = {tool.name: tool.output_schema for tool in listed.tools}
    assert {name for name, schema in answers.items() if schema is None} == {
        "look_at_pictures",
        "look_closely",
    }
    assert answers["search_pictures"]["required"] == ["found", "matching", "notes"]
    assert list(answers["count_pictures"]["properties"]) == ["result"]


def test_no_tool_changes_anything(store: Store) -> None:
    from limner.agents import agent_server

    async def listed() -> Any:
        async with mcp.Client(agent_server(store)) as client:
            return await client.list_tools()

    tools = asyncio.run(listed()).tools
    assert {tool.annotations.read_only_hint for tool in tools} == {True}
    assert all(tool.description for tool in tools)


def test_an_agent_is_told_nothing_of_a_fault_of_limner(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from limner.agents import agent_server

    def info() -> None:
        raise RuntimeError("at /home/ann")

    (unknown,) = called(agent_server(store), ("delete_pictures", {}))
    assert unknown.is_error
    assert "there are describe_library" in unknown.content[0].text
    monkeypatch.setattr(store, "info", info)

    async def asked() -> str:
        async with mcp.Client(agent_server(store)) as client:
            with pytest.raises(mcp.MCPError) as failed:
                await client.call_tool("describe_library", {})
            return str(failed.value)

    assert asyncio.run(asked()) == "Internal server error"

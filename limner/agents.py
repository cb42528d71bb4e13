"""Tools by which agents search a store or a server, over the Model Context Protocol: they look, and change nothing.

Answers are small: a hit has its key, name, time and a few facts; pictures are seen on a contact sheet of small ones.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from typing import Annotated, Any, get_type_hints

from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from limner.client import Client
from limner.data.images import open_rgb
from limner.documented import Result
from limner.errors import LimnerError, SettingsError, install_hint
from limner.requests import wrong_argument
from limner.search.store import Store
from limner.wire import Hit, Item, MetadataField, no_picture_has

MOST = 50
"""Most hits of an answer."""

ON_A_SHEET = 20
"""Most pictures of a contact sheet."""

_TILE, _ACROSS = 224, 5
_SIDE = 1024
"""Pixels of the longer side of a picture that is looked at by itself."""
_LONGEST = 200
"""Characters of a fact in a hit; `picture_facts` has all."""

_HOW = (
    "Pictures that can be searched by a description in plain words. Begin with describe_library. Look at what a search "
    "finds by look_at_pictures: hits are the nearest pictures, also where none fits."
)

Conditions = Annotated[
    list[str],
    Field(
        description="Conditions that pictures must meet, e.g. 'camera=3', 'place!=home', 'taken>=2026-05', "
        "'path~holiday'; names are those of describe_library, path, taken, identity"
    ),
]
Keys = Annotated[list[str], Field(min_length=1, max_length=ON_A_SHEET, description="Keys of pictures")]
Offset = Annotated[int, Field(ge=0, description="Hits to pass over, for the next part of an answer")]
Limit = Annotated[int, Field(ge=1, le=MOST, description="Most pictures of the answer")]


class Library(Result):
    """The pictures that can be searched."""

    pictures: int
    """How many there are."""
    taken: tuple[str, ...]
    """Capture times of the first and the last; empty if no picture has one."""
    fields: tuple[MetadataField, ...]
    """Names that conditions may use, with their values where they are few."""
    identities: bool
    """True if pictures have an identity, for conditions such as identity=NAME."""
    probabilities: bool
    """True if hits of a description have a probability."""
    examples: tuple[str, ...]
    """Sentences that fit some pictures."""


class Found(Result):
    """A picture that was found."""

    key: str
    """Its key, for the other tools."""
    name: str
    """Name of its file, or its path where that is told."""
    taken: str | None
    """When, by the camera's clock."""
    identity: str | None
    """Whom or what it shows."""
    metadata: dict[str, JsonValue]
    """Other facts."""
    probability: float | None = None
    """Probability that it is a right answer, 0 to 1."""
    score: float | None = None
    """Cosine with the query."""


class Hits(Result):
    """The result of a search, best first."""

    found: tuple[Found, ...]
    """The pictures."""
    matching: int
    """How many meet the conditions."""
    notes: tuple[str, ...]
    """The parts that were not understood: words that the model does not know, names that no picture has."""


class Tools:
    """The questions of agents, who read these docstrings."""

    def __init__(self, library: Store | Client) -> None:
        self.library = library

    def describe_library(self) -> Library:
        """Say what pictures there are, and which facts conditions can ask for."""
        info = self.library.info()
        return Library(
            pictures=info.pictures,
            taken=info.times or (),
            fields=info.fields,
            identities=info.identities,
            probabilities=info.calibrated,
            examples=info.examples,
        )

    def search_pictures(
        self,
        description: Annotated[str, Field(description="What is seen, in plain words")] = "",
        like: Annotated[str, Field(description="Key of a picture that others should be like")] = "",
        where: Conditions = [],  # noqa: B006 - never changed, and None would be one kind more in the schema
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Hits:
        """Find the nearest pictures to a description, to a picture, or to both; without, list the newest."""
        if not description and not like:
            items = self.library.items(offset=offset, limit=limit, where=where, newest=True)
            found = tuple(map(_found, items))
            return Hits(found=found, matching=items.total, notes=_notes(absent=items.absent))
        answer = self.library.search(
            description or None, like=like or None, where=where, k=limit, offset=offset or None
        )
        return Hits(
            found=tuple(map(_found, answer.hits)),
            matching=answer.matching,
            notes=_notes(answer.absent, answer.unknown, answer.turned, answer.language),
        )

    def count_pictures(self, where: Conditions) -> int:
        """Count the pictures that meet conditions."""
        return self.library.items(limit=1, where=where).total

    def look_at_pictures(self, keys: Keys) -> bytes:
        """See pictures on one sheet, numbered from 1 in the order of their keys."""
        return _jpeg(_sheet([self.library.thumbnail(key) for key in keys]))

    def look_closely(self, key: str) -> bytes:
        """See one picture by itself, as large as is useful."""
        picture = open_rgb(self.library.image(key), short_side=_SIDE, shown=True)
        picture.thumbnail((_SIDE, _SIDE))
        return _jpeg(picture)

    def picture_facts(self, key: str) -> Item:
        """Say all that is known of one picture."""
        return self.library.item(key)


def agent_server(library: Store | Client) -> Any:
    """A server of the package `mcp` with the tools of `Tools`, for a store or, by a client, a server of limner.

    Raises `SettingsError` without that package.
    """
    try:
        from anyio.to_thread import run_sync
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise SettingsError(f"agents need the package mcp: {install_hint('mcp')}") from None
    tools = Tools(library)
    calls: dict[str, Callable[..., Any]] = {
        call.__name__: call
        for call in (
            tools.describe_library,
            tools.search_pictures,
            tools.count_pictures,
            tools.picture_facts,
            tools.look_at_pictures,
            tools.look_closely,
        )
    }
    arguments = {name: _arguments(call) for name, call in calls.items()}

    async def list_tools(context: Any, asked: Any) -> types.ListToolsResult:
        looks = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=call.__doc__,
                    input_schema=arguments[name].model_json_schema(),
                    output_schema=_answer_schema(call),
                    annotations=looks,
                )
                for name, call in calls.items()
            ]
        )

    async def call_tool(context: Any, asked: Any) -> types.CallToolResult:
        if (call := calls.get(asked.name)) is None:
            return told(f"no tool is called {asked.name!r}; there are {', '.join(calls)}")
        try:
            given = arguments[asked.name].model_validate(asked.arguments or {})
            made = await run_sync(
                lambda: call(**{name: getattr(given, name) for name in given.model_fields_set})
            )
        except ValidationError as wrong:
            return told(wrong_argument(arguments[asked.name], wrong))
        except LimnerError as error:
            return told(str(error))
        if isinstance(made, bytes):
            # a picture is no structure
            shown = types.ImageContent(
                type="image", data=base64.b64encode(made).decode(), mime_type="image/jpeg"
            )
            return types.CallToolResult(content=[shown])
        values = made.model_dump(mode="json") if isinstance(made, BaseModel) else {"result": made}
        text = types.TextContent(type="text", text=json.dumps(values, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=values)

    def told(why: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)

    return Server(
        "limner",
        version=version("limner"),
        instructions=_HOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_agents(server: Any) -> None:
    """Answer over standard input and output, until that ends."""
    from anyio import run
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as streams:
            await server.run(*streams, server.create_initialization_options())

    run(serve)


def _arguments(call: Callable[..., Any]) -> type[BaseModel]:
    """The arguments of a tool; a misspelt description is refused, since without one the newest pictures are found."""
    kinds = get_type_hints(call, include_extras=True)
    fields: dict[str, Any] = {
        name: (kinds[name], ... if one.default is one.empty else one.default)
        for name, one in signature(call).parameters.items()
    }
    return create_model(call.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _answer_schema(call: Callable[..., Any]) -> dict[str, Any] | None:
    """The schema of what a tool answers; None for a picture."""
    kind = get_type_hints(call)["return"]
    if kind is bytes:
        return None
    answer = kind if issubclass(kind, BaseModel) else create_model("Answer", result=(kind, ...))
    schema: dict[str, Any] = answer.model_json_schema(mode="serialization")
    return schema


def _found(picture: Hit | Item) -> Found:
    metadata = {
        fact: f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
        for fact, value in picture.metadata.items()
    }
    scores = {} if isinstance(picture, Item) else {"probability": picture.probability, "score": picture.score}
    taken = None if picture.taken is None else picture.taken.isoformat()
    name = str(picture.path or picture.name)
    return Found(
        key=picture.id, name=name, taken=taken, identity=picture.identity, metadata=metadata, **scores
    )


def _notes(
    absent: Mapping[str, str | None],
    unknown: Sequence[str] = (),
    turned: Sequence[str] = (),
    language: str | None = None,
) -> tuple[str, ...]:
    said = [no_picture_has(absent)] if absent else []
    said += [f"the model does not know {', '.join(unknown[:10])}"] if unknown else []
    said += [f"without {', '.join(turned)} the description says the opposite"] if turned else []
    said += [f"the model does not read {language}"] if language else []
    return tuple(said)


def _sheet(pictures: Sequence[bytes]) -> Pillow.Image:
    across = min(_ACROSS, len(pictures))
    rows = -(-len(pictures) // across)
    sheet = Pillow.new("RGB", (across * _TILE, rows * _TILE), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(20)
    for number, content in enumerate(pictures):
        left, top = number % across * _TILE, number // across * _TILE
        picture = open_rgb(content, shown=True)
        picture.thumbnail((_TILE - 4, _TILE - 4))
        sheet.paste(picture, (left, top))
        draw.rectangle((left, top, left + 32, top + 26), fill="black")
        draw.text((left + 16, top + 13), str(number + 1), fill="white", font=font, anchor="mm")
    return sheet


def _jpeg(picture: Pillow.Image) -> bytes:
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=85)
    return written.getvalue()

"""Tools by which agents search a store or a server, over the Model Context Protocol: they look, and change nothing.

Answers are small: a hit has its key, name, time and a few facts; pictures are seen on a contact sheet of small ones.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any

from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont
from pydantic import Field, JsonValue, ValidationError

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
    """Probability that it is the picture that was described, 0 to 1."""
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
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Image
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.mcpserver.tools import Tool
        from mcp.types import ToolAnnotations
    except ImportError:
        raise SettingsError(f"agents need the package mcp: {install_hint('mcp')}") from None
    tools, registered = Tools(library), []

    class StrictTool(Tool):
        async def run(self, *given: Any, **named: Any) -> Any:
            try:
                return await super().run(*given, **named)
            except ToolError as error:
                if not isinstance(wrong := error.__cause__, ValidationError):
                    raise
                raise ToolError(wrong_argument(self.fn_metadata.arg_model, wrong)) from None

    def register(call: Callable[..., Any], answer: Callable[[Any], Any] | None = None) -> None:
        @wraps(call)
        def tool(**arguments: Any) -> Any:
            try:
                made = call(**arguments)
            except LimnerError as error:
                # of any other error an agent is told nothing
                raise ToolError(str(error)) from None
            return made if answer is None else answer(made)

        looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        # a picture is no structure
        made = StrictTool.from_function(tool, annotations=looks, structured_output=answer is None)
        arguments = made.fn_metadata.arg_model
        # the package drops a name that it does not know, and a misspelt description would find the newest pictures
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        made.parameters = arguments.model_json_schema(by_alias=True)
        registered.append(made)

    for call in (tools.describe_library, tools.search_pictures, tools.count_pictures, tools.picture_facts):
        register(call)
    for look in (tools.look_at_pictures, tools.look_closely):
        register(look, lambda content: Image(data=content, format="jpeg"))
    return MCPServer(
        "limner", version=version("limner"), instructions=_HOW, tools=registered, log_level="ERROR"
    )


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

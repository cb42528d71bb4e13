"""What the routes of pictures are asked and answer."""

from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from limner.server.schemas import Asked, Picture, Told, Where

WhereInAddress = Annotated[Where, Field(max_length=200)]
"""A condition in an address, which has an end."""


class Item(Told):
    """A picture of the store."""

    id: str
    """Its key."""

    name: str
    """Name of its file."""

    identity: str | None
    """Whom or what it shows."""

    metadata: dict[str, JsonValue]
    """What else was given for it."""

    taken: str | None
    """When, by the camera's clock, ISO 8601 without a zone."""


class Items(Told):
    """Pictures of the store, in the order of their paths."""

    items: list[Item]
    """Those of this part of the list."""

    total: int
    """All that meet the conditions."""


_DOT = "R0lGODdhAQABAIEAAMgeHgAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw=="
"""A red GIF of one pixel."""


class NewItem(Asked):
    """A picture to add."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "dot.gif", "image": _DOT, "metadata": {"camera": 3}}]}
    )

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What it is called; the server chooses the file's name itself."""

    image: Picture
    """The picture file in base64."""

    identity: Annotated[str, Field(max_length=200)] | None = None
    """Whom or what it shows."""

    metadata: dict[str, JsonValue] = Field(default={}, max_length=50)
    """Other facts; `taken` is a time in ISO 8601 in place of the one that the file holds."""

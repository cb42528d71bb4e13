"""The description of a store: its model, and how its rows are kept."""

from typing import Annotated, Literal

from pydantic import Field

from limner.durable import from_json, opened, sealed
from limner.errors import SettingsError, StoreError
from limner.settings import Settings
from limner.store.lock import LEASE_FILE, LOCK_FILE
from limner.store.path import StorePath, is_remote
from limner.store.rows import Rows
from limner.store.sqlite_file import PARTIAL

DESCRIPTION, ID = "description", "id"
"""Names of the texts of a store in which this, and its id alone, are kept."""

# 1 to 4 were LanceDB's files with checksums, and segments; 5 and on are one SQLite file
FORMAT = 8
"""Version of the layout; older stores must be indexed anew."""

MODEL_FOLDER = "model"
"""Where a store keeps a model of its own."""
IN_STORE = "{store}/" + MODEL_FOLDER
"""How a description names the model in its store's folder, wherever that is moved to."""
PARTIAL_MODEL = f".{MODEL_FOLDER}.partial"
"""Where a model is put together before its folder gets its name."""

_LEFT_BEHIND = {
    PARTIAL,
    f"{PARTIAL}-journal",
    LOCK_FILE,
    LEASE_FILE,
    PARTIAL_MODEL,
}  # of a create that was killed


class StoreManifest(Settings):
    """The store's model and layout, written when the store is made."""

    format: int = FORMAT
    """Version of the store's layout."""
    fingerprint: str = Field(min_length=1)
    """Hex digest of the model whose embeddings it holds."""
    dim: int = Field(ge=1)
    """Width of an embedding."""
    map: (
        tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None
    ) = None
    """Height, width and channels of the region features that are kept for re-ranking; None = none are kept."""
    run: str
    """Path of the model's run folder as it was given, relative or absolute; `{store}/model` = within the store;
    `vectors:NAME` = a model that limner has not (`limner.search.foreign_vectors`)."""
    precision: Literal["fp32", "bf16"] | None = None
    """Arithmetic of its embeddings, in which searches by a picture are encoded, too; None = not known, as of
    vectors of others."""
    kept_from: str | None = None
    """Absolute path of the run whose model is in the store's folder; None = the store names a run, or imported one."""
    created: str
    """Time when it was made: ISO 8601, UTC."""
    id: str = Field(min_length=1)
    """Random number that tells it from any other store; its calibration names it, too."""


def texts_of(manifest: StoreManifest) -> dict[str, str]:
    """The texts that a new store begins with."""
    return {DESCRIPTION: sealed(manifest.model_dump(mode="json")), ID: manifest.id}


def read_manifest(folder: StorePath, rows: Rows) -> StoreManifest:
    """Read the description of a store. Raises `StoreError` for one that is damaged, and for another format."""
    text = rows.text(DESCRIPTION) or ""
    try:
        values = from_json(text)
        # before the fields, or a store of another format would be called damaged
        version = values.get("format")
        if isinstance(version, int) and version != FORMAT:
            advice = "upgrade limner" if version > FORMAT else "index into a new folder"
            raise StoreError(f"{folder}: store format {version}, and this limner reads {FORMAT}; {advice}")
        return StoreManifest.parse(opened(values))
    except (SettingsError, ValueError, AttributeError):
        raise StoreError(
            f"{folder}: its description is damaged; put back a copy of the store, or index into a new folder",
            "damaged",
        ) from None


def check_empty(folder: StorePath, *, besides: str | None = None) -> None:
    """Raise `StoreError` for a folder that holds anything but the remains of a create that was killed.

    `besides` may be there too.
    """
    if is_remote(folder) and not folder.is_dir():
        return  # an object storage has no empty folders
    others = {path.name for path in folder.iterdir()} - _LEFT_BEHIND - {besides}
    if others:
        raise StoreError(f"{folder}: not empty (holds {min(others)!a}); choose a new folder for the store")

"""The manifest of a store, `store.json`: its model and its layout."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from limner.durable import from_json, opened, sealed, write_whole
from limner.errors import SettingsError, StoreError
from limner.search.lock import LEASE_FILE, LOCK_FILE
from limner.search.store_path import StorePath, expect_file, is_remote, reached, read_text
from limner.settings import Settings

FILE = "store.json"
PARTIAL = f".{FILE}.partial"
"""Name of the manifest while it is written."""
# 1 to 3 were never released; from 4 on tests/search/stores keeps a store of each format that must open
FORMAT = 4
"""Version of the layout: 4 keeps thumbnails and region features in segments; older stores must be indexed anew."""

MODEL_FOLDER = "model"
"""Where a store keeps a model of its own."""
IN_STORE = "{store}/" + MODEL_FOLDER
"""How a manifest names the model in its store's folder, wherever that is moved to."""
PARTIAL_MODEL = f".{MODEL_FOLDER}.partial"
"""Where a model is put together before its folder gets its name."""

_AGAIN = "put back a copy of it, or index into a new folder"

_LEFT_BEHIND = {PARTIAL, LOCK_FILE, LEASE_FILE, PARTIAL_MODEL}  # of a create that was killed


class StoreManifest(Settings):
    """The store's model and layout: written when the store is made, a table begun, a calibration fitted, and when a new
    generation takes over.
    """

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
    """Arithmetic of its embeddings, in which searches by a picture are encoded, too; None = not known, as of a store
    that limner 0.1.0 made, or of vectors of others."""
    kept_from: str | None = None
    """Absolute path of the run whose model is in the store's folder; None = the store names a run, or imported one."""
    created: str
    """Time when it was made: ISO 8601, UTC."""
    id: str = Field(min_length=1)
    """Random number that tells it from any other store; its tables and its calibration name it, too."""
    generation: int = Field(default=1, ge=1)
    """Number in the names of its tables; what belongs to another generation is removed by the next writer."""
    begun: tuple[Literal["pictures", "sentences"], ...] = ()
    """Tables that have been begun: one that is gone with its record is lost, and not empty."""
    calibration: tuple[str, ...] = ()
    """Digests of its `calibration.json`: two while that is replaced; () = it has none, or nothing is known of it."""

    def table(self, kind: str) -> str:
        """Name of the table of `pictures` or `sentences` in this generation."""
        return f"{kind}-{self.generation}"


def write_manifest(folder: StorePath, manifest: StoreManifest) -> None:
    """Write `store.json` with a digest of its content, as a whole or not at all."""
    text = sealed(manifest.model_dump(mode="json"))
    if not isinstance(folder, Path):
        # a put makes an object whole or not at all; a rename would be a copy and a deletion there
        with reached(folder):
            (folder / FILE).write_text(text, encoding="utf-8")
        return
    # on the disk before what the manifest no longer names is removed
    write_whole(folder / FILE, text, part=folder / PARTIAL)


def read_manifest(folder: StorePath) -> StoreManifest:
    """Read `store.json`.

    Raises `StoreError` in one line for a folder that is missing or no store, a damaged file, a store of another
    format, and a storage that cannot be reached.
    """
    with reached(folder, "read"):
        expect_file(folder / FILE)
        try:
            text = read_text(folder / FILE)
        except (FileNotFoundError, NotADirectoryError):
            if folder.is_dir():
                message = f"not a store, it has no {FILE}; build one with `limner index`"
            else:
                message = "no such store; build one with `limner index RUN STORE PICTURES`"
            raise StoreError(f"{folder}: {message}", "missing") from None
        except UnicodeDecodeError:
            # falls through to the message for what is no JSON
            text = ""
    try:
        values = from_json(text)
    except ValueError:
        raise StoreError(f"{folder / FILE}: damaged, not JSON; {_AGAIN}", "damaged") from None
    if not isinstance(values, dict):
        raise StoreError(f"{folder / FILE}: damaged, expected a JSON object; {_AGAIN}", "damaged")
    # before the fields, or a store of another format would be called damaged
    version = values.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise StoreError(
            f"{folder}: store format {version} is newer than this limner's {FORMAT}; upgrade limner"
        )
    if isinstance(version, int) and version < FORMAT:
        raise StoreError(
            f"{folder}: store format {version} is older than this limner's {FORMAT}; index into a new folder"
        )
    try:
        return StoreManifest.parse(opened(values))
    except (SettingsError, ValueError) as error:
        raise StoreError(f"{folder / FILE}: damaged, {error}; {_AGAIN}", "damaged") from None


def reread_manifest(folder: StorePath) -> StoreManifest:
    """Read `store.json` of a store that is open. Raises as `read_manifest`, with the advice for a lost disk."""
    try:
        return read_manifest(folder)
    except StoreError as error:
        if error.trouble != "missing":
            raise
    # whoever has used this store until now does not want to build another one
    with reached(folder, "read"):
        if not folder.is_dir():
            lost = "the folder of the store is gone"
        elif any(folder.iterdir()):
            raise StoreError(f"{folder}: {FILE} is gone; put back a copy of it", "damaged")
        else:
            lost = "the folder of the store is empty"
    raise StoreError(
        f"{folder}: {lost}; is its disk mounted? The store is used again as soon as it is back", "missing"
    )


def check_empty(folder: StorePath, *, besides: str | None = None) -> None:
    """Raise `StoreError` for a folder that holds anything but the remains of a create that was killed.

    `besides` may be there too.
    """
    if is_remote(folder) and not folder.is_dir():
        return  # an object storage has no empty folders
    others = {path.name for path in folder.iterdir()} - _LEFT_BEHIND - {besides}
    if others:
        raise StoreError(f"{folder}: not empty (holds {min(others)!a}); choose a new folder for the store")

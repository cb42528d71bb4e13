"""A store that holds its model: a pretrained pair is imported into the store's own folder.

Moving or copying the folder moves the model with the pictures' vectors, and neither the hub nor a run is needed again.
"""

from pathlib import Path

from limner.errors import SettingsError, StoreError
from limner.inference.import_model import FILE, import_model
from limner.inference.precision import InferenceEngine
from limner.inference.trained import RUN_FILE, TrainedModel, load_model
from limner.search.manifest import FILE as MANIFEST
from limner.search.manifest import IN_STORE, MODEL_FOLDER
from limner.search.store_files import StoreFiles, check_empty, store_for
from limner.search.store_path import StorePath, reached


def store_with_model(
    source: str,
    folder: StorePath,
    *,
    regions: bool | None = None,
    device: str | None = None,
    engine: InferenceEngine = "torch",
) -> tuple[TrainedModel, StoreFiles]:
    """Open a store and its own model; a new store is made, and `hf:ORG/NAME` imported into its folder.

    An import that was interrupted is begun anew. Raises `StoreError` for a folder with anything else, and a store of
    another model; otherwise as `import_model`.
    """
    if not isinstance(folder, Path):
        raise SettingsError(
            f"{folder}: a model is imported into a store on this machine's disk; for an object storage import it first "
            f"(limner import {source} RUN) and index with the run"
        )
    with reached(folder, "read"):
        has_manifest = (folder / MANIFEST).is_file()
    if has_manifest:
        return _opened(source, folder, device, engine)
    with reached(folder):
        if folder.exists():
            check_empty(folder, besides=MODEL_FOLDER)
        model = folder / MODEL_FOLDER
        if not (model / RUN_FILE).is_file() and model.is_dir():
            # only what an interrupted import leaves: a folder of the user's own keeps its files and is refused below
            for name in (FILE, f"{FILE}.part", f"{RUN_FILE}.part"):
                (model / name).unlink(missing_ok=True)
    if not (model / RUN_FILE).is_file():
        import_model(source, model)
    encoder = load_model(model, device=device, engine=engine)
    _expect_source(encoder, source, folder)
    return encoder, store_for(encoder, Path(IN_STORE), folder, regions=regions)


def _opened(
    source: str, folder: Path, device: str | None, engine: InferenceEngine
) -> tuple[TrainedModel, StoreFiles]:
    files = StoreFiles.open(folder)
    if files.manifest.run != IN_STORE:
        raise StoreError(
            f"{folder}: built with run {files.run}, not with a model in its own folder; index with that run, or "
            f"{source} into a new folder"
        )
    encoder = load_model(files.run, device=device, engine=engine)
    _expect_source(encoder, source, folder)
    files.check_model(encoder.fingerprint, encoder.dim)
    return encoder, files


def _expect_source(encoder: TrainedModel, source: str, folder: Path) -> None:
    found = encoder.description["data"]["source"]
    if found != source:
        raise StoreError(f"{folder}: built with {found}, not with {source}; index into a new folder")

"""A store that holds its model: that of a run is kept in the store's folder, a pretrained pair is imported into it.

Moving or copying the folder moves the model with the pictures' vectors; neither the hub nor the run is needed again.
"""

from functools import partial
from pathlib import Path

from limner.errors import SettingsError, StoreError
from limner.inference.checkpoint import discard_part
from limner.inference.hub_runs import RUN_FILE, run_of_name
from limner.inference.import_model import FILE, import_model
from limner.inference.precision import InferenceEngine, Precision
from limner.inference.trained import TrainedModel, load_model
from limner.search.kept_model import keep
from limner.search.manifest import FILE as MANIFEST
from limner.search.manifest import IN_STORE, MODEL_FOLDER, check_empty
from limner.search.store_files import StoreFiles, store_for
from limner.search.store_path import StorePath, is_remote, reached


def store_of_run(
    encoder: TrainedModel,
    run: Path,
    folder: StorePath,
    *,
    regions: bool | None = None,
    keep_model: bool = True,
) -> StoreFiles:
    """Open the store in a folder, or make one there that holds the model of a run.

    A new store names the run by its path, and needs it there, if `keep_model` is False and on an object storage. Raises
    `StoreError` as `limner.search.store_files.store_for` and `limner.search.kept_model.keep_model`.
    """
    with reached(folder, "read"):
        is_there = (folder / MANIFEST).exists()
    if is_there:
        files = StoreFiles.open(folder)
        _expect_model(files, encoder, run)
        return files
    # a model is read from a disk: of an object storage it would be fetched each time that the store is opened
    kept = keep_model and not is_remote(folder)
    return store_for(encoder, run, folder, regions=regions, keep=partial(keep, encoder) if kept else None)


def _expect_model(files: StoreFiles, encoder: TrainedModel, run: Path) -> None:
    source = files.manifest.kept_from
    # refused, though the store's own model could go on: whoever names a run means that run's model
    if (
        source is not None
        and encoder.fingerprint != files.fingerprint
        and _run_folder(Path(source)) == _run_folder(run.resolve())
    ):
        raise StoreError(
            f"{files.folder}: was built with another checkpoint of this run, model {files.fingerprint[:12]}, this is "
            f"model {encoder.fingerprint[:12]}; add with the one that the store holds, `limner index {files.run} "
            f"{files.folder} …`, or make a store of this one, `limner reindex {files.folder} {run} NEW`"
        )
    files.check_model(encoder.fingerprint, encoder.dim)


def _run_folder(run: Path) -> Path:
    # a run is named by its folder or by a checkpoint in it, which may be gone
    return run.parent if run.suffix == ".safetensors" else run


def run_for_store(source: str, folder: StorePath) -> Path | None:
    """The folder of a run of the hub to index with; None for a pretrained pair, and for a store that holds that pair.

    Raises `CheckpointError` for a repository that cannot be had.
    """
    with reached(folder, "read"):
        has_manifest = (folder / MANIFEST).exists()
    if has_manifest:
        manifest = StoreFiles.open(folder).manifest
        # a store with its own pair needs the hub no more
        if manifest.run == IN_STORE and manifest.kept_from is None:
            return None
    return run_of_name(source)


def store_with_model(
    source: str,
    folder: StorePath,
    *,
    regions: bool | None = None,
    device: str | None = None,
    engine: InferenceEngine = "torch",
    precision: Precision | None = None,
) -> tuple[TrainedModel, StoreFiles]:
    """Open a store and its own model; a new store is made, and `hf:ORG/NAME` imported into its folder.

    `precision` is as `load_model` has it, and the arithmetic of a new store. An import that was interrupted is begun
    anew. Raises `StoreError` for a folder with anything else, and a store of another model; otherwise as
    `import_model`.
    """
    if not isinstance(folder, Path):
        raise SettingsError(
            f"{folder}: a model is imported into a store on this machine's disk; for an object storage import it first "
            f"(limner import {source} RUN) and index with the run"
        )
    with reached(folder, "read"):
        has_manifest = (folder / MANIFEST).is_file()
    if has_manifest:
        return _opened(source, folder, device, engine, precision)
    with reached(folder):
        if folder.exists():
            check_empty(folder, besides=MODEL_FOLDER)
        model = folder / MODEL_FOLDER
        if not (model / RUN_FILE).is_file() and model.is_dir():
            # only what an interrupted import leaves: a folder of the user's own keeps its files and is refused below
            for name in (FILE, f"{RUN_FILE}.part"):
                (model / name).unlink(missing_ok=True)
            discard_part(model / FILE)
    if not (model / RUN_FILE).is_file():
        import_model(source, model)
    encoder = load_model(model, device=device, precision=precision, engine=engine)
    _expect_source(encoder, source, folder)
    return encoder, store_for(encoder, Path(IN_STORE), folder, regions=regions)


def _opened(
    source: str, folder: Path, device: str | None, engine: InferenceEngine, precision: Precision | None
) -> tuple[TrainedModel, StoreFiles]:
    files = StoreFiles.open(folder)
    if files.manifest.run != IN_STORE or files.manifest.kept_from is not None:
        raise StoreError(
            f"{folder}: built with run {files.manifest.kept_from or files.run}, not with {source}; index with run "
            f"{files.run}, or {source} into a new folder"
        )
    encoder = load_model(files.run, device=device, precision=precision, engine=engine)
    _expect_source(encoder, source, folder)
    files.check_model(encoder.fingerprint, encoder.dim)
    return encoder, files


def _expect_source(encoder: TrainedModel, source: str, folder: Path) -> None:
    found = encoder.description["data"]["source"]
    if found != source:
        raise StoreError(f"{folder}: built with {found}, not with {source}; index into a new folder")

"""A model by what names it, and the store that it indexes into: `open_source`.

That of a run or an export is kept in a new store's folder, a pretrained model, of the hub or in a folder, is imported
into it. Moving or copying the folder moves the model with the pictures' vectors; the source is not needed again.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from limner.errors import SettingsError, StoreError
from limner.export.exported import ExportedModel
from limner.inference.hub_runs import run_of_name
from limner.inference.source import MODULES, RUN_FILE, SENTENCE_TRANSFORMER, kind_of
from limner.store.files import StoreFiles, has_store, store_for
from limner.store.kept_model import as_stored, keep, load_source
from limner.store.manifest import IN_STORE, MODEL_FOLDER, check_empty
from limner.store.path import StorePath, is_remote, reached
from limner.types import Encoder

if TYPE_CHECKING:
    # here and within functions: torch takes two seconds to load, which an export need not wait for
    from limner.inference.precision import InferenceEngine, Precision
    from limner.inference.trained import TrainedModel


def open_source(
    source: str | Path,
    folder: StorePath,
    *,
    regions: bool | None = None,
    keep_model: bool = True,
    stage: str | None = None,
    device: str | None = None,
    engine: "InferenceEngine" = "torch",
    precision: "Precision | None" = None,
) -> "tuple[TrainedModel | ExportedModel, StoreFiles]":
    """Load a model of any kind (`limner.inference.source`) or a checkpoint, and open the store in a folder.

    A store that is not there is made, with the model in it unless `keep_model` is off; `regions` as `store_for` has it,
    the other arguments as `load_model`. A run computes in the store's arithmetic. Raises `SettingsError` for what does
    not go together, `CheckpointError` for a model that cannot be had, `StoreError` as `store_of` and for a store of
    another pair.
    """
    kind, named = kind_of(source), Path(source)
    pair: str | None = None
    if kind == "export":
        _expect_none(
            "an export is of one stage and arithmetic, and runs on the CPU by its own engine",
            {"--stage": stage, "--engine": engine != "torch", "--precision": precision, "--cpu": device},
        )
    elif kind in ("hub", "pretrained", "sentence-transformers"):
        name = named.as_posix()
        what = "a model of the hub" if kind == "hub" else "a pretrained model"
        _expect_none(f"{what} has no stages", {"--stage": stage})
        _expect_none(
            f"{what} lies in the store; for a store without it index with a run on this machine: of a pair by `limner "
            f"import {name} RUN`, of a run of the hub by `hf download`",
            {"--no-model": not keep_model},
        )
        if kind == "pretrained" and (named / MODULES).is_file():
            name = SENTENCE_TRANSFORMER + name
        run = run_for_store(name, folder) if kind == "hub" else None
        # a run is in the hub's cache, and used as one of this machine
        named, pair = (_imported(name, folder), _called(name)) if run is None else (run, None)
    model = load_source(named, stage=stage, device=device, engine=engine, precision=precision)
    if pair is not None:
        _expect_source(model, pair, folder)
        files = store_for(model, Path(IN_STORE), folder, regions=regions)
    else:
        # a store notes what to load when it is opened: of a stage that is not the best, the checkpoint itself
        named = named if stage is None else model.path
        files = store_of(model, named, folder, regions=regions, keep_model=keep_model)
    stored = files.manifest.precision
    if precision is not None and stored not in (None, model.precision):
        raise SettingsError(
            f"--precision: {folder} holds embeddings in {stored} and goes on in that; leave it out, or index "
            "into a new folder"
        )
    return as_stored(model, files), files


def store_of(
    model: Encoder,
    named: Path,
    folder: StorePath,
    *,
    regions: bool | None = None,
    keep_model: bool = True,
) -> StoreFiles:
    """Open the store in a folder, or make one there that holds a loaded model; it is `named` where it is not kept.

    That is so if `keep_model` is off, on an object storage, and with an encoder of another package. Raises
    `SettingsError` for an export that embeds pictures only nearly as its run, `StoreError` as `store_for` and `keep`.
    """
    if isinstance(model, ExportedModel):
        model.expect_to_index(regions=False)
    is_there = has_store(folder)
    if is_there:
        files = StoreFiles.open(folder)
        _expect_model(files, model, named)
        return files
    # a model is read from a disk: of an object storage it would be fetched each time that the store is opened
    kept = partial(keep, model) if keep_model and not is_remote(folder) and _can_be_kept(model) else None
    return store_for(model, named, folder, regions=regions, keep=kept)


def _can_be_kept(model: Encoder) -> TypeGuard["TrainedModel | ExportedModel"]:
    if isinstance(model, ExportedModel):
        return True
    from limner.inference.trained import TrainedModel

    return isinstance(model, TrainedModel)


def _expect_none(why: str, options: dict[str, Any]) -> None:
    """Raise `SettingsError` for an option that was given, by its name on the command line."""
    for option, given in options.items():
        if given:
            raise SettingsError(f"{option}: {why}")


def _expect_model(files: StoreFiles, model: Encoder, run: Path) -> None:
    source = files.manifest.kept_from
    # refused, though the store's own model could go on: whoever names a run means that run's model
    if (
        source is not None
        and model.fingerprint != files.fingerprint
        and _run_folder(Path(source)) == _run_folder(run.resolve())
    ):
        raise StoreError(
            f"{files.folder}: was built with another checkpoint of this run, model {files.fingerprint[:12]}, this is "
            f"model {model.fingerprint[:12]}; add with the one that the store holds, `limner index {files.run} "
            f"{files.folder} …`, or make a store of this one, `limner reindex {files.folder} {run} NEW`"
        )
    files.check_model(model.fingerprint, model.dim)


def _run_folder(run: Path) -> Path:
    # a run is named by its folder or by a checkpoint in it, which may be gone
    return run.parent if run.suffix == ".safetensors" else run


def run_for_store(source: str, folder: StorePath) -> Path | None:
    """The folder of a run of the hub to index with; None for a pretrained pair, and for a store that holds that pair.

    Raises `CheckpointError` for a repository that cannot be had.
    """
    has_manifest = has_store(folder)
    if has_manifest:
        manifest = StoreFiles.open(folder).manifest
        # a store with its own pair needs the hub no more
        if manifest.run == IN_STORE and manifest.kept_from is None:
            return None
    return run_of_name(source)


def _called(source: str) -> str:
    """How the run of a pretrained model names what it was imported from."""
    from limner.inference.import_pair import source_name

    name = source.removeprefix(SENTENCE_TRANSFORMER)
    return source.removesuffix(name) + source_name(name)


def _imported(source: str, folder: StorePath) -> Path:
    """The run of a pretrained model in its store's folder, imported there if there is no store yet.

    An import that was interrupted is begun anew. Raises `StoreError` for a folder with anything else, and a store of
    another model; otherwise as `import_model`.
    """
    if not isinstance(folder, Path):
        raise SettingsError(
            f"{folder}: a model is imported into a store on this machine's disk; for an object storage import it first "
            f"(limner import {source} RUN) and index with the run"
        )
    has_manifest = has_store(folder)
    if has_manifest:
        files = StoreFiles.open(folder)
        if files.manifest.run != IN_STORE or files.manifest.kept_from is not None:
            raise StoreError(
                f"{folder}: built with run {files.manifest.kept_from or files.run}, not with {source}; index with run "
                f"{files.run}, or {source} into a new folder"
            )
        _expect_older(source, files)
        return Path(files.run)
    from limner.inference.checkpoint import discard_part
    from limner.inference.import_model import import_model
    from limner.inference.import_pair import FILE

    model = folder / MODEL_FOLDER
    with reached(folder):
        if folder.exists():
            check_empty(folder, besides=MODEL_FOLDER)
        if not (model / RUN_FILE).is_file() and model.is_dir():
            # only what an interrupted import leaves: a folder of the user's own keeps its files and is refused below
            for name in (FILE, f"{RUN_FILE}.part"):
                (model / name).unlink(missing_ok=True)
            discard_part(model / FILE)
    if not (model / RUN_FILE).is_file():
        there = folder.exists()
        try:
            import_model(source, model)
        except BaseException:
            if not there and folder.is_dir():
                folder.rmdir()
            raise
    return model


def _expect_older(source: str, files: StoreFiles) -> None:
    """Raise `StoreError` for a folder with a file that is newer than its model in the store: it may be another one."""
    given, kept = Path(source.removeprefix(SENTENCE_TRANSFORMER)), Path(files.run) / RUN_FILE
    newest = max((file.stat().st_mtime for file in given.rglob("*") if file.is_file()), default=0.0)
    if kept.is_file() and newest > kept.stat().st_mtime:
        raise StoreError(
            f"{files.folder}: holds a model that {source} has newer files than; add with the one that it holds, "
            f"`limner index {files.run} {files.folder} …`, or index into a new folder"
        )


def _expect_source(model: "TrainedModel | ExportedModel", source: str, folder: StorePath) -> None:
    found = model.description["data"]["source"]
    if found != source:
        raise StoreError(f"{folder}: built with {found}, not with {source}; index into a new folder")

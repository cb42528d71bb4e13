"""Open a store together with the run that it was built with, or for the run that it is to be built with."""

from pathlib import Path

from limner.errors import CheckpointError, StoreError
from limner.inference import TrainedModel, load_model
from limner.inference.calibration_file import load_calibration
from limner.search.card import FILE
from limner.search.engine import Engine
from limner.search.place import Place, reached
from limner.search.store import Store
from limner.types import Encoder


def open_store(
    folder: str | Path | Place,
    *,
    run: TrainedModel | str | Path | None = None,
    device: str | None = None,
    approximate_from: int | None = None,
) -> Engine:
    """A store ready for `search("…", k=10)` and `search_image(path)`.

    The model is the run that the store names, or `run` when it has moved; hits have match probabilities where
    `limner calibrate` has been run for it. Stores of `approximate_from` pictures and more are searched by a graph (see
    `Engine`). Raises `StoreError` for a folder that is
    no store, a run that cannot be found, and a model that the store was not built with.
    """
    store = Store.open(folder)
    if isinstance(run, TrainedModel):
        return _engine(store, run, approximate_from)
    try:
        encoder = load_model(run or store.card.run, device=device)
    except CheckpointError as error:
        raise StoreError(
            f"{folder}: the model of this store cannot be loaded: {error}; name it with run="
        ) from None
    return _engine(store, encoder, approximate_from)


def _engine(store: Store, run: TrainedModel, approximate_from: int | None) -> Engine:
    return Engine(store, run, load_calibration(run.path, run.fingerprint), approximate_from=approximate_from)


def store_for(encoder: Encoder, run: Path, folder: Place) -> Store:
    """The store in a folder, made there if there is none, to index into with the model of a run.

    Raises `StoreError` for a folder that holds anything else, a damaged store, and another model's.
    """
    with reached(folder, "read"):
        is_there = (folder / FILE).exists()
    if not is_there:
        return Store.create(
            folder,
            fingerprint=encoder.fingerprint,
            dim=encoder.dim,
            run=run.resolve(),
            map_shape=None if encoder.judge is None else encoder.judge.map_shape,
        )
    store = Store.open(folder)
    store.check_model(encoder.fingerprint, encoder.dim)
    return store

"""The description of a store: its content, its model, what it can answer, and sentences to begin with."""

import numpy as np

from limner.errors import UnknownPictureError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.store.snapshot import Snapshot
from limner.types import Encoder
from limner.wire import StoreApproximate, StoreInfo, StoreModel

_EXAMPLES = 3
"""Images whose best sentence `info` gives as an example."""

_EXAMPLE_LENGTH = 300
"""Characters of an example at most; a longer sentence is hardly what somebody would type."""

# sentences of one image, or of one kind of image, often fit several: the next best then takes the place
_EXAMPLE_TRIES = 8
"""Sentences of an image that are looked at for one that is short enough and not an example yet."""


def store_info(
    engine: Engine, *, max_k: int | None = None, changes: bool = True, adds: bool = True
) -> StoreInfo:
    """Describe the store, its model and its limits; a server passes its own limits."""
    snapshot = engine.files.snapshot()
    taken = snapshot.columns.taken
    times = taken[~np.isnat(taken)]
    sentences = engine.sentence_count
    reranks = engine.reranker is not None
    return StoreInfo(
        id=engine.files.manifest.id,
        pictures=len(snapshot.vectors),
        model=store_model(engine),
        reranks=reranks,
        calibrated=engine.calibration is not None,
        question=None if engine.calibration is None else engine.calibration.question,
        composes=engine.compose is not None,
        explains="attention" if engine.encoder.reranker is not None else "words",
        max_k=max_k,
        changes=changes,
        adds=adds,
        fields=tuple(snapshot.metadata.fields()),
        sentences=sentences,
        examples=tuple(_examples(engine, snapshot)) if sentences else (),
        identities=any(one is not None for one in snapshot.columns.identities),
        times=(times.min().item().isoformat(), times.max().item().isoformat()) if len(times) else None,
        approximate=_approximate(engine, snapshot),
    )


def _approximate(engine: Engine, snapshot: Snapshot) -> StoreApproximate | None:
    """Say what answers in place of exact search, and what was measured of it; None until it is built."""
    proposer = engine.approximate.of(snapshot)
    if proposer is None or not proposer.tried:
        return None
    last = proposer.tried[-1]
    return StoreApproximate(by=proposer.name, width=last.width, recall=last.recall)


def _examples(engine: Engine, snapshot: Snapshot) -> list[str]:
    """Find sentences of the store that fit some of its images best: the same ones as long as the store is the same.

    None are made up: a sentence about something that the store does not show would find nothing.
    """
    # spread over the store: images that are neighbours by path are often of one person or place
    count = len(snapshot.vectors)
    some = snapshot.keys_of(np.arange(0, count, max(1, count // _EXAMPLES))[:_EXAMPLES])
    chosen: list[str] = []
    try:
        for key in some:
            texts = [hit.text for hit in engine.sentences(SearchRequest(like=key, k=_EXAMPLE_TRIES))]
            fresh = [text for text in texts if len(text) <= _EXAMPLE_LENGTH and text not in chosen]
            chosen += fresh[:1]
    except UnknownPictureError:  # deleted a moment ago
        return []
    return chosen


def store_model(engine: Engine) -> StoreModel:
    """Describe the model of a store."""
    return StoreModel(
        fingerprint=engine.files.fingerprint,
        system=system_of(engine.encoder),
        dim=engine.files.dim,
        languages=engine.languages,
    )


def system_of(encoder: Encoder) -> str | None:
    """Name of the system of a run or an export; None for an encoder of another package."""
    # the protocol `Encoder` does not ask for a description
    description = getattr(encoder, "description", {})
    # a run's is of its network, an export's of its folder
    system: str | None = description.get("model", description).get("system")
    return system

"""What a server says of itself and its store."""

from collections.abc import Sequence
from typing import Any

from limner.errors import UnknownPictureError
from limner.search.engine import Engine
from limner.search.query import Query
from limner.server.settings import ServerSettings

_EXAMPLES = 3


def describe(engine: Engine, settings: ServerSettings) -> dict[str, Any]:
    """The body of `/v1/info`."""
    snapshot = engine.store.snapshot()
    taken = snapshot.columns["taken"].drop_null().to_pylist()
    sentences = engine.sentence_count
    reranks = engine.encoder.reranker is not None and engine.store.map_shape is not None
    description = getattr(engine.encoder, "description", {})
    return {
        "pictures": len(snapshot.keys),
        "model": {
            "fingerprint": engine.store.fingerprint,
            "system": description.get("model", {}).get("system"),
            "dim": engine.store.dim,
        },
        "reranks": reranks,
        "calibrated": engine.calibration is not None,
        "explains": "attention" if reranks else "words",
        "max_k": settings.max_k,
        "changes": settings.changes,
        "adds": settings.changes and settings.uploads is not None,
        "fields": [
            {"name": field.name, "values": list(field.values), "kind": field.kind}
            for field in engine.fields()
        ],
        "sentences": sentences,
        "examples": _examples(engine, snapshot.keys) if sentences else [],
        "identities": any(one is not None for one in snapshot.identities),
        "times": [min(taken).isoformat(), max(taken).isoformat()] if taken else None,
    }


def _examples(engine: Engine, keys: Sequence[str]) -> list[str]:
    """Sentences that fit some of the pictures best."""
    some = keys[:: max(1, len(keys) // _EXAMPLES)][:_EXAMPLES]
    try:
        found = [hit.text for key in some for hit in engine.sentences(Query(like=key, k=1))]
    except UnknownPictureError:  # deleted a moment ago
        return []
    return list(dict.fromkeys(found))

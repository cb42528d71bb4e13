"""What a server says of itself and its store."""

from typing import Any

from limner.search.engine import Engine
from limner.server.settings import ServerSettings


def describe(engine: Engine, settings: ServerSettings) -> dict[str, Any]:
    """The body of `/v1/info`."""
    snapshot = engine.store.snapshot()
    taken = snapshot.columns["taken"].drop_null().to_pylist()
    reranks = engine.encoder.judge is not None and engine.store.map_shape is not None
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
        "identities": any(one is not None for one in snapshot.identities),
        "times": [min(taken).isoformat(), max(taken).isoformat()] if taken else None,
    }

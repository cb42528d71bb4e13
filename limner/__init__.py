"""Find pictures by their description and descriptions by their picture.

import limner

run = limner.load("RUN")
run.encode_texts(["a woman in a blue shirt with a black bag"])  # float32 (1, dim), unit length
store = limner.open_store("STORE")
for hit in store.search("a woman in a blue shirt with a black bag", k=10):
    print(hit.rank, hit.score, hit.path)
"""

from typing import TYPE_CHECKING, Any

from limner.errors import LimnerError

if TYPE_CHECKING:
    from limner.runs.run import load_run as load
    from limner.search.store import open_store

__all__ = ["LimnerError", "load", "open_store"]


def __getattr__(name: str) -> Any:
    """Import torch and LanceDB, which take seconds, only for those who use them."""
    if name == "load":
        from limner.runs.run import load_run

        return load_run
    if name == "open_store":
        from limner.search.store import open_store

        return open_store
    raise AttributeError(f"module 'limner' has no attribute '{name}'")

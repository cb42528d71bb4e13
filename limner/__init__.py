"""Find pictures by their description and descriptions by their picture.

import limner

run = limner.load("RUN")
run.encode_texts(["a woman in a blue shirt with a black bag"])   # float32 (1, dim), unit length
store = limner.open_store("STORE")
for hit in store.search("a woman in a blue shirt with a black bag", k=10):
    print(hit.rank, hit.score, hit.path)
"""

from limner.errors import LimnerError
from limner.runs import load_run as load
from limner.search.opening import open_store

__all__ = ["LimnerError", "load", "open_store"]

"""Find images by their description and descriptions by their image.

import limner

model = limner.train("dual-path-people", "cuhk-pedes:PEOPLE", "RUN")  # or limner.load("RUN")
print(limner.evaluate(model, "cuhk-pedes:PEOPLE").text_to_image["R@1"])
model.encode_texts(["a woman in a blue shirt with a black bag"])  # float32 (1, dim), unit length
limner.index(model, "STORE", "IMAGES")
store = limner.open_store("STORE")
for hit in store.search("a woman in a blue shirt with a black bag", k=10):
    print(hit.rank, hit.score, hit.path)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limner.errors import LimnerError

if TYPE_CHECKING:
    from limner.data.readers import open_dataset
    from limner.data.records import Dataset, Record
    from limner.evaluation.arrays import Results
    from limner.export.run import export_run
    from limner.hub.push import push
    from limner.inference.import_model import import_model
    from limner.inference.load import load_model as load
    from limner.library import bench, evaluate, train
    from limner.recipes import get_recipe
    from limner.search.calibration import calibrate
    from limner.search.store import Store, index, open_store, reindex
    from limner.site.write import write_site

    __version__: str

__all__ = [
    "Dataset",
    "LimnerError",
    "Record",
    "Results",
    "Store",
    "__version__",
    "bench",
    "calibrate",
    "evaluate",
    "export_run",
    "get_recipe",
    "import_model",
    "index",
    "load",
    "open_dataset",
    "open_store",
    "push",
    "reindex",
    "train",
    "write_site",
]

# Imported when first asked for (PEP 562): torch takes 1.9 s of CPU time, and a script that only reads a dataset, or a
# command that prints its help, does not need it.
_PLACES = {
    "Dataset": "limner.data.records:Dataset",
    "Record": "limner.data.records:Record",
    "Results": "limner.evaluation.arrays:Results",
    "Store": "limner.search.store:Store",
    "bench": "limner.library:bench",
    "calibrate": "limner.search.calibration:calibrate",
    "evaluate": "limner.library:evaluate",
    "export_run": "limner.export.run:export_run",
    "get_recipe": "limner.recipes:get_recipe",
    "import_model": "limner.inference.import_model:import_model",
    "index": "limner.search.store:index",
    "load": "limner.inference.load:load_model",
    "open_dataset": "limner.data.readers:open_dataset",
    "open_store": "limner.search.store:open_store",
    "push": "limner.hub.push:push",
    "reindex": "limner.search.store:reindex",
    "train": "limner.library:train",
    "write_site": "limner.site.write:write_site",
}


def __getattr__(name: str) -> Any:
    # reading the metadata of the installed package takes time, too
    if name == "__version__":
        from importlib.metadata import version

        return version("limner")
    if name not in _PLACES:
        # AttributeError and no other error: hasattr() and the import system ask for names that are not there
        raise AttributeError(f"module 'limner' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_module(module), attribute)
    globals()[name] = found  # so that Python finds it there and does not call this function again
    return found


def __dir__() -> list[str]:
    # completion in a shell shows the names that have not been imported yet, too
    return sorted({*globals(), *__all__})

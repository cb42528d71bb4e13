"""The commands by name, as data: what `limner --help` says without importing any of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Listed:
    """One entry of `limner --help`.

    - `module`: where the command lives; it holds `app`, a `typer.Typer`.
    - `section`: heading that it stands under.
    - `about`: its one line; a test holds it against the command's own help.
    - `group`: whether it has commands of its own, such as `limner store info`.
    - `goes_on`: how to go on after Ctrl-C, where there is more to it than to run the command again.
    """

    module: str
    section: str
    about: str
    group: bool = False
    goes_on: str = ""


_START, _TRAIN, _SEARCH = "Start here", "Train and measure", "Index and search"
_AGAIN = "the same command goes on from there"

# imports of all commands took 4.7 s of processor time for a help text, hence text beside the module's name
COMMANDS: dict[str, Listed] = {
    "demo": Listed(
        "limner.cli.demo",
        _START,
        "Draw people, train both stages, evaluate, index, and search three times.",
        goes_on=_AGAIN,
    ),
    "models": Listed(
        "limner.cli.models",
        _START,
        "List pretrained models that `limner import` and `limner index` take.",
    ),
    "import": Listed(
        "limner.cli.models",
        _START,
        "Make a run of a pretrained pair of encoders, such as CLIP or SigLIP 2.",
    ),
    "recipes": Listed(
        "limner.cli.recipes", _START, "List and show the recipes that `limner train` knows.", group=True
    ),
    "data": Listed(
        "limner.cli.data", _START, "Check a dataset, or draw one of generated people.", group=True
    ),
    # the only one that needs an option to go on: without --resume it refuses a folder that holds a run
    "train": Listed(
        "limner.cli.train",
        _TRAIN,
        "Train a recipe on a dataset's training split.",
        goes_on="the same command with --resume goes on from there",
    ),
    "evaluate": Listed("limner.cli.evaluate", _TRAIN, "Measure a run in both directions."),
    "calibrate": Listed(
        "limner.cli.calibrate", _TRAIN, "Fit probabilities to a run's scores, on validation."
    ),
    "compose": Listed(
        "limner.cli.compose",
        _TRAIN,
        'Teach a run to read a picture and a text as one query: "this, but with a red bag".',
    ),
    "score": Listed("limner.cli.score", _TRAIN, "Measure somebody else's embeddings, scores or TREC run."),
    "bench": Listed(
        "limner.cli.bench",
        _TRAIN,
        "Measure which lies a model believes, on drawn people with true and false sentences.",
    ),
    "mteb": Listed(
        "limner.cli.mteb",
        _TRAIN,
        "Measure a run on tasks of MTEB, the leaderboard of embeddings.",
    ),
    "compare": Listed("limner.cli.compare", _TRAIN, "Test whether systems differ on the same queries."),
    "summarise": Listed(
        "limner.cli.summarise", _TRAIN, "Mean and deviation of runs that differ in the seed or the split."
    ),
    "export": Listed(
        "limner.cli.export",
        _TRAIN,
        "Write a run's two towers for ONNX Runtime, OpenVINO, sentence-transformers or immich.",
    ),
    "cite": Listed(
        "limner.cli.cite",
        _TRAIN,
        "Print BibTeX of limner and of what a recipe or a run rests on: system, losses, networks and data.",
    ),
    "push": Listed(
        "limner.cli.push",
        _TRAIN,
        "Publish a run on the Hugging Face hub, or write what would be published to a folder.",
        goes_on="the same command uploads again; until it has ended, the repository is private",
    ),
    "ablate": Listed(
        "limner.cli.ablate", _TRAIN, "Train and measure the rows of a paper's table.", goes_on=_AGAIN
    ),
    "figure": Listed(
        "limner.cli.figure",
        _TRAIN,
        "Draw the figures of the papers from runs, results and reports.",
        group=True,
    ),
    "index": Listed("limner.cli.index", _SEARCH, "Add pictures or a dataset to a store.", goes_on=_AGAIN),
    # three commands of one module, which share what they print
    "index-sentences": Listed(
        "limner.cli.index", _SEARCH, "Add sentences to a store, for searches by a picture.", goes_on=_AGAIN
    ),
    "search": Listed(
        "limner.cli.search",
        _SEARCH,
        "Find the pictures of a store by a description, by a picture, or by both.",
    ),
    "explain": Listed(
        "limner.cli.search",
        _SEARCH,
        "Show what the score of a picture for a description does without each of its phrases.",
    ),
    "serve": Listed("limner.cli.serve", _SEARCH, "Serve a store's search page and API until Ctrl-C."),
    "site": Listed(
        "limner.cli.site",
        _SEARCH,
        "Write a store as a folder of files that any web host serves and that searches itself in the browser.",
    ),
    "token": Listed(
        "limner.cli.token", _SEARCH, "Make, list and revoke the tokens of a search server.", group=True
    ),
    "audit": Listed(
        "limner.cli.audit",
        _SEARCH,
        "Check a server's audit log, and remove what it tells of a person.",
        group=True,
    ),
    "store": Listed(
        "limner.cli.store",
        _SEARCH,
        "List, delete, erase, verify, back up, export, repair and compact the pictures of a store.",
        group=True,
    ),
    "reindex": Listed(
        "limner.cli.index",
        _SEARCH,
        "Copy a store for another model and encode its pictures again.",
        goes_on=_AGAIN,
    ),
}
"""Every command in the order of `limner --help`."""

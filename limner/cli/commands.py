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
    group: bool
    goes_on: str


_SECTIONS = {
    "Index and search": {
        "open": "Open a search page for folders of pictures, which are indexed and watched meanwhile.",
        "index": "Add pictures or a dataset to a store.",
        "index-sentences": "Add sentences to a store, for searches by a picture.",
        "search": "Find the pictures of a store by a description, by a picture, or by both.",
        "explain": "Show what the score of a picture for a description does without each of its phrases.",
        "watch": "Keep a store what its folders are, until Ctrl-C, and tell of new pictures that fit its alerts.",
        "serve": "Serve a store's search page and API until Ctrl-C.",
        "mcp": "Let agents search a store, over standard input and output; they can look and change nothing.",
        "site": "Write a store as a folder of files that any web host serves and that searches itself in the browser.",
        "token": "Make, list and revoke the tokens of a search server.",
        "audit": "Check a server's audit log, and remove what it tells of a person.",
        "store": "List, delete, erase, verify, back up, export, repair and compact the pictures of a store.",
        "reindex": "Copy a store for another model and encode its pictures again.",
    },
    "Models and data": {
        "demo": "Draw people, train both stages, evaluate, index, and search three times.",
        "models": "List pretrained models that `limner import` and `limner index` take.",
        "import": "Make a run of a pretrained pair of encoders, such as CLIP or SigLIP 2.",
        "recipes": "List and show the recipes that `limner train` knows.",
        "data": "Check a dataset, or draw one of generated people.",
    },
    "Train and measure": {
        "train": "Train a recipe on a dataset's training split.",
        "evaluate": "Measure a run in both directions.",
        "calibrate": "Fit probabilities to a run's scores, on validation.",
        "compose": 'Teach a run to read a picture and a text as one query: "this, but with a red bag".',
        "score": "Measure somebody else's embeddings, scores or TREC run.",
        "bench": "Measure which lies a model believes, on drawn people with true and false sentences.",
        "mteb": "Measure a run on tasks of MTEB, the leaderboard of embeddings.",
        "compare": "Test whether systems differ on the same queries.",
        "summarise": "Mean and deviation of runs that differ in the seed or the split.",
        "export": "Write a run's two towers for ONNX Runtime, OpenVINO, sentence-transformers or immich.",
        "cite": "Print BibTeX of limner and of what a recipe or a run rests on: system, losses, networks and data.",
        "push": "Publish a run on the Hugging Face hub, or write what would be published to a folder.",
        "ablate": "Train and measure the rows of a paper's table.",
        "figure": "Draw the figures of the papers from runs, results and reports.",
    },
}
# several commands of one module share what they print
_MODULES = {"import": "models", "index-sentences": "index", "reindex": "index", "explain": "search"}
_GROUPS = {"recipes", "data", "figure", "token", "audit", "store"}
_AGAIN = "the same command goes on from there"
_GOES_ON = {
    **dict.fromkeys(("demo", "ablate", "index", "index-sentences", "reindex"), _AGAIN),
    # the only one that needs an option to go on: without --resume it refuses a folder that holds a run
    "train": "the same command with --resume goes on from there",
    "push": "the same command uploads again; until it has ended, the repository is private",
}

# imports of all commands took 4.7 s of processor time for a help text, hence text beside the module's name
COMMANDS = {
    name: Listed(
        f"limner.cli.{_MODULES.get(name, name)}", section, about, name in _GROUPS, _GOES_ON.get(name, "")
    )
    for section, commands in _SECTIONS.items()
    for name, about in commands.items()
}
"""Every command in the order of `limner --help`."""

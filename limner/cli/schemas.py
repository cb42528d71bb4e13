"""The models of `--json` output that `limner.wire` does not already have.

Those of commands that measure are in `limner.cli.schemas_of_measures`, those of `limner data` in
`limner.cli.schemas_of_data`. Each class is the result of one command;
docs/cli.md shows its schema. Field order is the order of the JSON.
"""

from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import ConfigDict, JsonValue, RootModel

from limner.documented import Documented
from limner.wire import Answer, IndexReport, SentencesReport

T = TypeVar("T")


class Result(Documented):
    """The base of results: documented, and strict about names."""

    # built when first used: all of them together take as long as typer's import
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Mistake(Result):
    """The error message."""

    type: str
    """Class of the error, e.g. "SettingsError", "UsageError" or "Interrupted"."""
    message: str
    """The line that is printed without `--json`."""
    exit_code: int
    """Exit code of the command: 2, or 130 after Ctrl-C."""


# the error boundary (`limner.cli.main`) writes this by hand, without pydantic; a test reads its line back
# as this class
class ErrorReport(Result):
    """An error under `--json`: the last line of stderr."""

    error: Mistake
    """The error."""


# a root model, so that the JSON is the list itself and not an object with one name
class Many(RootModel[T], Generic[T]):
    """The base of results that are a list, or whose names are others' to choose."""

    model_config = ConfigDict(defer_build=True)


class RecipeListed(Result):
    """A recipe as `limner recipes list` has it."""

    name: str
    """A recipe in the list."""
    group: str
    """The task that it is for."""
    about: str
    """One line."""
    data: tuple[str, ...]
    """Formats of the sets that it is for; docs/terms.md has their terms."""


class RecipeList(Many[list[RecipeListed]]):
    """Every recipe, by group."""


class RecipeShown(Many[dict[str, JsonValue]]):
    """All settings of a recipe, as docs/settings.md has them."""


class TableListed(Result):
    """A table as `limner recipes tables` has it."""

    name: str
    """A table in the list."""
    title: str
    """Paper, number and subject."""
    recipe: str
    """The recipe that its rows change unless `--recipe` names another."""


class TableList(Many[list[TableListed]]):
    """Every table of a paper that can be trained here."""


class CitedWork(Result):
    """A work that a result rests on."""

    key: str
    """Its BibTeX key."""
    role: Literal["software", "system", "loss", "dataset", "network", "part"]
    """Its part in the result."""
    bibtex: str
    """Its entry."""


class Cited(Many[list[CitedWork]]):
    """The result of `limner cite`."""


class TrainedStage(Result):
    """A stage of a training run."""

    name: str
    """Its name in the recipe."""
    reason: str
    """Why it ended."""
    best_epoch: int
    """Epoch of its checkpoint."""
    best_score: float
    """Validation score of that epoch, higher is better."""


class Trained(Result):
    """A training run that ended."""

    run: Path
    """Folder of the run."""
    recipe: str
    """Name of the recipe."""
    stages: tuple[TrainedStage, ...]
    """The stages that this call trained; fewer after `--resume`."""
    reranks: bool
    """True if the checkpoint that validation chose re-ranks."""


class FigureFiles(Result):
    """A figure that was drawn."""

    files: tuple[Path, ...]
    """Its files."""


class CorrelationFigure(FigureFiles):
    """A figure of correlations, with what it shows as numbers."""

    backbone: float
    """Mean correlation of two pictures by the backbone's features."""
    embedding: float
    """Mean correlation of two pictures by their embeddings."""


class ModelListed(Result):
    """A pretrained model as `limner models` has it."""

    name: str
    """The name that `limner import` and `limner index` take."""
    parameters: int
    """Millions, of both towers."""
    dim: int
    """Width of the embedding."""
    side: int
    """Pixels of the square that its image tower reads."""
    languages: str
    """As its authors state them."""
    licence: str
    """As its authors state it; read the model's own card before use."""
    flickr30k: tuple[float, float] | None
    """Zero-shot R@1 on Flickr30k's test set in per cent, image→text and text→image."""
    mscoco: tuple[float, float] | None
    """Zero-shot R@1 on MSCOCO's 5K test set in per cent, image→text and text→image."""
    source: str
    """Where the figures stand."""
    here: bool
    """True if it is in the local cache."""


class ModelsListed(Many[list[ModelListed]]):
    """The result of `limner models`."""


class Imported(Result):
    """The result of `limner import`."""

    run: str
    """The run folder."""
    source: str
    """The source that it was made from."""
    dim: int
    """Width of the embedding."""
    height: int | None = None
    """Pixels of an image as the model reads it; None where sentence-transformers prepares it, as for the next four."""
    width: int | None = None
    """Pixels of an image as the model reads it."""
    words: int | None = None
    """Tokens of a sentence that are read."""
    tokens: int | None = None
    """Size of the tokenizer."""
    parameters: int | None = None
    """Weights of both towers."""
    fingerprint: str
    """Digest of the model."""


class Indexed(IndexReport):
    """The result of `limner index`, counted in images."""

    store: str
    """The store."""
    pictures: int
    """Its content now."""


class SentencesIndexed(SentencesReport):
    """The result of `limner index-sentences`."""

    store: str
    """The store."""
    sentences: int
    """Its content now."""


class QueryAnswer(Result):
    """One line of `limner search --queries`."""

    query: str
    """Its name in the file, or its line number."""
    text: str
    """The query; "" for a vector."""
    answer: Answer | None
    """The answer; null if `error` says why there is none."""
    error: str | None
    """The error, e.g. that the model knows no word of it."""


# with the address, since --port 0 leaves the port to the system
class Served(Result):
    """A server that takes requests, printed on one line when it does."""

    store: str
    """The store."""
    pictures: int
    """Pictures in it."""
    url: str
    """Address of the search page; `unix:FILE` for a socket file."""


class StoreFacts(Result):
    """The description of a store."""

    pictures: int
    """How many it holds."""
    run: str
    """Run folder of its model."""
    kept_from: str | None
    """Run that the model in the store's folder was kept from; null without one."""
    model_bytes: int
    """Part of `bytes` that the model in the store's folder takes, also where it is linked from its run; 0 without."""
    fingerprint: str
    """Digest of the model."""
    precision: str | None
    """Arithmetic of its embeddings, fp32 or bf16; null if it does not say, as stores of limner 0.1.0."""
    created: str
    """When it was made, ISO 8601."""
    dim: int
    """Width of an embedding."""
    map: tuple[int, int, int] | None
    """Shape of what it keeps of each picture for re-ranking; null = nothing."""
    bytes: int
    """Size on the disk."""


class StoredPicture(Result):
    """A picture of a store."""

    id: str
    """Its key."""
    path: str
    """Its file."""
    identity: str | None
    """The identity that it shows."""
    metadata: dict[str, JsonValue]
    """Its other metadata."""
    size: int
    """Bytes of its file."""
    sha256: str
    """Digest of its file."""


class StoredPictures(Many[list[StoredPicture]]):
    """Pictures of a store in the order of their paths."""


class Deleted(Result):
    """The result of `limner store delete`, or what it would delete."""

    deleted: tuple[str, ...]
    """Paths of the pictures."""
    left: int
    """Pictures that the store holds after it."""
    dry_run: bool
    """True if nothing was deleted."""


class TokenAdded(Result):
    """The result of `limner token add`."""

    name: str
    """Its name, which the audit log has."""
    rights: tuple[str, ...]
    """Its rights."""
    token: str
    """The token; it is told only once."""


class TokenListed(Result):
    """A token in the list of `limner token list`."""

    name: str
    """Its name."""
    rights: tuple[str, ...]
    """Its rights."""
    created: str
    """Time when it was made."""


class TokenList(Many[list[TokenListed]]):
    """Every token of a file, in the order in which they were made."""


class TokenRevoked(Result):
    """The result of `limner token revoke`."""

    name: str
    """Name of the revoked token."""


class Compacted(Result):
    """The result of `limner store compact`."""

    pictures: int
    """The content of the store."""
    bytes_before: int
    """Size on the disk before."""
    bytes_after: int
    """Size on the disk now."""


class BackedUp(Result):
    """The result of `limner store backup`."""

    copy_folder: str
    """Folder of the copy."""
    pictures: int
    """Pictures in it."""
    sentences: int
    """Sentences in it."""
    bytes: int
    """Its size on the disk."""


class DemoSummary(Result):
    """The measures of the demo."""

    store: Path
    """Store that can be searched now."""
    sentence: str
    """A description that finds its person there."""
    text_to_image: float
    """R@1 in percent, on people that training has not seen; one seed (docs/results.md has the mean of three)."""
    colours: float
    """R@1 of comparing colours alone."""
    minutes: float
    """How long it took."""

"""The models of `--json` output of `limner data`: what is in a dataset, and what was drawn."""

from pathlib import Path
from typing import Any, Literal

from limner.cli.schemas import Result


class DataProblem(Result):
    """One kind of problem with a dataset."""

    kind: str
    """A kind of docs/data-formats.md."""
    severity: Literal["error", "warning"]
    """An error spoils training or its scores."""
    count: int
    """How many there are."""
    example: str
    """One of them."""


class TermsShown(Result):
    """The terms of a dataset or of weights, as docs/terms.md has them."""

    name: str
    """Name of the set or of the weights."""
    source: str
    """Paper or page that publishes it."""
    licence: str
    """Licence or conditions, or "unknown"."""
    people: Literal["yes", "some", "no", "unknown"]
    """People in it: "yes" for a set of people, "some" if they are in its pictures among other things."""
    composed_of: tuple[str, ...]
    """Other sets whose pictures it took over."""
    withdrawn: Literal["yes", "no", "unknown"]
    """The state of the set: "yes" if its authors, or those of a set that it took pictures from, took it back."""
    trained_on: str | None
    """Of weights: what they were trained on by their own card, "unknown" if none says it; null for a dataset."""
    overlaps: dict[str, str] | None
    """By format, what of another set is among it; of weights null if it is unknown, and {} if none of limner's is."""
    checked: str
    """When this was written down, and from what."""


class CaptionShown(Result):
    """A caption that a run finds suspicious."""

    file: Path
    """The picture that it stands with."""
    caption: str
    """The caption."""
    loss: float
    """Loss of the pair: 0 for one that the run tells from all others."""
    right: float
    """Probability that the caption is right."""


class SuspiciousCaptions(Result):
    """Captions of a split by how far a run holds them for their pictures'."""

    run: Path
    """The run."""
    split: str
    """The split."""
    captions: int
    """Captions that were judged."""
    wrong: int
    """Captions that are wrong with a probability of a half or more."""
    worst: tuple[CaptionShown, ...]
    """The most suspicious, worst first."""


class SeenBeforeShown(Result):
    """A set, or weights, and what of the dataset it has, as far as its own card says."""

    name: str
    """The set or the weights."""
    trained_on: str | None
    """Of weights, what they were trained on by their card; null for a set."""
    of_data: str | None
    """Its part of the dataset; "" if its card does not name the dataset among its data, null if it is unknown."""


class SharedShown(Result):
    """How much of one split the set of --pretrained-data has."""

    split: str
    """The split."""
    pictures: int
    """Its pictures."""
    captions: int
    """Its captions."""
    numbered: int
    """Pictures whose file names have a number of Flickr or MSCOCO."""
    same_number: int
    """How many of these the other set has."""
    in_splits: dict[str, int]
    """In which of its splits."""
    same_bytes: int | None
    """Pictures with the same bytes as one of the other set; null with --fast."""
    same_caption: int
    """Captions of which the other set has one with the same words."""


class PretrainedData(Result):
    """The result of --pretrained and --pretrained-data."""

    seen: tuple[SeenBeforeShown, ...]
    """By cards; empty for pictures of one's own, of which no card says anything."""
    compared_with: str | None
    """The set of --pretrained-data; null without it."""
    shared: tuple[SharedShown, ...]
    """A row a split; empty without --pretrained-data."""


class DataReport(Result):
    """The result of `limner data check`."""

    source: str
    """The dataset as it was given."""
    sound: bool
    """True if no problem is an error; else the exit code is 1."""
    terms: TermsShown
    """The terms under which it may be used, as far as they are known."""
    facts: dict[str, Any]
    """Counts, splits, vocabulary, lengths of sentences and the published edition."""
    problems: tuple[DataProblem, ...]
    """Every kind of trouble once."""
    suspicious: SuspiciousCaptions | None = None
    """Captions that a run holds for another picture's; null without --with."""
    pretrained: PretrainedData | None = None
    """The parts of the dataset that weights have seen; null without --pretrained and --pretrained-data."""


class PeopleDrawn(Result):
    """The content of a folder of generated people."""

    folder: Path
    """The folder; `cuhk-pedes:FOLDER` names the dataset."""
    identities: int
    """People."""
    images: int
    """Pictures."""
    sentences: int
    """Descriptions."""
    drawn: int
    """People drawn by this call; 0 if all existed."""


class TripletsDrawn(Result):
    """The content of a folder of generated triplets."""

    folder: Path
    """The folder; `cirr:FOLDER` names the set."""
    people: int
    """People."""
    images: int
    """Pictures."""
    triplets: int
    """Triplets of a reference, a sentence and a target."""
    content: str
    """Digest of pictures and sentences."""

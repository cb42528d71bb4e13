"""The parts of a dataset that pretrained towers, and a run's own training set, had seen before: by what cards say.

`limner.inference.learnt_images` compares files; nobody has those that a published tower was trained on. A card names
sets, and `limner.data.terms` says which of limner's are among them. All of it is by source: a tower whose card says
nothing is "unknown", and is never said to be clean.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from limner.data.records import Dataset
from limner.data.shared_records import Shared, number_of
from limner.data.terms import OWN, TERMS, UNSTATED, WEIGHTS, TermsOfUse
from limner.documented import Result
from limner.errors import SettingsError
from limner.inference.checkpoint import read_description
from limner.inference.run_file import checkpoint_path
from limner.inference.source import HUB, kind_of
from limner.models.known import FROM_FILE, KNOWN, weight_terms

_NUMBERED = {"Flickr": "flickr30k", "MSCOCO": "mscoco"}
"""The set of each form of file names that `number_of` knows; Flickr30k holds Flickr8k."""


class SeenBefore(Result):
    """A set, or weights, and what of the dataset it has, as far as its own card says."""

    name: str
    """The set or the weights."""
    trained_on: str | None
    """Of weights, what they were trained on by their card; null for a set."""
    of_data: str | None
    """Its part of the dataset; "" if its card does not name the dataset among its data, null if it is unknown."""

    def line(self) -> str:
        """The same on one line; "" where nothing of the dataset is known to be among it."""
        if self.of_data is None:
            return (
                f"{self.name}: unknown whether these pictures or captions were among what it was trained on"
            )
        return f"{self.name}: {self.of_data}" if self.of_data else ""


class PretrainedData(Result):
    """The result of --pretrained and --pretrained-data."""

    seen: tuple[SeenBefore, ...]
    """By cards; empty for pictures of one's own, of which no card says anything."""
    compared_with: str | None
    """The set of --pretrained-data; null without it."""
    shared: tuple[Shared, ...]
    """A row a split; empty without --pretrained-data."""


def seen_before(terms: Iterable[TermsOfUse], dataset: Dataset) -> list[SeenBefore]:
    """Name what each set and each file of weights had of a dataset, in their order; [] for one that is not published.

    Of one's own pictures no card says anything; where half of their files are named as those of Flickr30k or MSCOCO
    are, that is said. Nobody has seen limner's drawings before. The terms of a set or of weights that limner knows by
    name are those of today, since a run keeps what was known on the day of its training.
    """
    data, named = dataset.source.partition(":")[0], ""
    if data in OWN:
        data, named = _named_as(dataset)
    # another set may lie in the form of a published one, and says so
    elif data not in TERMS or TERMS[data].name != dataset.terms.name:
        data = ""
    if not data:
        return []
    today = {one.name: one for one in (*TERMS.values(), *WEIGHTS.values(), *_of_pairs())}
    found = []
    for one in terms:
        one = today.get(one.name, one)
        among = one.overlaps or {}
        is_set = one.trained_on is None and not one.name.startswith(FROM_FILE)
        # a run's own training pictures are compared by their content, of other sets only what is known counts
        if one.name == dataset.terms.name or (is_set and data not in among):
            continue
        of_data = among.get(data, None if one.overlaps is None else "")
        found.append(
            SeenBefore(
                name=one.name, trained_on=one.trained_on, of_data=f"{named}{of_data}" if of_data else of_data
            )
        )
    return found


def _named_as(dataset: Dataset) -> tuple[str, str]:
    """The published set whose files are named as most of one's own are, and the words that say so; "" for none."""
    whose = Counter(found[0] for record in dataset.records if (found := number_of(record.image)))
    for kind, count in whose.most_common(1):
        if 2 * count >= len(dataset):
            data = _NUMBERED[kind]
            return data, f"{count:,} of these files are named as {TERMS[data].name}'s are; that was "
    return "", ""


def terms_of(description: Mapping[str, Any]) -> tuple[TermsOfUse, ...]:
    """The terms in a description."""
    return tuple(map(_read, description.get("terms") or ())) or (UNSTATED,)


def pretrained_terms(name: str) -> tuple[TermsOfUse, ...]:
    """The terms of weights by their name, the last part of it, their file or folder, or of all that a run learnt from.

    Raises `SettingsError` for a name that limner has no entry for, and `CheckpointError` for a damaged run.
    """
    asked = name.removeprefix(HUB).lower()
    listed = [*WEIGHTS, *(model.name for model in KNOWN)]
    for one in listed:
        if asked in (one.lower(), one.rpartition("/")[2].lower()):
            return (weight_terms(one),)
    path = Path(name)
    if kind_of(name) in ("hub", "run"):
        return terms_of(read_description(checkpoint_path(path, None)))
    if path.exists():
        return (weight_terms(name),)
    raise SettingsError(
        f"{name}: neither a run, nor weights that limner has an entry for; there are: {', '.join(listed)}"
    )


def _of_pairs() -> list[TermsOfUse]:
    return [weight_terms(model.name) for model in KNOWN]


def _read(values: Any) -> TermsOfUse:
    try:
        return TermsOfUse.model_validate(values)
    # of another version, with words that this one does not know: nothing of it is an open licence
    except ValidationError:
        return UNSTATED

"""Splits that limner draws: for pictures that come without, as folds, and in place of the published ones."""

import hashlib
import re
from dataclasses import replace

from limner.data.noise import noise_source
from limner.data.records import SPLITS, TRAINING_SPLITS, Dataset
from limner.errors import DataError

# Plain digits: `\d` takes those of other scripts, and `int` would read them.
_NUMBER = "[0-9]{1,9}"
# Greedy and DOTALL: a path may hold a '#' or a line break itself, and the last part counts.
_DRAWN = re.compile(
    rf"(.+)#(?:seed=({_NUMBER})|fold=({_NUMBER})/({_NUMBER})|draw=({_NUMBER})/({_NUMBER})/({_NUMBER}))",
    re.DOTALL,
)


def split_source(source: str) -> tuple[str, str]:
    """A source without drawn splits and wrong sentences, and what says how its splits are drawn: "", "seed=S",
    "fold=K/N" or "draw=S/VAL/TEST".

    >>> split_source("folder:a#b#fold=2/10")
    ('folder:a#b', 'fold=2/10')
    >>> split_source("folder:a#seed=1#noise=0.5")
    ('folder:a', 'seed=1')
    """
    # Which sentences are wrong says nothing of the splits, nor of where the set lies.
    source, _ = noise_source(source)
    found = _DRAWN.fullmatch(source)
    return (source, "") if found is None else (found[1], source[found.end(1) + 1 :])


def draw_splits(dataset: Dataset) -> Dataset:
    """Replace the splits as the source says: `#seed=S` by `assign_splits`, `#fold=K/N` by `assign_fold`,
    `#draw=S/VAL/TEST` by `assign_counts`, else none."""
    found = _DRAWN.fullmatch(noise_source(dataset.source)[0])
    if found is None:
        return dataset
    seed, fold, folds, draw, val, test = found.groups()[1:]
    if seed:
        return assign_splits(dataset, int(seed))
    if fold:
        return assign_fold(dataset, int(fold), int(folds))
    return assign_counts(dataset, int(draw), int(val), int(test))


def assign_splits(dataset: Dataset, seed: int, val: float = 0.1, test: float = 0.1) -> Dataset:
    """Give every record a split, the same for all records of a group; splits it had are replaced.

    A group's place is a hash of its name and the seed: it depends on no other group, so that adding or
    removing pictures never moves the rest. `val` and `test` are expected shares in [0, 1]: of few groups,
    one split may well get none. Raises `DataError` when the shares are out of range.
    """
    if not (0 <= val <= 1 and 0 <= test <= 1 and val + test <= 1):
        raise DataError(f"shares of val and test must lie in [0, 1] together, got val={val} and test={test}")

    def place(group: str) -> str:
        point = _point(group, seed)
        # test lies below val: another share of val moves pictures between val and train, never to or from test.
        if point < test:
            return "test"
        return "val" if point < test + val else "train"

    records = tuple(replace(record, split=place(record.group)) for record in dataset.records)
    return replace(dataset, records=records, drawn=dict.fromkeys(SPLITS, f"seed={seed}"))


def assign_fold(dataset: Dataset, fold: int, folds: int) -> Dataset:
    """Cut the groups into `folds` equal parts in the order of a hash of their names; splits they had are replaced.

    Part `fold`, from 1, is for testing, the one after it (after the last, the first) for validation, the others for
    training. Raises `DataError` for fewer than three parts, more than there are groups, and a part there is not.
    """
    # The name decides between equal hashes; a set of strings has another order in every process.
    groups = sorted({record.group for record in dataset.records}, key=lambda group: (_point(group, 0), group))
    # Three is the fewest that leaves something for training.
    if not (3 <= folds <= len(groups) and 1 <= fold <= folds):
        raise DataError(
            f"{dataset.source}: fold {fold} of {folds} was asked for; of {len(groups)} groups there can be 3 to "
            f"{len(groups)} folds, counted from 1"
        )
    # By rank, not by intervals of the hash: parts differ by one group at most. The price is that a new
    # group may move others, which `assign_splits` avoids.
    part = {group: place * folds // len(groups) for place, group in enumerate(groups)}
    # `fold` counts from 1, so `fold % folds` is the part after it, counted from 0.
    names = {fold - 1: "test", fold % folds: "val"}
    records = tuple(
        replace(record, split=names.get(part[record.group], "train")) for record in dataset.records
    )
    return replace(dataset, records=records, drawn=dict.fromkeys(SPLITS, f"fold={fold}/{folds}"))


def assign_counts(dataset: Dataset, seed: int, val: int, test: int) -> Dataset:
    """Draw so many groups for validation and for testing, the others for training; splits they had are replaced.

    Each seed gives another draw: MNiL (MM 2017, section 4.1) averages ten of 1,000 and 1,000 of Flickr30k's pictures,
    each with its sentences a group. Raises `DataError` where nothing would be left for training.
    """
    groups = sorted(
        {record.group for record in dataset.records}, key=lambda group: (_point(group, seed), group)
    )
    if not (val >= 1 and test >= 1 and val + test < len(groups)):
        raise DataError(
            f"{dataset.source}: {val} groups for validation and {test} for testing were asked for; of {len(groups)} "
            "groups each needs 1 at least, and one has to be left for training"
        )
    names = dict.fromkeys(groups[:test], "test") | dict.fromkeys(groups[test : test + val], "val")
    records = tuple(replace(record, split=names.get(record.group, "train")) for record in dataset.records)
    return replace(dataset, records=records, drawn=dict.fromkeys(SPLITS, f"draw={seed}/{val}/{test}"))


def hold_out(dataset: Dataset, share: float = 0.05) -> Dataset:
    """Make a validation split of a share of the training groups if a set has training data and no such split.

    **Decided**: training selects on validation only, so ICFG-PEDES, published with two splits, gives up a twentieth of
    its training identities, the same ones every time. So do sets that are all for training, and those of which no
    validation split is known.
    """
    splits = {record.split for record in dataset.records}
    # A set that has one keeps it, so that a copy with published splits is not cut a second time.
    if "val" in splits or "train" not in splits:
        return dataset
    records = tuple(
        replace(record, split="val")
        # By the identity's hash: a person's pictures stay on one side, whatever else is in the set.
        if record.split == "train" and _point(record.group, 0) < share
        else record
        for record in dataset.records
    )
    # The test split stays as it was published, and a report on it names nothing drawn.
    return replace(dataset, records=records, drawn=dict.fromkeys(TRAINING_SPLITS, f"val={share:g} of train"))


def _point(group: str, seed: int) -> float:
    """Give each group a fixed place in [0, 1) by a hash of its name."""
    # Not `hash()`, whose seed for strings changes with every process. The separator keeps seed 1 of group
    # "2a" apart from seed 12 of group "a".
    digest = hashlib.sha256(f"{seed}\x1f{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64

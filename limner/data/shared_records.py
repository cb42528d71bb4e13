"""Pictures and captions that two datasets share: by the numbers in file names, by content and by words.

A published tower names the sets that it was trained on, and one who has such a set can count. File names of Flickr8k
and Flickr30k begin with the number that Flickr gave the photograph, those of MSCOCO hold the set's own; so pictures
that were saved again, whose bytes differ, are found as well.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from limner.data.image_digests import image_digests
from limner.data.records import Dataset, Record
from limner.data.words import words
from limner.documented import Result

_NUMBERS = {
    # 1000268201_693b08cb0e.jpg of Flickr8k, 1000268201.jpg of Flickr30k
    "Flickr": re.compile(r"([1-9]\d{4,10})(?:_[0-9a-f]{10}(?:_\w)?)?\.jpe?g", re.IGNORECASE),
    # COCO_val2014_000000391895.jpg, and 000000391895.jpg since 2017
    "MSCOCO": re.compile(r"(?:COCO_(?:train|val|test)2014_)?(\d{12})\.jpe?g", re.IGNORECASE),
}
"""Forms of file names by whose numbers they are; the number is the first group."""

Progress = Callable[[int, int], None]
"""Called with (pictures done, pictures in all)."""


class Shared(Result):
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


def number_of(image: Path) -> tuple[str, int] | None:
    """The number in a file's name, with whose it is; None for any other name.

    >>> number_of(Path("a/1000268201_693b08cb0e.jpg")), number_of(Path("1000268201.jpg"))
    (('Flickr', 1000268201), ('Flickr', 1000268201))
    >>> number_of(Path("COCO_val2014_000000391895.jpg")), number_of(Path("000000391895.jpg"))
    (('MSCOCO', 391895), ('MSCOCO', 391895))
    """
    for whose, form in _NUMBERS.items():
        if (found := form.fullmatch(image.name)) is not None:
            return whose, int(found[1])
    return None


def shared_records(
    dataset: Dataset, other: Dataset, *, read_files: bool = True, progress: Progress | None = None
) -> list[Shared]:
    """Count what each split of a dataset shares with another dataset, in the order of its splits.

    Files are compared by their bytes if `read_files`; those that are not there are left out, since a set's captions
    are often kept without its pictures. Raises `ImageError` for a file that cannot be read.
    """
    numbers = {
        number: record.split or "none" for record in other.records if (number := number_of(record.image))
    }
    captions = {_plain(text) for record in other.records for text in record.sentences} - {""}
    digests = set(_digests(other.records, progress)) if read_files else set()
    found = []
    for split in dataset.split_counts:
        records = [record for record in dataset.records if (record.split or "none") == split]
        own = [number for record in records if (number := number_of(record.image)) is not None]
        known = [numbers[number] for number in own if number in numbers]
        texts = [_plain(text) for record in records for text in record.sentences]
        found.append(
            Shared(
                split=split,
                pictures=len(records),
                captions=len(texts),
                numbered=len(own),
                same_number=len(known),
                in_splits=dict(Counter(known)),
                same_bytes=sum(one in digests for one in _digests(records, progress)) if read_files else None,
                same_caption=sum(text in captions for text in texts),
            )
        )
    return found


def _plain(text: str) -> str:
    return " ".join(words(text))


def _digests(records: Sequence[Record], progress: Progress | None) -> list[bytes]:
    there = [record.image for record in records if record.image.is_file()]
    return [bytes(row) for row in image_digests(there, progress=progress)]

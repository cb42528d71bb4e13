"""Minimal pairs: a picture with a true sentence, and the same with one thing changed so that it is false.

A set is a folder:

cases.json       names of the pictures, the sentences, and the cases by their positions in both
pictures/…jpg    the pictures

`limner bench --write` makes one of generated people, and anybody can make one of other pictures: `digest` is left out
then. A case says which kind of lie it is; `false_picture` or `false_sentence` is another than in what is true.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limner.durable import read_json
from limner.errors import DataError
from limner.types import ImageSource

FILE = "cases.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """One case: a model should score what is true above what is false.

    - `kind`, `detail`: the kind of lie, and what it is about, e.g. "attribute" and "upper colour".
    - `cluster`: cases of one cluster are not independent of each other, e.g. those of a person.
    - `image`, `sentence`: positions of what is true; `false_image`, `false_sentence`: of what is not.
    """

    kind: str
    detail: str
    cluster: int
    image: int
    sentence: int
    false_image: int
    false_sentence: int


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pictures, sentences and the cases that are made of them.

    - `name`, `version`: figures are comparable under one version alone.
    - `images`, `image_names`, `image_groups`: each picture once; images and sentences of one group match.
    - `sentences`, `sentence_groups`: the group is None for a sentence that is false or that is no query.
    - `kinds`: the kinds by name with a line about each, in the order of reports; `controls` are kinds in which nothing
      can be known, so that a figure away from 50 % says something of the set and not of the model.
    - `noisy`: kinds whose true sentence holds words that are none.
    """

    name: str
    version: str
    images: Sequence[ImageSource]
    image_names: Sequence[str]
    image_groups: Sequence[int]
    sentences: Sequence[str]
    sentence_groups: Sequence[int | None]
    pairs: Sequence[MinimalPair]
    kinds: Mapping[str, str]
    controls: Sequence[str] = ()
    noisy: Sequence[str] = field(default=())

    @property
    def digest(self) -> str:
        """SHA-256 of names, sentences and cases; the content of the pictures is no part of it."""
        content = json.dumps(self._described(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def _described(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "kinds": dict(self.kinds),
            "controls": list(self.controls),
            "noisy": list(self.noisy),
            "pictures": list(self.image_names),
            "picture_groups": list(self.image_groups),
            "sentences": list(self.sentences),
            "sentence_groups": list(self.sentence_groups),
            "cases": [
                {
                    "kind": pair.kind,
                    "detail": pair.detail,
                    "cluster": pair.cluster,
                    "picture": pair.image,
                    "sentence": pair.sentence,
                    "false_picture": pair.false_image,
                    "false_sentence": pair.false_sentence,
                }
                for pair in self.pairs
            ],
        }

    def write(self, folder: Path) -> None:
        """Write the folder; the pictures must be bytes of files. Raises `DataError` for a folder that is not empty."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder} is not an empty folder; name a new or empty one")
        try:
            for name, image in zip(self.image_names, self.images, strict=True):
                assert isinstance(image, bytes)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(image)
            # last, so that its presence means a complete set
            described = {**self._described(), "digest": self.digest}
            (folder / FILE).write_text(
                json.dumps(described, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise DataError(f"{folder}: cannot be written here ({error.strerror or error})") from None


def read_pairs(folder: Path) -> PairSet:
    """Read a folder of minimal pairs. Raises `DataError` for a damaged one, and for one whose digest is another."""
    file = folder / FILE
    try:
        content = read_json(file)
    except FileNotFoundError:
        raise DataError(f"{folder}: no {FILE} here; `limner bench --write {folder}` writes one") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not JSON, or damaged ({error})") from None
    try:
        if content["format"] != FORMAT:
            raise DataError(f"{file}: of format {content['format']}, this limner reads {FORMAT}")
        names = list(map(str, content["pictures"]))
        found = PairSet(
            name=str(content["name"]),
            version=str(content["version"]),
            images=[folder / name for name in names],
            image_names=names,
            image_groups=list(map(int, content["picture_groups"])),
            sentences=list(map(str, content["sentences"])),
            sentence_groups=[None if group is None else int(group) for group in content["sentence_groups"]],
            pairs=[
                MinimalPair(
                    str(case["kind"]),
                    str(case["detail"]),
                    *(
                        int(case[name])
                        for name in ("cluster", "picture", "sentence", "false_picture", "false_sentence")
                    ),
                )
                for case in content["cases"]
            ],
            kinds={str(kind): str(about) for kind, about in content["kinds"].items()},
            controls=list(map(str, content.get("controls", ()))),
            noisy=list(map(str, content.get("noisy", ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{file}: not a set of minimal pairs (at {error!r}); see docs/bench.md") from None
    _check(file, found)
    if content.get("digest", found.digest) != found.digest:
        raise DataError(
            f"{file}: was changed after it was written (another digest); write it anew, or leave 'digest' out of a set "
            "of your own"
        )
    return found


def _check(file: Path, pairs: PairSet) -> None:
    images, sentences = len(pairs.image_names), len(pairs.sentences)
    if len(pairs.image_groups) != images or len(pairs.sentence_groups) != sentences:
        raise DataError(f"{file}: expected a group for each of {images} pictures and {sentences} sentences")
    if not pairs.pairs:
        raise DataError(f"{file}: has no cases")
    for number, pair in enumerate(pairs.pairs):
        if pair.kind not in pairs.kinds:
            raise DataError(f"{file}: case {number} is of kind '{pair.kind}', which 'kinds' does not have")
        places = [(pair.image, images), (pair.false_image, images)]
        places += [(pair.sentence, sentences), (pair.false_sentence, sentences)]
        if not all(0 <= place < size for place, size in places):
            raise DataError(f"{file}: case {number} names a picture or sentence that is not there")
        if (pair.image, pair.sentence) == (pair.false_image, pair.false_sentence):
            raise DataError(f"{file}: case {number} has the same picture and sentence as true and as false")

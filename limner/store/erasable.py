"""Which images and sentences of a store an erasure is about: by key, path, folder, identity and conditions."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from limner.arguments import PATH, several
from limner.conditions import Condition
from limner.errors import SettingsError
from limner.names import Spelling, same_name
from limner.requests import where_strings
from limner.store.entry import PictureRow, StoredImage, key_of, keys_of, time_of
from limner.store.files import StoreFiles
from limner.store.metadata_index import MetadataIndex
from limner.store.sound import sound, sound_sentences
from limner.store.traces import SHORTEST
from limner.wire import (
    Where,
)


@dataclass(frozen=True)
class Erasable:
    """The images and sentences that an erasure is about.

    - `images`: key and facts of each image, in the order of their paths; `sentences`: keys of sentences.
    - `named`: keys, paths and identities that were asked for, whether the store holds such images or not.
    - `unknown`: the keys and paths among them of which it holds nothing.
    - `unmet`: conditions that no image meets, `identity=NAME` among them; if each is met, but not all by one, these
      together.
    - `ownerless`: number of sentences of images that the store does not hold, if images were named by what only their
      rows tell; some could be theirs.
    - `similar`: identities and paths that it holds, and that look like those that were asked for.
    - `names`: identities that were asked for or are those of the images, and that no image has afterwards.
    - `naming`: keys of sentences that stay, and whose text holds one of these names.
    """

    images: list[StoredImage]
    sentences: list[str]
    named: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()
    ownerless: int = 0
    names: tuple[str, ...] = ()
    naming: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Keys of the images."""
        return [image.id for image in self.images]

    @property
    def told(self) -> list[str]:
        """Keys of the images, and of the sentences that were named by theirs."""
        named = {text for kind, text in self.named if kind == "id"}
        return [*self.keys, *(key for key in self.sentences if key in named)]


def erasable(
    files: StoreFiles,
    ids: str | Iterable[str] = (),
    *,
    identity: str | None = None,
    paths: str | Path | Iterable[str | Path] = (),
    where: Where = (),
) -> Erasable:
    """Find what `limner.store.erase.erase` would erase with these arguments."""
    return chosen_by(files, ids, identity, paths, where)


def chosen_by(
    files: StoreFiles,
    ids: str | Iterable[str],
    identity: str | None,
    paths: str | Path | Iterable[str | Path],
    where: Where,
) -> Erasable:
    """Find what `erasable` finds, for the one that writes, so that nothing changes meanwhile."""
    keys = set(several(ids, (str,), "the key of a picture or sentence"))
    given = several(paths, PATH, "the path of a picture or folder")
    # it would be the current folder: an unset variable of a shell must not erase that
    if "" in map(str, given):
        raise SettingsError("path: expected a picture or a folder, got an empty text")
    wanted = [os.path.abspath(path) for path in given]  # noqa: PTH100 - as indexed: resolve() would follow links
    with files.rows.reading() as reading:
        rows = sorted(sound(files.folder, reading.pictures()), key=lambda row: row.path)
        held_sentences = sound_sentences(files.folder, reading.sentences())
        sentences = [(sentence.id, sentence.path, sentence.text) for sentence, _ in held_sentences]
    own_paths = [path for row in rows for path in row.paths]
    spelling = Spelling([*own_paths, *(path for _, path, _ in sentences if path is not None)])
    wanted = [spelling.of(path) for path in wanted]
    named = np.array([row.id in keys for row in rows], bool) | _below([row.paths for row in rows], wanted)
    conditions = _conditions(where)
    met = _meeting(rows, identity, conditions)
    if met:
        named |= np.logical_and.reduce(list(met.values()))
    images = [StoredImage.of(rows[place]) for place in np.flatnonzero(named).tolist()]
    erased = {path for image in images for path in image.paths}
    described = [path for _, path, _ in sentences]
    others = set(own_paths) - erased
    # also those of a named path or key without an image
    theirs = _below([[] if path is None else [path] for path in described], wanted) | np.array(
        [
            # a path of which another picture has the key now has a picture of its own
            id in keys
            or (path is not None and (path in erased or (path not in others and key_of(path) in keys)))
            for id, path, _ in sentences
        ],
        bool,
    )
    held = {*own_paths, None} if met else {*described}
    asked = [("id", key) for key in sorted(keys)]
    asked += [("path", path) for path in wanted if keys_of([path])]
    asked += [("id", key) for key in keys_of(wanted)]
    if identity is not None:
        asked.append(("identity", identity))
    unknown = sorted(keys.difference((row.id for row in rows), (id for id, *_ in sentences)))
    unknown += _without_rows(wanted, [*own_paths, *described])
    identities = [*([] if identity is None else [identity]), *identities_in(conditions.values())]
    stay = {same_name(row.identity or "") for row, gone in zip(rows, named.tolist(), strict=True) if not gone}
    names = {image.identity for image in images if image.identity}.union(identities)
    names = {name for name in names if same_name(name) not in stay}
    kept = [sentence for sentence, gone in zip(sentences, theirs.tolist(), strict=True) if not gone]
    return Erasable(
        images,
        [sentences[place][0] for place in np.flatnonzero(theirs).tolist()],
        tuple(asked),
        tuple(unknown),
        _unmet(met),
        (
            *_similar_identities(identities, {row.identity for row in rows}),
            *_similar_paths(wanted, {*own_paths, *described}),
        ),
        sum(path not in held for _, path, _ in kept),
        tuple(sorted(names)),
        tuple(naming(names, [(id, text) for id, _, text in kept])),
    )


def _without_rows(wanted: list[str], paths: list[str | None]) -> list[str]:
    """The wanted paths at and below which no row is."""
    held = set(paths)
    some = [path for path in wanted if path not in held]
    # folders only: of many wanted files each is looked up, not each compared with all rows
    parents: set[str] = set()
    for path in held if some else ():
        while path and (path := path.rpartition(os.sep)[0]) not in parents:
            parents.add(path)
    return [path for path in some if path.rstrip(os.sep) not in parents]


def _below(paths: Sequence[Sequence[str]], wanted: list[str]) -> Bool[np.ndarray, " rows"]:
    """True for the rows of which a path is wanted, or lies below one of them."""
    exact = set(wanted)
    # with the separator: below "/a/b" lies "/a/b/c" and not "/a/bc"
    folders = tuple(path.rstrip(os.sep) + os.sep for path in wanted)
    return np.array([any(path in exact or path.startswith(folders) for path in some) for some in paths], bool)


def _conditions(where: Where) -> dict[str, Condition]:
    """Conditions by their texts."""
    return {text: Condition.parse(text) for text in where_strings(where)}


def _meeting(
    rows: Sequence[PictureRow], identity: str | None, conditions: dict[str, Condition]
) -> dict[str, Bool[np.ndarray, " rows"]]:
    """For each condition, the rows that meet it."""
    names = [None if row.identity is None else same_name(row.identity) for row in rows]
    met: dict[str, Bool[np.ndarray, " rows"]] = {}
    if identity is not None:
        wanted = same_name(identity)
        met[f"identity={identity}"] = np.array([one == wanted for one in names], bool)
    own = {
        "path": [row.paths for row in rows],
        "identity": names,
        "taken": [time_of(row.taken) for row in rows],
    }
    index = MetadataIndex([row.metadata for row in rows], own)
    for text, condition in conditions.items():
        met[text] = index.meeting(condition)
    return met


def _unmet(met: dict[str, Bool[np.ndarray, " rows"]]) -> tuple[str, ...]:
    alone = [text for text, rows in met.items() if not rows.any()]
    if alone or not met or np.logical_and.reduce(list(met.values())).any():
        return tuple(alone)
    return (" and ".join(met),)


def _alike(name: str) -> str:
    """The form that names share if they look alike; people may mean one by the other, but nothing is erased for it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _look(name: str) -> str:
    """`_alike` without blanks and signs without width, which tables and forms leave around and in names."""
    unseen = ("Cc", "Cf", "Zs", "Zl", "Zp")
    return "".join(sign for sign in _alike(name) if unicodedata.category(sign) not in unseen)


def naming(names: set[str], sentences: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Keys of sentences that hold a name, word for word, in any case."""
    # a short number is no name: "2 bags" tells nothing of the identity 2
    told = (name for name in names if len(name) >= SHORTEST or any(map(str.isalpha, name)))
    wanted = {_words(name) for name in told} - {()}
    lengths = set(map(len, wanted))
    for key, text in sentences if wanted else ():
        words = _words(text)
        parts = (words[start : start + length] for length in lengths for start in range(len(words)))
        if any(part in wanted for part in parts):
            yield key


def _words(text: str) -> tuple[str, ...]:
    text = _alike(text)
    if not text.isascii():
        # letters without case: those who write them may put no blanks between words
        text = "".join(f" {sign} " if unicodedata.category(sign) == "Lo" else sign for sign in text)
    return tuple(re.findall(r"\w+", text))


def identities_in(conditions: Iterable[Condition]) -> list[str]:
    """The identities that conditions ask for by `=`."""
    equal = [one for one in conditions if (one.name, one.operator) == ("identity", "=")]
    return [bound.text for one in equal for bound in one.values]


def _similar_identities(wanted: list[str], held: set[str | None]) -> list[str]:
    same, alike = set(map(same_name, wanted)), set(map(_look, wanted))
    return sorted(
        one for one in held if one is not None and _look(one) in alike and same_name(one) not in same
    )


def _similar_paths(wanted: list[str], held: set[str | None]) -> list[str]:
    """Held paths and folders that look like wanted ones."""
    separator = os.sep
    exact = {path.rstrip(separator) for path in wanted}
    alike = {_look(path) for path in exact}
    depths = {path.count(separator) for path in exact}
    split = [path.split(separator) for path in held if path is not None]
    starts = {separator.join(parts[: depth + 1]) for parts in split for depth in depths}
    return sorted(start for start in starts if start not in exact and _look(start) in alike)

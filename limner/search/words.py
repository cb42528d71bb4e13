"""Words beside vectors: names of files and folders, identities, facts and sentences that hold the words of a query.

An index of words in memory (SQLite's FTS5), made of a snapshot when a query first needs it, and following the store. It
is in no file, so that nothing of an erased picture can be left in it, and a store on any engine has it.

**Ranking.** The word ranking (BM25) joins that of the vectors by reciprocal rank fusion (Cormack et al., SIGIR 2009),
its part times `WEIGHT` and the square of the share of the query's words that a picture has. At the weight 1 of the
paper, pictures without a sentence fall behind those that share words with the query by chance. In front stand pictures
that the words name (`Words._named`), which embeddings do not know: file names, numbers, people.
"""

import json
import re
import sqlite3
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.query_text import WordField
from limner.search.languages import is_frequent
from limner.search.ranking import Ranking
from limner.search.sentences import SentenceTable
from limner.store.snapshot import Snapshot
from limner.types import Encoder

WEIGHT = 0.1
"""Weight of the word ranking beside that of the vectors.

Of 0.1 to 1 the largest by which R@10 of pictures without a sentence fell by no more than 0.3, where half of the
pictures of Flickr8k's validation had sentences (docs/log/2026-11-29.md).
"""

DEPTH = 1000
"""First ranks of the vectors that words are joined with; behind them the order is that of the vectors."""

_K = 60
"""The constant of reciprocal rank fusion, that of its paper."""

_MOST = 200
"""Pictures of the word ranking that are joined."""

_COMMON = 0.05
"""Share of the pictures above which a name tells little: then all words of the query are to be names."""

_DIGITS = 3
"""Digits from which a number names a picture by itself."""

_FIELDS: tuple[WordField, ...] = ("name", "folder", "identity", "fact", "sentence")

_WORD = re.compile(r"[^\W_]+")
# scripts that put no blanks between words: each sign is a word
_ALONE = re.compile(r"([\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])")


@dataclass(frozen=True)
class Matched:
    """Pictures that hold words of a query, by rows of the snapshot.

    - `rows`: the word ranking, best first, with the share of the query's words that each has.
    - `named`: rows that stand in front, with the number of words that name them.
    - `holding`: rows that hold every quoted phrase, in ascending order; None where nothing is quoted.
    """

    rows: dict[int, float]
    named: dict[int, int]
    holding: Int[np.ndarray, " rows"] | None


class Words:
    """The words of a store's pictures."""

    def __init__(self, sentences: SentenceTable) -> None:
        self._sentences = sentences
        # those that are searched
        self.fields: tuple[WordField, ...] = _FIELDS
        # a server asks in one thread, the library in any
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            f"CREATE VIRTUAL TABLE words USING fts5({', '.join(_FIELDS)}, tokenize='unicode61 remove_diacritics 2')"
        )
        self._of: tuple[Snapshot, object] | None = None
        # by key: the number of its row in the index, and what that was made of
        self._held: dict[str, tuple[int, object]] = {}
        # rows of the snapshot by their number, and numbers by row
        self._rows: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def search_folders(self, searched: bool) -> None:
        """Search names of folders, too, or not: a server that shows no paths would tell them, one word a question."""
        self.fields = _FIELDS if searched else tuple(field for field in _FIELDS if field != "folder")

    def matched(self, text: str, quoted: Sequence[str], snapshot: Snapshot) -> Matched:
        """Find the pictures that hold words of a text, and those that hold all that is quoted."""
        asked = _telling(text)
        phrases = [phrase for one in quoted if (phrase := _spelled(one)) != '""']
        with self._lock:
            self._follow(snapshot)
            rows = self._ranked(asked) if asked else {}
            holding = self._ask(" AND ".join(phrases)) if phrases else None
            named = self._named(asked)
        return Matched(rows, named, None if holding is None else np.sort(np.array(holding, np.int64)))

    def where(self, text: str, snapshot: Snapshot, rows: Sequence[int]) -> list[tuple[WordField, ...]]:
        """Say of some rows in which of their fields words of a text stand."""
        found: defaultdict[int, list[WordField]] = defaultdict(list)
        if asked := _telling(text):
            with self._lock:
                self._follow(snapshot)
                for field in self.fields:
                    for row in self._ask(_any_of(asked), field, among=rows):
                        found[row].append(field)
        return [tuple(found[row]) for row in rows]

    def _ranked(self, words: Sequence[str]) -> dict[int, float]:
        """The word ranking, with the share of the words that each has."""
        rows = self._ask(_any_of(words), most=_MOST)
        counts = Counter(row for word in words for row in self._ask(_spelled(word), among=rows))
        return {row: counts[row] / len(words) for row in rows}

    def _named(self, words: Sequence[str]) -> dict[int, int]:
        """The rows that words name: all of them, half with a rare one among them, or a number of three digits."""
        own = [field for field in self.fields if field != "sentence"]
        counts: Counter[int] = Counter()
        rare: set[int] = set()
        numbered: set[int] = set()
        for word in words:
            rows = self._ask(_spelled(word), *own)
            counts.update(rows)
            if len(rows) <= max(3, _COMMON * len(self._rows)):
                rare.update(rows)
                if word.isdecimal() and len(word) >= _DIGITS:
                    numbered.update(rows)
        return {
            row: count
            for row, count in counts.items()
            if count == len(words) or (row in rare and 2 * count >= len(words)) or row in numbered
        }

    def _ask(
        self, expression: str, *fields: WordField, most: int = -1, among: Sequence[int] | None = None
    ) -> list[int]:
        """Rows of the snapshot that an expression of FTS5 finds in some fields, or in all; the best first."""
        some = "" if among is None else ", ".join(str(self._numbers[row]) for row in among)
        only = "" if among is None else f"AND rowid IN ({some})"
        found = self._index.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? {only} ORDER BY rank, rowid LIMIT ?",
            (f"{{{' '.join(fields or self.fields)}}} : ({expression})", most),
        )
        return [self._rows[number] for (number,) in found]

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring the index to a snapshot and the sentences of now."""
        said = self._sentences.by_picture()
        if self._of is not None and self._of[0] is snapshot and self._of[1] is said:
            return
        own = snapshot.columns
        before, self._held = self._held, {}
        numbers = iter(range(1 + max((number for number, _ in before.values()), default=0), 2**62))
        fresh: list[tuple[int, *tuple[str, ...]]] = []
        self._rows = {}
        for row, key in enumerate(snapshot.keys):
            paths = (own.paths[row], *own.others[row])
            sentences = tuple(text for path in paths for text in said.get(path, ()))
            made_of = (own.digests[row], sentences)
            number, was = before.pop(key, (0, None))
            if was != made_of:
                if was is not None:
                    before[key] = (number, was)
                number = next(numbers)
                fresh.append((number, *_texts(paths, own.identities[row], own.metadata[row], sentences)))
            self._held[key] = (number, made_of)
            self._rows[number] = row
        self._numbers = {row: number for number, row in self._rows.items()}
        self._index.executemany(
            "DELETE FROM words WHERE rowid = ?", [(number,) for number, _ in before.values()]
        )
        self._index.executemany(
            f"INSERT INTO words(rowid, {', '.join(_FIELDS)}) VALUES (?, ?, ?, ?, ?, ?)", fresh
        )
        self._index.commit()
        self._of = (snapshot, said)


def reads_words(encoder: Encoder) -> bool:
    """True for models whose queries words answer, too, unless a query says: pretrained pairs, but for persons.

    In galleries of persons the embedding alone is what was measured, and what files are called says little.
    """
    # an encoder of another package need not describe itself
    description = getattr(encoder, "description", {})
    if description.get("model", description).get("system") != "pretrained":
        return False
    learnt = (description.get("data") or {}).get("source")
    if not learnt:
        return True
    # it brings torch, which a search by an export does without
    from limner.evaluation.protocols import protocol_of

    return "mINP" not in protocol_of(learnt.partition(":")[0]).measures


def join(
    ranking: Ranking, matched: Matched, rows: Int[np.ndarray, " some"], vector: Float[np.ndarray, " dim"]
) -> None:
    """Join a ranking of `rows` by vectors with that by words, which stay among them."""
    allowed = set(rows.tolist()) if len(rows) < len(ranking.scores) else None
    by_words = {row: share for row, share in matched.rows.items() if allowed is None or row in allowed}
    named = {row: count for row, count in matched.named.items() if allowed is None or row in allowed}
    head = ranking.rows[:DEPTH].tolist()
    joined = dict(zip(head, 1 / (_K + 1 + np.arange(len(head))), strict=True))
    for place, (row, share) in enumerate(by_words.items()):
        joined[row] = joined.get(row, 0) + WEIGHT * share**2 / (_K + 1 + place)
    known = set(ranking.rows.tolist())
    further = np.array(sorted((joined.keys() | named.keys()) - known), np.int64)
    ranking.scores[further] = ranking.snapshot.vectors.scores(vector, further)
    scores = ranking.scores
    front = sorted(named, key=lambda row: (-named[row], -scores[row], row))
    rest = sorted(joined.keys() - named.keys(), key=lambda row: (-joined[row], -scores[row], row))
    placed = {*front, *rest}
    behind = [row for row in ranking.rows[DEPTH:].tolist() if row not in placed]
    ranking.rows = np.array([*front, *rest, *behind], np.int64)
    ranking.named = named.keys()


def _texts(
    paths: Sequence[str], identity: str | None, metadata: str, sentences: Sequence[str]
) -> tuple[str, ...]:
    """The texts of a picture, in the order of `_FIELDS`."""
    places = list(map(PurePath, paths))
    facts = list(_values(json.loads(metadata)))
    return tuple(
        _spaced("\n".join(texts))
        for texts in (
            [place.stem for place in places],
            [part for place in places for part in place.parent.parts],
            [] if identity is None else [identity],
            facts,
            sentences,
        )
    )


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values(one)
    elif isinstance(value, str | int | float):
        yield str(value)


def _spaced(text: str) -> str:
    # composed: an accent by itself would end a word
    return _ALONE.sub(r" \1 ", unicodedata.normalize("NFC", text))


def _telling(text: str) -> list[str]:
    """The words of a text, each once, without those that every text has; of these alone all."""
    # lower: casefold makes "strasse" of "Straße", and the index does not
    words = list(dict.fromkeys(_WORD.findall(_spaced(text.lower()))))
    return [word for word in words if not is_frequent(word)] or words


def _spelled(text: str) -> str:
    # in quotes nothing has a meaning of its own
    return f'"{" ".join(_WORD.findall(_spaced(text)))}"'


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(map(_spelled, words))

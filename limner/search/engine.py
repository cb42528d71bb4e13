"""A store and its model together: queries as text, as a picture, as both, or by a picture of the store."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError, LimnerError, SettingsError, StoreError
from limner.search.approximate import Approximate
from limner.search.grouping import best_of_identities, best_of_near
from limner.search.hits import Attention, Hit
from limner.search.query import Answer, Explanation, Field, Query
from limner.search.sentences import SentenceHit, SentenceTable
from limner.search.snapshot import Snapshot, top
from limner.search.store import Store
from limner.types import Encoder, Judge, Judgement

_BLOCK = 256
"""Maps read from the store at once."""

_LISTED = 20
"""Most distinct values of a field that are listed."""

Embeddings = Float[np.ndarray, "queries dim"]


@runtime_checkable
class Probability(Protocol):
    """What a score says in a gallery of some size."""

    def probability(self, scores: Float[np.ndarray, " images"], gallery: int) -> Float[np.ndarray, " images"]:
        """Probabilities in [0, 1]."""


@runtime_checkable
class Calibrated(Protocol):
    """Match probabilities of a model: a `limner.evaluation.calibration.Calibration` is one."""

    @property
    def threshold(self) -> float:
        """Probability from which a match is called good."""

    @property
    def embedding(self) -> Probability:
        """Of cosines."""

    @property
    def matcher(self) -> Probability | None:
        """Of what re-ranked pictures are ranked by (`Judge.scores`)."""


@dataclass
class _Ranking:
    """Rows of a snapshot, best first, and what is known of each by its row."""

    rows: Int[np.ndarray, " ranked"]
    scores: Float[np.ndarray, " images"]
    judged: dict[int, float]
    """Of the rows that were re-ranked: what they are ranked by."""


class Engine:
    """Answers queries; refuses a model that the store was not built with (`StoreError`).

    With a calibration, hits of a text have a match probability. A store of at least `approximate_from` pictures is
    searched by a graph (`limner.search.approximate`), which is built by the first such query, unless the query has
    conditions or groups; None = every search is exact.
    """

    def __init__(
        self,
        store: Store,
        encoder: Encoder,
        calibration: Calibrated | None = None,
        *,
        approximate_from: int | None = None,
    ) -> None:
        store.check_model(encoder.fingerprint, encoder.dim)
        self.store = store
        self.encoder = encoder
        self.calibration = calibration
        self.approximate_from = approximate_from
        self._sentences = SentenceTable(store)
        self._approximate = None if approximate_from is None else Approximate(store.dim)

    def search(
        self, text: str, k: int = 10, *, rerank: int | Literal["all"] | None = None, explain: bool = False
    ) -> list[Hit]:
        """The k pictures that fit a description best: `answer` of a plain text."""
        return list(self.answer(Query(text=text, k=k, rerank=rerank, explain=explain)).hits)

    def search_image(self, path: str | Path, k: int = 10) -> list[Hit]:
        """The k pictures most like a picture file. Raises `ImageError` for one that cannot be read."""
        return list(self.answer(Query(image=Path(path), k=k)).hits)

    def answer(self, query: Query) -> Answer:
        """The pictures that fit a query best.

        Where the model has a matcher, the first of the embedding's ranking of a text are re-ranked by it, from the maps
        in the store, and the rest keep their order below. Pictures that do not meet the query's conditions take no
        part; nor does the one that others shall be like.

        Raises `DataError` when the model knows no word of the text, `ImageError` for a picture that cannot be read,
        `SettingsError` for re-ranking without a matcher and `StoreError` for a key that is not there.
        """
        found = self.answers([query])[0]
        if isinstance(found, LimnerError):
            raise found
        return found

    def answers(self, queries: Sequence[Query]) -> list[Answer | LimnerError]:
        """`answer` of each of some queries, or its error; their texts and their pictures are encoded together."""
        snapshot = self.store.snapshot()
        found: list[Answer | LimnerError] = []
        for query, vector in zip(queries, self._vectors(queries, snapshot), strict=True):
            try:
                found.append(
                    vector if isinstance(vector, LimnerError) else self._answer(query, vector, snapshot)
                )
            except LimnerError as error:
                found.append(error)
        return found

    def sentences(self, query: Query) -> list[SentenceHit]:
        """The k sentences of the store that fit a query best: of a picture, those that may describe it.

        Only what the query is made of and `k` count. Raises what `answer` raises.
        """
        vector = self._vectors([query], self.store.snapshot())[0]
        if isinstance(vector, LimnerError):
            raise vector
        return self._sentences.search(vector, query.k)

    def explain(self, text: str, key: str) -> Explanation:
        """Why a picture of the store has its score for a text: what each word adds, and where the matcher looked.

        Raises what `answer` raises.
        """
        self.encoder.check_query(text)
        words = self.encoder.known_words(text)
        snapshot = self.store.snapshot()
        row = _place(snapshot, key, self.store)
        shorter = (
            [" ".join(words[:left] + words[left + 1 :]) for left in range(len(words))] if words[1:] else []
        )
        scores = self.encoder.encode_texts([text, *shorter]) @ snapshot.matrix[row]
        weights = tuple(float(scores[0] - score) for score in scores[1:])
        attention, confidence = None, None
        if (judge := self._judge()) is not None:
            judgement = judge.judge(text, self.store.maps([key]))
            ranked = judge.scores(scores[:1].astype(np.float32), judgement.logits)
            attention, confidence = _attention(judgement, 0), float(judge.confidences(ranked)[0])
        return Explanation(tuple(words), weights or None, attention, float(scores[0]), confidence)

    def fields(self) -> list[Field]:
        """What the pictures' metadata tell, by name, with the values of those that have few."""
        values: dict[str, Counter[str]] = {}
        numeric: dict[str, bool] = {}
        for facts in self.store.snapshot().metadata:
            for name, value in facts.items():
                for one in value if isinstance(value, list) else [value]:
                    if isinstance(one, str | int | float) and not isinstance(one, bool):
                        values.setdefault(name, Counter())[str(one)] += 1
                        numeric[name] = numeric.get(name, True) and _is_number(one)
        return [
            Field(
                name,
                tuple(sorted(counts, key=_numbers_first)) if len(counts) <= _LISTED else (),
                "number" if numeric[name] else "text",
            )
            for name, counts in sorted(values.items())
        ]

    def _judge(self) -> Judge | None:
        return self.encoder.judge if self.store.map_shape is not None else None

    def _vectors(self, queries: Sequence[Query], snapshot: Snapshot) -> list[np.ndarray | LimnerError]:
        """The embedding of each query, or why it has none."""
        failed: dict[int, LimnerError] = {}
        texts: dict[int, str] = {}
        pictures: dict[int, np.ndarray] = {}
        stored: dict[int, np.ndarray] = {}
        for number, query in enumerate(queries):
            try:
                if query.text is not None:
                    self.encoder.check_query(query.text)
                    texts[number] = query.text
                if query.image is not None:
                    pictures[number] = self.encoder.prepare_image(query.image)
                if query.like is not None:
                    stored[number] = snapshot.matrix[_place(snapshot, query.like, self.store)]
            except LimnerError as error:
                failed[number] = error
        texts = {number: text for number, text in texts.items() if number not in failed}
        of_texts = (
            dict(zip(texts, self.encoder.encode_texts(list(texts.values())), strict=True)) if texts else {}
        )
        if pictures:
            rows = self.encoder.encode_pixels(np.stack(list(pictures.values())))
            stored |= dict(zip(pictures, rows, strict=True))
        return [
            failed.get(number) or _joined(of_texts.get(number), stored.get(number), query.text_weight)
            for number, query in enumerate(queries)
        ]

    def _answer(self, query: Query, vector: np.ndarray, snapshot: Snapshot) -> Answer:
        judge, first = self._reranking(query)
        if not np.isfinite(vector).all():
            raise DataError("the query's embedding holds NaN or infinite values")
        vector = np.ascontiguousarray(vector, np.float32)
        rows = snapshot.meeting(query.where, query.after, query.before)
        if query.like is not None:
            rows = rows[rows != snapshot.places[query.like]]
        count = len(rows) if first == "all" else min(first, len(rows))
        if self._is_approximate(query, rows, snapshot) and first != "all":
            ranking = self._proposed(vector, snapshot, max(query.k, count) + (query.like is not None))
            ranking.rows = (
                ranking.rows[np.isin(ranking.rows, rows)] if query.like is not None else ranking.rows
            )
        else:
            scores = snapshot.scores(vector)
            wanted = len(rows) if query.group else max(query.k, count)
            ranking = _Ranking(rows[top(scores[rows], wanted)], scores, {})
        if judge is not None and count:
            assert query.text is not None
            self._rerank(judge, query.text, snapshot, ranking, count)
        groups = None
        if query.group == "identity":
            groups = best_of_identities(ranking.rows, snapshot.identities, query.k)
        elif query.group == "near":
            groups = best_of_near(ranking.rows, snapshot.matrix, query.k)
        hits = self._hits(query, snapshot, ranking, groups, judge, len(rows))
        return self._judged(Answer(tuple(hits), len(snapshot.matrix), len(rows)))

    def _is_approximate(self, query: Query, rows: Int[np.ndarray, " rows"], snapshot: Snapshot) -> bool:
        """Whether the graph answers: of a large store, and not for a part of it or groups, which need all scores."""
        if self.approximate_from is None or len(snapshot.matrix) < self.approximate_from:
            return False
        return query.group is None and len(rows) + (query.like is not None) == len(snapshot.matrix)

    def _proposed(self, vector: Float[np.ndarray, " dim"], snapshot: Snapshot, count: int) -> _Ranking:
        assert self._approximate is not None
        self._approximate.update(snapshot)
        rows, found = self._approximate.nearest(vector, count)
        scores = np.full(len(snapshot.matrix), -np.inf, np.float32)
        scores[rows] = found
        return _Ranking(rows, scores, {})

    def _reranking(self, query: Query) -> tuple[Judge | None, int | Literal["all"]]:
        """The matcher, and how many of the first it re-ranks for a query."""
        alone = query.image is None and query.like is None
        judge = self._judge() if alone else None
        if judge is None:
            if query.rerank or query.explain:
                raise SettingsError(f"{self.store.folder}: {self._why_not(alone)}")
            return None, 0
        first = self.encoder.rerank if query.rerank is None else query.rerank
        if first != "all" and first < query.explain:
            raise SettingsError(f"rerank: expected at least 1 or 'all' to explain, got {first}")
        return judge, first

    def _why_not(self, alone: bool) -> str:
        if not alone:
            return "a matcher reads a text without a picture; leave rerank and explain"
        if self.encoder.judge is None:
            return "its model has no matcher that could re-rank or explain"
        return "keeps no maps to re-rank from; index into a new folder"

    def _rerank(self, judge: Judge, text: str, snapshot: Snapshot, ranking: _Ranking, count: int) -> None:
        """Order the first by what the matcher makes of them; equal ones keep their order."""
        first = ranking.rows[:count]
        keys = [snapshot.keys[row] for row in first.tolist()]
        blocks = (keys[start : start + _BLOCK] for start in range(0, count, _BLOCK))
        logits = np.concatenate([judge.judge(text, self.store.maps(block)).logits for block in blocks])
        scores = judge.scores(ranking.scores[first], logits)
        order = np.argsort(-scores, kind="stable")
        ranking.rows = np.concatenate([first[order], ranking.rows[count:]])
        ranking.judged = dict(zip(first.tolist(), scores.tolist(), strict=True))

    def _hits(
        self,
        query: Query,
        snapshot: Snapshot,
        ranking: _Ranking,
        groups: list[tuple[int, int]] | None,
        judge: Judge | None,
        gallery: int,
    ) -> list[Hit]:
        """The first k rows, or the best of each group, as answers."""
        rows = ranking.rows[: query.k] if groups is None else np.array([row for row, _ in groups], np.int64)
        hits = snapshot.hits(rows, ranking.scores[rows])
        if groups is not None:
            hits = [replace(hit, group=size) for hit, (_, size) in zip(hits, groups, strict=True)]
        places = [place for place, row in enumerate(rows.tolist()) if row in ranking.judged]
        if judge is not None and places:
            scores = np.array([ranking.judged[int(rows[place])] for place in places], np.float32)
            for place, sure in zip(places, judge.confidences(scores).tolist(), strict=True):
                hits[place] = replace(hits[place], confidence=sure)
        if query.text is not None and query.image is None and query.like is None and hits:
            hits = self._with_probabilities(hits, ranking, rows, gallery)
        if judge is not None and query.explain and places:
            assert query.text is not None
            judgement = judge.judge(query.text, self.store.maps([hits[place].id for place in places]))
            for number, place in enumerate(places):
                hits[place] = replace(hits[place], attention=_attention(judgement, number))
        return hits

    def _with_probabilities(
        self, hits: list[Hit], ranking: _Ranking, rows: Int[np.ndarray, " hits"], gallery: int
    ) -> list[Hit]:
        """Hits of a text with match probabilities: of the matcher where it has judged, else of the embedding."""
        if self.calibration is None:
            return hits
        cosines = ranking.scores[rows].astype(np.float64)
        sure = self.calibration.embedding.probability(cosines, gallery)
        if (matcher := self.calibration.matcher) is not None:
            judged = [place for place, row in enumerate(rows.tolist()) if row in ranking.judged]
            if judged:
                scores = np.array([ranking.judged[int(rows[place])] for place in judged], np.float64)
                sure = sure.copy()
                sure[judged] = matcher.probability(scores, gallery)
        return [replace(hit, probability=float(one)) for hit, one in zip(hits, sure, strict=True)]

    def _judged(self, answer: Answer) -> Answer:
        """An answer that says whether its best is good enough, where the model is calibrated."""
        if self.calibration is None:
            return answer
        sure = [hit.probability for hit in answer.hits if hit.probability is not None]
        threshold = self.calibration.threshold
        return replace(answer, threshold=threshold, good=max(sure) >= threshold if sure else None)


def _place(snapshot: Snapshot, key: str, store: Store) -> int:
    try:
        return snapshot.places[key]
    except KeyError:
        raise StoreError(f"{store.folder}: holds no picture {key[:64]!a}") from None


def _joined(text: np.ndarray | None, picture: np.ndarray | None, weight: float) -> np.ndarray:
    """The query's embedding: the weighted mean of both, as long as a unit vector."""
    if text is None or picture is None:
        alone = picture if text is None else text
        assert alone is not None
        return alone
    mean = weight * text + (1 - weight) * picture
    length = float(np.linalg.norm(mean))
    if length == 0:
        raise DataError("the text and the picture are opposites, their mean says nothing; change the weight")
    joined: np.ndarray = (mean / length).astype(np.float32)
    return joined


def _attention(judgement: Judgement, place: int) -> Attention:
    regions, words = judgement.of_regions, judgement.of_words
    return Attention(
        judgement.words,
        None if regions is None else regions[place],
        None if words is None else words[place],
        judgement.reader,
    )


def _is_number(value: str | int | float) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _numbers_first(value: str) -> tuple[bool, float, str]:
    return (False, float(value), value) if _is_number(value) else (True, 0.0, value)

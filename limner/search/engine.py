"""A store and its model together: queries as text, as an image, as both, or by an image of the store."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Literal, TypeVar

import numpy as np

from limner.errors import DataError, LimnerError, SettingsError, UnknownPictureError
from limner.evaluation.calibration import AROUND
from limner.inference.calibration_file import RunCalibration
from limner.inference.word_effects import DEFAULT
from limner.query_text import read_query
from limner.requests import SearchRequest
from limner.search.approximate import Approximate
from limner.search.explain import explanation, with_attention
from limner.search.languages import languages_of, turning, unread_language
from limner.search.query_vectors import Compose, query_vectors
from limner.search.ranking import Ranking
from limner.search.sentences import SentenceTable
from limner.search.stage_times import timed
from limner.search.words import DEPTH, Matched, Words, join, reads_words
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot, check_time, without
from limner.store.vectors import Found
from limner.types import Encoder, Reranker
from limner.wire import (
    Answer,
    Explanation,
    FoundSentence,
    WordMethodName,
)

T = TypeVar("T")

_TOGETHER = 1000
"""Rows at most that queries look for together; one that needs more is searched for alone."""

_TRIES = 8
"""Times that a query is asked again whose images another process deletes meanwhile."""

Rest = Callable[[], Answer | Exception]
"""The re-ranking that a query still needs, with its answer or its error."""


class Engine:
    """Answers queries; refuses a model that the store was not built with (`StoreError`).

    `compose` makes one query of a picture and a text (`limner.inference.composing`); None = their weighted mean.

    With a calibration, hits of a text have a match probability. A store of at least `approximate_from` images is
    searched by a graph (`limner.search.graph`), unless the query has conditions or groups, and one whose vectors are on
    disk by lists (`limner.search.inverted_file`), unless it has groups; exact search answers while they are built. With
    None every search is exact.
    """

    def __init__(
        self,
        files: StoreFiles,
        encoder: Encoder,
        calibration: RunCalibration | None = None,
        *,
        compose: Compose | None = None,
        approximate_from: int | None = None,
    ) -> None:
        files.check_model(encoder.fingerprint, encoder.dim)
        self.files = files
        self.encoder = encoder
        self.calibration = calibration
        self.compose = compose
        self._sentences = SentenceTable(files)
        self.words = Words(self._sentences)
        self.approximate = Approximate(files.dim, approximate_from)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Languages that the model reads, see `limner.search.languages.languages_of`."""
        return languages_of(self.encoder)

    def prepare(self) -> None:
        """Read the store, make the codes of a large one and begin its graph or lists, before the first query."""
        # `limner serve` calls this before it answers anybody. The graph of 160,000 vectors takes 26 s: exact search
        # answers meanwhile
        snapshot = self.files.snapshot()
        snapshot.vectors.prepare()
        if (proposer := self.approximate.of(snapshot)) is not None:
            proposer.follow(snapshot)

    def answer(self, query: SearchRequest) -> Answer:
        """Find the images that fit a query best.

        If the model has a reranker, it orders the first images of the embedding's ranking of a text again, from the
        region features in the store; the rest keep their order below. Images that do not meet the query's conditions
        take no part, nor does the image of `like`, nor do images that are marked, nor, in a composed query, the query's
        own image if the store holds it.

        Raises `DataError` when the model knows no word of the text, `ImageError` for an image that cannot be read,
        `SettingsError` for re-ranking without a reranker and `UnknownPictureError` for a key that is not there.
        """
        found = self.answers([query])[0]
        if isinstance(found, Exception):
            raise found
        return found

    def answers(
        self, queries: Sequence[SearchRequest], until: Sequence[float | None] | None = None
    ) -> list[Answer | Exception]:
        """Answer several queries, each as `answer` does, or with its error; their texts are encoded together.

        `until`: for each query the `time.monotonic()` after which it fails with `SearchTimeoutError`; None = never.
        An exception of one query, also that of a bug, is its own result and leaves the others alone.
        """
        return [found() if callable(found) else found for found in self.begin(queries, until)]

    def begin(
        self, queries: Sequence[SearchRequest], until: Sequence[float | None] | None = None
    ) -> Iterator[Answer | Exception | Rest]:
        """Answer several queries as `answers` does, one by one as they are ready; of one to be re-ranked give the rest.

        A rest may take seconds, and may be called in another thread while this goes on.
        """
        limits = [None] * len(queries) if until is None else until
        # one snapshot for all: a query that reads another would rank other images than its neighbours
        snapshot = self.files.snapshot()
        begun = self._answers(queries, limits, snapshot)
        for query, limit, found in zip(queries, limits, begun, strict=True):
            rest = partial(self._rest, query, limit, snapshot, found)
            yield rest if callable(found) else rest()

    def _rest(
        self, query: SearchRequest, limit: float | None, snapshot: Snapshot, found: Answer | Exception | Rest
    ) -> Answer | Exception:
        """Re-rank what is to be re-ranked, and answer again a query whose images were deleted meanwhile."""
        # region features are read from the table, where an image may be deleted since. Asked again only of a newer
        # snapshot: a key that never was has its error at once. Several times: beside a writer that deletes all the
        # while, one search of 700 met a second delete
        for tries in range(_TRIES + 1):
            found = found() if callable(found) else found
            if not isinstance(found, UnknownPictureError) or tries == _TRIES:
                break
            if (now := self.files.snapshot()) is snapshot:
                break
            snapshot, found = now, next(self._answers([query], [limit], now))
        assert not callable(found)
        return found

    def _answers(
        self, queries: Sequence[SearchRequest], until: Sequence[float | None], snapshot: Snapshot
    ) -> Iterator[Answer | Exception | Rest]:
        try:
            vectors = query_vectors(queries, snapshot, self.files, self.encoder, self.compose)
        except Exception as error:
            # a batch that fails is asked again one by one, so that the bad query alone has the error
            if len(queries) == 1:
                yield error
                return
            for query, limit in zip(queries, until, strict=True):
                yield from self._answers([query], [limit], snapshot)
            return
        try:
            first = self._first_together(queries, vectors, snapshot)
        # each is then searched for alone
        except Exception:
            first = {}
        for number, (query, vector, limit) in enumerate(zip(queries, vectors, until, strict=True)):
            if isinstance(vector, LimnerError):
                yield vector
            else:
                yield _tried(partial(self._answer, query, vector, snapshot, limit, first.get(number)))

    def sentences(self, query: SearchRequest) -> list[FoundSentence]:
        """Find the k sentences of the store that fit a query best: for an image, those that may describe it.

        Only the query's text, images, weight and `k` count, and the text is one sentence. Raises what `answer` raises.
        """
        query = query.replace(literal=True)
        snapshot = self.files.snapshot()
        vector = query_vectors([query], snapshot, self.files, self.encoder, self.compose)[0]
        if isinstance(vector, LimnerError):
            raise vector
        return self._sentences.search(vector, query.k)

    @property
    def sentence_count(self) -> int:
        """The number of sentences in the store."""
        return len(self._sentences)

    def explain(self, text: str, key: str, method: WordMethodName = DEFAULT) -> Explanation:
        """Explain an image's score for a text: what the score does without each word, and where the reranker looked.

        What the text takes away or weighs by itself is left out.

        `method` gives words their weights; the default scores at least 128 texts, "leave-one-out" one a word.

        Raises what `answer` raises.
        """
        text = read_query(text).wanted or text
        # not `self.reranker`: of a store without region features the image's file is read
        return explanation(self.encoder, self.encoder.reranker, self.files, text, key, method)

    @property
    def reranker(self) -> Reranker | None:
        """The model's reranker, if it has one and the store keeps the region features that it reads."""
        return self.encoder.reranker if self.files.region_shape is not None else None

    def _first_together(
        self,
        queries: Sequence[SearchRequest],
        vectors: Sequence[np.ndarray | LimnerError],
        snapshot: Snapshot,
    ) -> dict[int, Found]:
        """Find the first rows of queries that all rows take part in, by number: one product does it for many."""
        rows: dict[int, np.ndarray] = {}
        most = AROUND
        for number, (query, vector) in enumerate(zip(queries, vectors, strict=True)):
            first = 0 if self.reranker is None else query.rerank
            first = self.encoder.rerank if first is None else first
            if not (
                isinstance(vector, LimnerError)
                or query.is_limited
                or (self.compose is not None and query.has_both)
                or self.approximate.answers(query, len(snapshot.vectors), snapshot)
                # all others would look for as many
                or first == "all"
                or (needed := max(query.start + query.k, first)) > _TOGETHER
                or not np.isfinite(vector).all()
            ):
                rows[number] = np.asarray(vector, np.float32)
                most = max(most, needed)
        if len(rows) < 2:
            return {}
        with timed("search"):
            found = snapshot.vectors.first_of_each(np.stack(list(rows.values())), most)
        return dict(zip(rows, found, strict=True))

    def _answer(
        self,
        query: SearchRequest,
        vector: np.ndarray,
        snapshot: Snapshot,
        until: float | None,
        found: Found | None,
    ) -> Answer | Rest:
        """Answer one query, or give the rest of it; `found` are the first of all rows for it, if they are known."""
        check_time(until)
        reranker, first = self._reranking(query)
        # NaN has no order: a partition would answer with any rows
        if not np.isfinite(vector).all():
            raise DataError("the query's embedding holds NaN or infinite values")
        vector = np.ascontiguousarray(vector, np.float32)
        with timed("search"):
            rows = snapshot.meeting(query.conditions, *query.period, until)
            is_composed = self.compose is not None and query.has_both
            own = snapshot.rows_of(query.image) if is_composed else []
            if query.like is not None:
                own = [snapshot.expect_row(query.like)]
            # whoever has marked an image has seen it; what is left is what there is to look at
            marked = [snapshot.expect_row(key) for key in (*query.right, *query.wrong)]
            rows = without(rows, [*own, *marked])
            matched = self.matched(query, snapshot)
            if matched is not None and matched.holding is not None:
                rows = np.intersect1d(rows, matched.holding)
            count = len(rows) if first == "all" else min(first, len(rows))
            # a probability compares a hit with the first of the ranking, whatever `k` is
            wanted = max(query.start + query.k, count, AROUND)
            # a reranker that scores all needs every row, which exact search gives in one pass
            proposed = None
            if self.approximate.answers(query, len(rows), snapshot) and first != "all":
                proposed = self.approximate.proposed(vector, snapshot, wanted, rows, query.like)
            if proposed is None:
                if matched is not None:
                    wanted = max(wanted, DEPTH)
                # a group is counted over all rows that meet the conditions, so it needs the whole ranking
                most = len(rows) if query.group else min(wanted, len(rows))
                if found is None or len(rows) < len(snapshot.vectors) or len(found[0]) < most:
                    found = snapshot.vectors.first(vector, most, rows)
                proposed = found[0][:most], found[1][:most]
            ranking = Ranking.of(snapshot, *proposed)
            if matched is not None:
                join(ranking, matched, rows, vector)
        reference = tuple(snapshot.keys_of(np.array(own))) if is_composed and own else ()
        told = partial(self._told, query, ranking, len(rows), reranker, count, until, is_composed, reference)
        if reranker is None or not count:
            return told()
        return lambda: _tried(told)

    def _told(
        self,
        query: SearchRequest,
        ranking: Ranking,
        matching: int,
        reranker: Reranker | None,
        count: int,
        until: float | None,
        is_composed: bool,
        reference: tuple[str, ...],
    ) -> Answer:
        """Make the answer of a ranking, of which the first `count` are re-ranked."""
        snapshot = ranking.snapshot
        if reranker is not None and count:
            assert query.text is not None
            check_time(until)
            around = 0 if self.calibration is None else self.calibration.around
            with timed("rerank"):
                ranking.rerank(reranker, query.text, self.files, count, around=around, until=until)
        chosen, groups = ranking.grouped(query)
        of_text = query.text is not None and query.image is None and query.like is None and not query.is_moved
        # it was fitted to searches by text; cosines between images, and of a mean, lie elsewhere
        calibration = self.calibration if of_text else None
        part = slice(query.start, None)
        hits = ranking.hits(
            chosen[part],
            None if groups is None else groups[part],
            reranker,
            calibration,
            first_rank=1 + query.start,
        )
        if ranking.named is not None and query.wanted:
            where = self.words.where(query.wanted, snapshot, chosen[part])
            hits = [hit.model_copy(update={"words_in": one}) for hit, one in zip(hits, where, strict=True)]
        # `good` is of the search, so a later part of its list says it of the first hit, too
        first_hit = ranking.hits(chosen[:1], None, reranker, calibration) if query.start else hits
        if reranker is not None and query.explain:
            assert query.text is not None
            hits = with_attention(self.encoder, reranker, self.files, query.text, hits)
        unknown = () if query.wanted is None else tuple(self.encoder.unknown_words(query.wanted))
        if turned := turning(unknown):
            # of "not a red coat" the model reads a red coat, which it would call a good match
            hits = [hit.model_copy(update={"probability": None}) for hit in hits]
        # an encoder of another package may not say what it cuts
        cut = getattr(self.encoder, "unread_words", None)
        unread = () if query.wanted is None or cut is None else tuple(cut(query.wanted))
        # a probability is of the embedding, and says nothing of a name
        is_named = bool(ranking.named) and bool(chosen) and chosen[0] in (ranking.named or ())
        best = first_hit[0].probability if first_hit and not is_named else None
        threshold = None if self.calibration is None else self.calibration.threshold_for(reranked=count > 0)
        return Answer(
            hits=tuple(hits),
            total=len(snapshot.vectors),
            snapshot=f"{self.files.manifest.id}-{snapshot.state}",
            matching=matching,
            absent=snapshot.metadata.absent(query.conditions) if query.conditions else {},
            threshold=threshold,
            good=None if best is None or threshold is None else best >= threshold and not turned,
            unknown=unknown,
            turned=tuple(turned),
            terms=query.terms,
            language=None if query.text is None else unread_language(query.text, self.languages),
            unread=unread,
            composed=is_composed,
            reference=reference,
        )

    def matched(self, query: SearchRequest, snapshot: Snapshot) -> Matched | None:
        """Find pictures by the words of a query; None where only vectors answer."""
        if not self._reads_words(query):
            return None
        return self.words.matched(query.wanted or "", query.quoted, snapshot)

    def _reads_words(self, query: SearchRequest) -> bool:
        if not query.wanted:
            return False
        # by default a reranker keeps the last word
        asked = self.reranker is None and reads_words(self.encoder)
        return asked if query.words is None else query.words

    def _reranking(self, query: SearchRequest) -> tuple[Reranker | None, int | Literal["all"]]:
        """Return the reranker, and how many of the first images it re-ranks for a query."""
        alone = query.image is None and query.like is None
        # by the text alone it would undo what marks and terms have moved
        reranker = self.reranker if alone and not query.is_moved and not self._reads_words(query) else None
        if reranker is None:
            if query.rerank or query.explain:
                raise SettingsError(f"{self.files.folder}: {self._why_not(alone)}")
            return None, 0
        first = self.encoder.rerank if query.rerank is None else query.rerank
        # a reranker that orders nothing unless asked to still shows where it looks in the hits
        if query.explain and query.rerank is None and first == 0:
            first = query.k
        if first != "all" and first < query.explain:
            raise SettingsError(f"rerank: expected at least 1 or 'all' to explain, got {first}")
        return reranker, first

    def _why_not(self, alone: bool) -> str:
        if not alone:
            return "a reranker reads a text without a picture; leave rerank and explain"
        if self.encoder.reranker is None:
            return "its model has no reranker that could re-rank or explain"
        return "keeps no region features to re-rank from; index into a new folder with --regions"


def _tried(answer: Callable[[], T]) -> T | Exception:
    # any exception, also a bug of one query, must leave its neighbours in the batch alone
    try:
        return answer()
    except Exception as error:
        return error

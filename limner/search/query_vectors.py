"""The embeddings of queries: their texts in one pass, pictures one by one, both together as the model reads them."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from pydantic import ConfigDict, Field

from limner.errors import DataError, LimnerError, SettingsError
from limner.requests import SearchRequest
from limner.search.feedback import moved
from limner.search.stage_times import timed
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.types import Encoder

TEXT_WEIGHT = 0.5
"""Weight of a text beside a picture where a request names none and its model has learnt no composed queries."""


class PreparedRequest(SearchRequest):
    """A request of which a part is computed already."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    pixels: np.ndarray | None = Field(default=None, repr=False)
    """Its image as `Encoder.prepare_image` returns it, so that it is not decoded again."""

    vector: np.ndarray | None = Field(default=None, repr=False)
    """An embedding at unit length, which is searched by in place of a text and an image."""

    def _check_subject(self) -> None:
        if self.vector is None:
            super()._check_subject()
        elif (self.text, self.image, self.like) != (None, None, None):
            raise SettingsError("a vector is searched by alone")


Compose = Callable[[np.ndarray, Sequence[str]], np.ndarray]
"""Unit embeddings of composed queries, from those of pictures (queries, dim) and a text beside each."""


def query_vectors(
    queries: Sequence[SearchRequest],
    snapshot: Snapshot,
    files: StoreFiles,
    encoder: Encoder,
    compose: Compose | None = None,
) -> list[np.ndarray | LimnerError]:
    """Embed each query; a query that cannot be embedded gets its error."""
    failed: dict[int, LimnerError] = {}
    texts: dict[int, str] = {}
    pictures: dict[int, np.ndarray] = {}
    stored: dict[int, np.ndarray] = {}
    for number, query in enumerate(queries):
        try:
            if query.wanted is not None:
                encoder.check_query(query.wanted)
                texts[number] = query.wanted
            for term in query.terms:
                encoder.check_query(term.text)
            pixels, vector = (
                (query.pixels, query.vector) if isinstance(query, PreparedRequest) else (None, None)
            )
            if query.image is not None:
                pictures[number] = encoder.prepare_image(query.image) if pixels is None else pixels
            if query.like is not None:
                stored[number] = snapshot.vectors[snapshot.expect_row(query.like)]
            if vector is not None:
                if vector.shape != (files.dim,):
                    raise DataError(f"the query's vector has {len(vector)} numbers, the store's {files.dim}")
                stored[number] = vector
        except LimnerError as error:
            failed[number] = error
    texts = {number: text for number, text in texts.items() if number not in failed}
    # encode_queries: in bf16 a row of a product depends on the number of rows. Of 256 queries by 64 clients one had
    # another order, and scores differed by 6e-4; in fp32 none and 8e-7 (docs/log/2026-11-22.md)
    of_texts: dict[int, np.ndarray] = {}
    of_terms: dict[str, np.ndarray] = {}
    words = [
        term.text for number, query in enumerate(queries) if number not in failed for term in query.terms
    ]
    if texts or words:
        with timed("encode"):
            rows = encoder.encode_queries([*texts.values(), *words])
        of_texts = dict(zip(texts, rows[: len(texts)], strict=True))
        of_terms = dict(zip(words, rows[len(texts) :], strict=True))
    # one by one: in bf16 an embedding depends on how many are encoded together
    for number, pixels in pictures.items():
        with timed("encode"):
            stored[number] = encoder.encode_pixels(pixels[None])[0]
    composed = _composed(queries, texts, stored, compose)
    vectors = [
        failed[number]
        if number in failed
        else composed[number]
        if number in composed
        else _joined(of_texts.get(number), stored.get(number), query.text_weight)
        for number, query in enumerate(queries)
    ]
    return [
        vector if isinstance(vector, LimnerError) else _moved(query, vector, of_terms, snapshot)
        for query, vector in zip(queries, vectors, strict=True)
    ]


def _joined(
    text: np.ndarray | None, picture: np.ndarray | None, weight: float | None
) -> np.ndarray | DataError:
    """Join the embeddings of a text and an image: their weighted mean at unit length, or the error if they cancel."""
    if text is None or picture is None:
        alone = picture if text is None else text
        assert alone is not None
        return alone
    share = TEXT_WEIGHT if weight is None else weight
    mean = share * text + (1 - share) * picture
    length = float(np.linalg.norm(mean))
    if length == 0:
        return DataError("the text and the picture are opposites, their mean says nothing; change the weight")
    joined: np.ndarray = (mean / length).astype(np.float32)
    return joined


def _moved(
    query: SearchRequest, vector: np.ndarray, of_terms: dict[str, np.ndarray], snapshot: Snapshot
) -> np.ndarray | LimnerError:
    """Move a query's embedding by its terms, then by its marks; return the error of those that cannot move it."""
    try:
        if query.terms:
            vector = weighed(vector, [(term.weight, of_terms[term.text]) for term in query.terms])
        if query.is_marked:
            right, wrong = (
                snapshot.vectors[[snapshot.expect_row(key) for key in keys]]
                for keys in (query.right, query.wrong)
            )
            vector = moved(vector, right, wrong)
        return vector
    except LimnerError as error:
        return error


def weighed(
    query: Float[np.ndarray, " dim"], terms: Sequence[tuple[float, Float[np.ndarray, " dim"]]]
) -> Float[np.ndarray, " dim"]:
    """Add terms to a query's unit embedding, each by its weight, at unit length: unit(q + Σ wᵢ · tᵢ).

    The direction is that of the optimum of Direct Embedding Optimization (Lee et al., arXiv 2603.09185), which asks for
    a vector near to what is wanted and far from what is not, without its term for the whole sentence, which did not
    help (docs/log/2026-11-29.md). Raises `DataError` if nothing is left of the query.
    """
    target = query.astype(np.float64)
    for weight, term in terms:
        target += weight * term
    length = float(np.linalg.norm(target))
    if length < 1e-6:
        raise DataError("what is not wanted cancels what is, so that nothing is left to search by")
    return (target / length).astype(np.float32)


def _composed(
    queries: Sequence[SearchRequest],
    texts: dict[int, str],
    pictures: dict[int, np.ndarray],
    compose: Compose | None,
) -> dict[int, np.ndarray]:
    """Embed the queries of a picture and a text that the model reads as one sentence, by their number."""
    if compose is None:
        return {}
    numbers = [number for number in texts if number in pictures and queries[number].has_both]
    if not numbers:
        return {}
    rows = np.stack([pictures[number] for number in numbers])
    with timed("encode"):
        return dict(zip(numbers, compose(rows, [texts[number] for number in numbers]), strict=True))

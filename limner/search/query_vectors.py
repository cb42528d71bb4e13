"""The embeddings of queries: their texts in one pass, pictures one by one, both together as the model reads them."""

from collections.abc import Callable, Sequence

import numpy as np

from limner.errors import DataError, LimnerError
from limner.search.feedback import moved
from limner.search.query import Query, joined
from limner.search.stage_times import timed
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot
from limner.types import Encoder

Compose = Callable[[np.ndarray, Sequence[str]], np.ndarray]
"""Unit embeddings of composed queries, from those of pictures (queries, dim) and a text beside each."""


def query_vectors(
    queries: Sequence[Query],
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
            if query.text is not None:
                encoder.check_query(query.text)
                texts[number] = query.text
            if query.image is not None:
                known = query.pixels
                pictures[number] = encoder.prepare_image(query.image) if known is None else known
            if query.like is not None:
                stored[number] = snapshot.vectors[snapshot.expect_row(query.like)]
            if query.vector is not None:
                if query.vector.shape != (files.dim,):
                    raise DataError(
                        f"the query's vector has {len(query.vector)} numbers, the store's {files.dim}"
                    )
                stored[number] = query.vector
        except LimnerError as error:
            failed[number] = error
    texts = {number: text for number, text in texts.items() if number not in failed}
    # encode_queries: in bf16 a row of a product depends on the number of rows. Of 256 queries by 64 clients one had
    # another order, and scores differed by 6e-4; in fp32 none and 8e-7 (docs/log/2026-11-22.md)
    of_texts: dict[int, np.ndarray] = {}
    if texts:
        with timed("encode"):
            of_texts = dict(zip(texts, encoder.encode_queries(list(texts.values())), strict=True))
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
        else joined(of_texts.get(number), stored.get(number), query.text_weight)
        for number, query in enumerate(queries)
    ]
    return [
        vector if isinstance(vector, LimnerError) else _moved(query, vector, snapshot, files)
        for query, vector in zip(queries, vectors, strict=True)
    ]


def _moved(
    query: Query, vector: np.ndarray, snapshot: Snapshot, files: StoreFiles
) -> np.ndarray | LimnerError:
    """Move a query's embedding by its marks; return the error of marks that cannot move it."""
    if not query.is_marked:
        return vector
    try:
        right, wrong = (
            snapshot.vectors[[snapshot.expect_row(key) for key in keys]]
            for keys in (query.right, query.wrong)
        )
        return moved(vector, right, wrong)
    except LimnerError as error:
        return error


def _composed(
    queries: Sequence[Query], texts: dict[int, str], pictures: dict[int, np.ndarray], compose: Compose | None
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

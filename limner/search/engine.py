"""A store and its model together: queries as text or picture."""

from pathlib import Path

from limner.search.hits import Hit
from limner.search.store import Store
from limner.types import Encoder


class Engine:
    """Answers queries; refuses a model that the store was not built with (`StoreError`)."""

    def __init__(self, store: Store, encoder: Encoder) -> None:
        store.check_model(encoder.fingerprint, encoder.dim)
        self.store = store
        self.encoder = encoder

    def search(self, text: str, k: int = 10) -> list[Hit]:
        """The k pictures that fit a description best.

        Raises `DataError` when the model knows no word of it, and what `Store.search` raises.
        """
        self.encoder.check_query(text)
        return self.store.search(self.encoder.encode_texts([text])[0], k)

    def search_image(self, path: str | Path, k: int = 10) -> list[Hit]:
        """The k pictures most like a picture file. Raises `ImageError` for one that cannot be read."""
        return self.store.search(self.encoder.encode_images([path])[0], k)

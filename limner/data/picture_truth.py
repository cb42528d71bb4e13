"""The truth about a picture, which a generated set knows of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool


@dataclass(frozen=True, eq=False)
class PictureTruth:
    """The truth about a picture.

    - `colours`: names of all colours that it shows; `names`: those from which a false one may be planted.
    - `parts`: noun → the part that it means, such as "jacket" → "upper"; only nouns that mean one part.
    - `shows`: the pixels of each part, drawn when called.
    """

    colours: frozenset[str]
    names: tuple[str, ...]
    parts: Mapping[str, str]
    shows: Callable[[], Mapping[str, Bool[np.ndarray, "height width"]]]

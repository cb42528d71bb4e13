"""Word vectors from a pretrained text tower: what it makes of each word alone."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from limner.data.tokenizers import PretrainedTokenizer, WordTokenizer
from limner.errors import SettingsError
from limner.models.text_tower import TextTower, TextTowerSettings

_LENGTH = 16
"""Pieces of a word that are read."""
_BLOCK = 256


def tower_word_vectors(
    source: str, tokenizer: WordTokenizer, dim: int
) -> Float[Tensor, "vocabulary word_dim"]:
    """Vectors of a tokenizer's words by a text tower (a folder or a name on the hub), row i for token id i + 1.

    Each word is read as a sentence of its own: the mean of the last states of its pieces, of length 1, less the mean
    of all words, which is half of such a vector's length and says nothing of any word. Raises `SettingsError` for a
    tower of another width and `CheckpointError` for one that cannot be had.
    """
    pieces = PretrainedTokenizer.read(source, special_tokens=True)
    tower = TextTower(TextTowerSettings(model=source, words=_LENGTH, feature="mean"), pieces.size).eval()
    if tower.channels != dim:
        raise SettingsError(f"setting 'model.text.word_dim': {dim}, but {source} has {tower.channels}")
    entries = list(tokenizer.entries)
    found = []
    with torch.inference_mode():
        for start in range(0, len(entries), _BLOCK):
            ids = pieces.encode(entries[start : start + _BLOCK], _LENGTH).token_ids
            found.append(F.normalize(tower(torch.from_numpy(ids)).float(), dim=1))
    vectors = torch.cat(found)
    # not an inference tensor, which nothing could learn from
    return (vectors - vectors.mean(dim=0)).clone()

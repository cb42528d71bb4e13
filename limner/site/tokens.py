"""All that the page needs to read a sentence as the model does."""

import json
from collections.abc import Sequence
from typing import Any

from limner.data.tokenizers import PretrainedTokenizer
from limner.errors import SettingsError
from limner.inference.trained import TrainedModel
from limner.types import Tokenizer

FILE = "tokenizer.json"
"""The words of a vocabulary, or a tokenizer of Hugging Face."""

_READ = (
    "A man in a red coat, 42!",
    "Ein Mädchen mit grünem Mantel",
    "một cô gái mặc áo đỏ",
    "一个穿红衣服的女人",
    "CAFÉ ΟΔΟΣ don't",
)
"""Sentences that the page reads before it answers: it refuses to search if its token ids are not the model's."""


def tokenizer_for_page(model: TrainedModel) -> tuple[dict[str, Any], bytes]:
    """The description of a model's tokenizer for the page, and the content of `tokenizer.json`."""
    tokenizer = model.tokenizer
    words = model.model.settings.text.words
    described = {
        "words": words,
        "any_length": model.model.text.any_length,
        "read": [[text, _token_ids(tokenizer, text, words)] for text in _READ],
    }
    if not isinstance(tokenizer, PretrainedTokenizer):
        entries = json.dumps(list(tokenizer.entries), ensure_ascii=False)
        return {**described, "kind": "words"}, entries.encode()
    content = tokenizer.content()
    before, behind = _around(tokenizer)
    normalizer = json.dumps(json.loads(content).get("normalizer"))
    return {
        **described,
        "kind": "pretrained",
        "before": before,
        "behind": behind,
        "unknown": tokenizer.unknown_id,
        "lower_case": '"Lowercase"' in normalizer or '"lowercase": true' in normalizer,
    }, content


def _token_ids(tokenizer: Tokenizer, text: str, length: int) -> list[int]:
    return list(tokenizer.tokenize([text], length)[0].token_ids)


def _around(tokenizer: PretrainedTokenizer) -> tuple[list[int], list[int]]:
    """Token ids of the special tokens that stand before and behind a sentence."""
    bare = PretrainedTokenizer(tokenizer.content().decode())
    inside, whole = (_token_ids(one, _READ[0], 1 << 16) for one in (bare, tokenizer))
    start = _place(inside, whole)
    return whole[:start], whole[start + len(inside) :]


def _place(inside: Sequence[int], whole: Sequence[int]) -> int:
    for start in range(len(whole) - len(inside) + 1):
        if whole[start : start + len(inside)] == inside:
            return start
    raise SettingsError(
        "a site cannot read sentences as this model does: its tokenizer puts special tokens between words"
    )

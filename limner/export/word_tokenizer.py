"""Tokenizers as a tokenizer.json that programs of others load: a word vocabulary, or a model's own with a padding."""

import json
from collections.abc import Sequence
from typing import Any

from limner.data.tokenizers import PretrainedTokenizer
from limner.data.words import UNSEEN, WIDE
from limner.errors import SettingsError, install_hint
from limner.types import PADDING, Tokenizer

PAD = "<limner_pad>"
"""The padding's name, which no vocabulary has."""

# each piece of a sentence is given this mark, so that no single letter of an unknown word is an entry
_MARK = "▁"


def require_tokenizers() -> None:
    """Raise `SettingsError` if the tokenizers library is not installed."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise SettingsError(
            f"a tokenizer.json needs the tokenizers library: {install_hint('transformers')}"
        ) from None


def word_tokenizer_json(entries: Sequence[str]) -> str:
    """A word vocabulary as a tokenizer of Hugging Face: the same token ids, unknown words left out.

    Its model is BPE without merges that takes a known word whole. An unknown one falls apart into letters, none of
    which is an entry, and what is no entry BPE leaves out.
    """
    require_tokenizers()
    from tokenizers import Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Fast

    vocabulary = {PAD: PADDING} | {
        _MARK + word: token_id for token_id, word in enumerate(entries, start=PADDING + 1)
    }
    fast = Fast(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    unseen = [normalizers.Replace(Regex(pattern), "") for pattern in UNSEEN]
    wide = [normalizers.Replace(chr(letter), chr(plain)) for letter, plain in WIDE.items()]
    fast.normalizer = normalizers.Sequence([*wide, *unseen, normalizers.Lowercase(), normalizers.NFC()])
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # `limner.data.words`: letters and digits, and the marks behind them
            pre_tokenizers.Split(Regex(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*"), "removed", invert=True),
            pre_tokenizers.Metaspace(replacement=_MARK, prepend_scheme="always", split=False),
        ]
    )
    return str(fast.to_str())


def padded_tokenizer(tokenizer: Tokenizer) -> tuple[str, int]:
    """A tokenizer.json with a padding of its own, named `PAD`, and what is added to its ids to make token ids.

    The padding's id stands apart: a network is given `PADDING` in its place.
    """
    if not isinstance(tokenizer, PretrainedTokenizer):
        return word_tokenizer_json(tokenizer.entries), 0
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Fast

    content = tokenizer.content()
    assert content is not None, "a pretrained tokenizer travels whole"
    values: dict[str, Any] = json.loads(content)
    if not tokenizer.special_tokens:
        # whoever reads the file adds special tokens unless there are none
        values["post_processor"] = None
    fast = Fast.from_str(json.dumps(values))
    fast.no_padding()
    fast.no_truncation()
    fast.add_special_tokens([AddedToken(PAD, normalized=False, special=True)])
    return str(fast.to_str()), 1

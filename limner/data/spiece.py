"""SigLIP 1's tokenizer: a SentencePiece file (spiece.model) as the content of a tokenizer.json.

transformers has no fast version of it. The tokens are those of its slow one: lower case, no ASCII punctuation, single
blanks, then SentencePiece's own normalisation and its unigram pieces (Kudo, ACL 2018), `</s>` at the end. A departure:
`</s>` and `<unk>` within a sentence are punctuation and letters, as in the training of SigLIP, and no special tokens.
"""

import string
from pathlib import Path
from typing import Any

from limner.errors import SettingsError

PROBES = (
    "",
    "A woman, in a RED hat; her dog's   half-open bag!",
    "\tEine große Tasche (schwarz)\n",
    "cafe\u0301 naïve ½ ﬁ … ＡＢ",
    "người đàn ông 一个女人 赤い帽子 한국어 ΟΔΟΣ",
    "</s",
)
"""Sentences of which both versions have to make the same tokens, before a file is taken."""

_PUNCTUATION = f"[{''.join(chr(92) + sign for sign in string.punctuation)}]+"
_UNIGRAM = 1
_NORMAL, _UNUSED, _BYTE = 1, 5, 6
"""Numbers of SentencePiece's kinds of models and pieces."""


def is_siglip_tokenizer(tokenizer: Any) -> bool:
    """True for the slow tokenizer of transformers that SigLIP 1 has."""
    return hasattr(tokenizer, "canonicalize_text") and hasattr(tokenizer, "vocab_file")


def siglip_content(tokenizer: Any, source: str) -> str:
    """The content of a tokenizer.json that makes the tokens of transformers' `SiglipTokenizer`.

    Raises `SettingsError` for a file of another kind than SigLIP's.
    """
    # the library itself needs both, or it would have made no tokenizer
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    # through Any: protobuf makes the classes of the module when it is imported
    formats: Any = sentencepiece_model_pb2
    try:
        file = formats.ModelProto.FromString(Path(tokenizer.vocab_file).read_bytes())
    except Exception as error:  # protobuf's own error has no base class of ours
        raise _refused(source, f"its spiece.model is damaged ({type(error).__name__})") from None
    trained = file.trainer_spec
    if trained.model_type != _UNIGRAM:
        raise _refused(source, "its spiece.model has no unigram pieces")
    pieces = [
        # no sentence has a blank by then, so what is no piece of text is never found in one
        (piece.piece if piece.type in (_NORMAL, _UNUSED, _BYTE) else f" {piece.piece}", piece.score)
        for piece in file.pieces
    ]
    fast = Tokenizer(models.Unigram(pieces, unk_id=trained.unk_id, byte_fallback=trained.byte_fallback))
    lower = [
        # Python, as transformers uses it, has ς at the end of a word; the library's Lowercase knows no words
        normalizers.Replace(Regex(r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"), "ς"),
        normalizers.Lowercase(),
    ]
    charsmap = file.normalizer_spec.precompiled_charsmap
    own: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if own and "nfkc" in file.normalizer_spec.name:
        # the library looks up whole signs with their accents, where SentencePiece composes them: e + ´ on macOS. A
        # departure: ô + `, which is neither form of Unicode, is one sign here and two there
        own.insert(0, normalizers.NFKC())
    fast.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("▁", " "),
            *(lower if tokenizer.do_lower_case else ()),
            normalizers.Replace(Regex(_PUNCTUATION), ""),
            # Python's blanks, four of which the library does not count
            normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "),
            normalizers.Strip(),
            *own,
            # again, since the file's own map makes blanks of other signs
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    fast.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    end = int(tokenizer.eos_token_id)
    fast.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    differing = [text for text in PROBES if fast.encode(text).ids != tokenizer(text)["input_ids"]]
    if differing:
        raise _refused(source, f"its spiece.model is not as SigLIP's (other tokens of {differing[0]!r})")
    return fast.to_str()


def _refused(source: str, what: str) -> SettingsError:
    return SettingsError(
        f"tokenizer '{source}': {what}; give a folder with tokenizer.json, or choose another"
    )

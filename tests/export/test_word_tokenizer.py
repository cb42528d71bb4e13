from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from limner.data.tokenizers import WordTokenizer
from limner.export.word_tokenizer import PAD, padded_tokenizer, word_tokenizer_json
from limner.types import PADDING

ENTRIES = ("a", "dog", "runs", "café", "42", "हिन्दी", "x", "tiếng", "ß", "i", "σ")

# entries as they may be written
HIDDEN = ("ａ", "４２", "d\u200bog", "ru\u00adns", "\u200ecafé", "Ｘ\u200d")

# letters of many scripts, marks, digits, blanks, signs; unassigned and surrogate code points are no text
LETTERS = st.one_of(
    st.characters(exclude_categories=("Cs", "Cn", "Co")), st.sampled_from("\u200b\u200d\u00ad\ufeffａＸ４aक")
)
TEXT = st.text(LETTERS, max_size=30)


@given(
    st.lists(st.one_of(st.sampled_from((*ENTRIES, *HIDDEN)), TEXT), max_size=8),
    st.sampled_from([" ", ", ", "-", "_"]),
)
def test_a_word_vocabulary_reads_as_limner_does(parts: list[str], between: str) -> None:
    own = WordTokenizer(ENTRIES)
    fast = Tokenizer.from_str(word_tokenizer_json(ENTRIES))
    sentence = between.join(parts)
    assert fast.encode(sentence).ids == own.token_ids(sentence)


def test_its_padding_is_limners() -> None:
    content, offset = padded_tokenizer(WordTokenizer(ENTRIES))
    assert offset == 0
    assert Tokenizer.from_str(content).token_to_id(PAD) == PADDING

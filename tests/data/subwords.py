"""Small sub-word tokenizers trained on a few captions: the content of a tokenizer.json of each usual kind."""

from functools import cache

import pytest

CAPTIONS = (
    *("a red square on white", "on white ground, a bar in red", "a blue circle on grey"),
    *("a man in a black hat with a red bar", "一个穿红衣服的女人", "女人 红 人"),
)


@cache
def word_pieces(captions: tuple[str, ...] = CAPTIONS) -> str:
    """BERT's kind: lower case, Chinese characters apart, [CLS] and [SEP] around a sentence."""
    library = pytest.importorskip("tokenizers")
    found = library.Tokenizer(library.models.WordPiece(unk_token="[UNK]"))
    found.normalizer = library.normalizers.BertNormalizer()
    found.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    trainer = library.trainers.WordPieceTrainer(
        vocab_size=100, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    # Spelt words teach it each letter at the beginning of a word and within one.
    spelt = [f"{letter} x{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    found.train_from_iterator([*captions, *spelt], trainer)
    found.post_processor = library.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return str(found.to_str())


@cache
def byte_pairs() -> str:
    """GPT-2's kind, with RoBERTa's special tokens: bytes, merged within words that begin with their blank."""
    library = pytest.importorskip("tokenizers")
    found = library.Tokenizer(library.models.BPE())
    found.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>"],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator(CAPTIONS, trainer)
    found.post_processor = library.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    # What it was saved with must not reach the rows of a network.
    found.enable_padding(pad_id=1, pad_token="<pad>", length=16)
    found.enable_truncation(4)
    return str(found.to_str())


@cache
def unigrams() -> str:
    """SentencePiece's kind, as T5 has it."""
    library = pytest.importorskip("tokenizers")
    found = library.Tokenizer(library.models.Unigram())
    found.normalizer = library.normalizers.NFKC()
    found.pre_tokenizer = library.pre_tokenizers.Metaspace()
    trainer = library.trainers.UnigramTrainer(
        vocab_size=80, special_tokens=["<pad>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    found.train_from_iterator(CAPTIONS, trainer)
    return str(found.to_str())

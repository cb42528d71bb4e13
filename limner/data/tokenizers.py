"""Tokenizers: a vocabulary of whole words, or any fast tokenizer of Hugging Face.

A sentence becomes a row of token ids of fixed length (dual-path TOMM 2020, section 3.2): a longer one loses its end, a
shorter one is filled with `PADDING`. A tokenizer is part of a trained model. Its description in the checkpoint holds
all of it, so that neither the captions nor the folder that it came from are needed again.
"""

import hashlib
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from limner.data.noun_phrases import noun_phrases, phrase_numbers
from limner.data.spiece import is_siglip_tokenizer, siglip_content
from limner.data.token_rows import token_batch
from limner.data.words import as_it_looks, has_unspaced_letter, is_unspaced, seen_places, word_spans, words
from limner.errors import DataError, SettingsError, install_hint
from limner.types import TokenBatch, TokenizedSentence, Tokenizer, Word

_UNSPACED_SHARE = 0.05
"""Share of captions without blanks between words from which a word vocabulary is refused; fewer are strays."""


class _RowTokenizer(Tokenizer):
    """The part that both tokenizers share: rows, and the refusal of sentences without a meaning."""

    def encode(
        self,
        sentences: Sequence[str],
        length: int,
        *,
        phrases: bool = False,
        words: bool = False,
        shift: np.random.Generator | None = None,
    ) -> TokenBatch:
        """Read sentences into rows of `length` tokens; with `shift` each begins at a random position that fits it."""
        read = self.tokenize(sentences, length, phrases=phrases, words=words)
        return token_batch(read, length, phrases=phrases, words=words, shift=shift)

    def check(self, sentence: str) -> None:
        """Raise `DataError` for an empty sentence, and for one without a known word: its embedding is arbitrary."""
        if not sentence.strip():
            raise DataError("the query is empty; say what to look for")
        if not self.known_words(sentence):
            raise DataError(f"the model knows no word of the query {sentence!r}; {self._knows()}")

    @abstractmethod
    def _knows(self) -> str:
        """Say what the model can read, at the end of that error."""


_INSTEAD = (
    "train a recipe with a sub-word tokenizer ('limner recipes list', or --set vocabulary.tokenizer=FOLDER), or put "
    "blanks between the words"
)


class WordTokenizer(_RowTokenizer):
    """A token for each known word; others are left out, at test time as well (section 3.2).

    Words are those of the training captions alone, most frequent first, so that nothing of the test split leaks in.
    """

    whole_words = True

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = tuple(entries)

    @classmethod
    def build(
        cls, sentences: Iterable[str], *, min_count: int = 1, known: Collection[str] | None = None
    ) -> "WordTokenizer":
        """Collect the words of the training sentences.

        `min_count` drops words seen less often; `known`, the dictionary of pre-trained word vectors, drops the words
        it lacks (the paper's filter for rare words). Equal counts are ordered alphabetically.
        Raises `DataError` when no word is left, and when more than a twentieth of the sentences are written without
        blanks between words (`limner.data.words.is_unspaced`): their "words" would be whole clauses.
        """
        sentences = list(sentences)
        unspaced = [sentence for sentence in sentences if is_unspaced(sentence)]
        if len(unspaced) > _UNSPACED_SHARE * len(sentences):
            raise DataError(
                f"{len(unspaced)} of {len(sentences)} training captions are written without blanks between words, "
                f"e.g. {' '.join(unspaced[0].split())[:40]!r}; a vocabulary of whole words cannot read them: {_INSTEAD}"
            )
        # Sorted by count, then by letter: the ids, and with them the table's start, depend on no order of records.
        counts = Counter(word for sentence in sentences for word in words(sentence))
        kept = [
            word
            for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            if count >= min_count and (known is None or word in known)
        ]
        if not kept:
            raise DataError(
                f"no word is left for the vocabulary: {len(counts)} words in the training sentences, min_count "
                f"{min_count}{'' if known is None else f', {len(known)} words with vectors'}; lower min_count or "
                "check the captions"
            )
        return cls(kept)

    def check(self, sentence: str) -> None:
        """Also refuse a sentence without blanks between words, of which no word in its own script is known."""
        # A Latin brand name among Chinese would be searched for alone.
        if is_unspaced(sentence) and not any(map(has_unspaced_letter, self.known_words(sentence))):
            raise DataError(
                f"the query {sentence!r} is written without blanks between words, and the model reads whole words; "
                f"{self._knows()}; for such a language: {_INSTEAD}"
            )
        super().check(sentence)

    @property
    def entries(self) -> tuple[str, ...]:
        """The known words, most frequent first; the token id of `entries[i]` is i + 1."""
        return self._entries

    @cached_property
    def _ids(self) -> dict[str, int]:
        # From 1, because 0 is `PADDING`.
        return {word: token_id for token_id, word in enumerate(self._entries, start=1)}

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def token_ids(self, sentence: str) -> list[int]:
        """The token ids of a sentence of any length, unknown words left out."""
        return [self._ids[word] for word in words(sentence) if word in self._ids]

    def with_words(self, more: Iterable[str]) -> "WordTokenizer":
        """Add words at the end, such as those that a pretrained encoder knows."""
        # Behind the captions' words, whose ids and rows of the word table stay as they are.
        return WordTokenizer(tuple(dict.fromkeys((*self._entries, *more))))

    def tokenize(
        self, sentences: Sequence[str], length: int, *, phrases: bool = False, words: bool = False
    ) -> list[TokenizedSentence]:
        """Read sentences of at most `length` known words."""
        return [self._tokenized(sentence, length, phrases, words) for sentence in sentences]

    def _tokenized(self, sentence: str, length: int, phrases: bool, aligned: bool) -> TokenizedSentence:
        token_ids = self.token_ids(sentence)
        of_phrases = self._phrases(sentence)[:length] if phrases else None
        spans = tuple(self._aligned(sentence, length)) if aligned else None
        return TokenizedSentence(tuple(token_ids[:length]), len(token_ids) > length, of_phrases, spans)

    def _phrases(self, sentence: str) -> tuple[int, ...]:
        return tuple(phrase_numbers(sentence, [word in self for word in words(sentence)]))

    def _aligned(self, sentence: str, length: int) -> Iterator[Word]:
        count = 0
        for text, start, stop in word_spans(sentence):
            # A word that is unknown or cut off keeps its place, with an empty range of tokens.
            read = text in self and count < length
            yield Word(text, start, stop, range(count, count + read))
            count += read

    def words(self, sentence: str) -> list[str]:
        """All words of a sentence, in lower case."""
        return words(sentence)

    def known_words(self, sentence: str) -> list[str]:
        """The words that are in the vocabulary."""
        return [word for word in words(sentence) if word in self]

    def to_description(self) -> dict[str, Any]:
        """The words."""
        return {"kind": "words", "words": list(self._entries)}

    def _knows(self) -> str:
        return f"it has learnt {self.size} words, e.g. {', '.join(self._entries[:8])}"


class PretrainedTokenizer(_RowTokenizer):
    """A tokenizer of Hugging Face, with its own normalisation, such as lower case.

    A token id is the tokenizer's own plus 1. Its own padding differs from one to the next (0 in BERT's, 1 in RoBERTa's,
    none in GPT-2's), and a network that took a token for padding would drop it without a word.

    Words are the tokenizer's, cut at blanks: BERT's has each Chinese character as one.
    `special_tokens` adds those that stand around a sentence, such as [CLS]; they stay where a sentence is cut and
    belong to no word.
    """

    whole_words = False

    def __init__(self, content: str, *, special_tokens: bool = False) -> None:
        try:
            # Imported here: the library belongs to an extra, and `import limner` does without it.
            from tokenizers import Tokenizer as Fast
        except ImportError:
            raise SettingsError(
                f"a pretrained tokenizer needs the tokenizers library: {install_hint('transformers')}"
            ) from None
        try:
            self._fast = Fast.from_str(content)
        except Exception as error:  # the library raises bare Exception for a file that it cannot parse
            raise SettingsError(f"not the content of a tokenizer.json ({error})") from None
        # A row's length is the network's, not what the tokenizer was saved with.
        self._fast.no_padding()
        self._fast.no_truncation()
        self.special_tokens = special_tokens
        # False: for one sentence, not for a pair of them.
        self._special_count = self._fast.num_special_tokens_to_add(False) if special_tokens else 0
        self.unknown_id = _unknown_id(content, self._fast)
        # as it came and not as the library writes it, which changes from version to version: the fingerprint covers it
        self._content = content.encode()
        self._digest = hashlib.sha256(self._content).hexdigest()

    @classmethod
    def read(cls, source: str, *, special_tokens: bool = False) -> "PretrainedTokenizer":
        """Read a folder or a name on the hub. Raises `SettingsError` if there is no fast tokenizer."""
        return cls.of(load_fast(source), source, special_tokens=special_tokens)

    @classmethod
    def learn(cls, sentences: Sequence[str], pieces: int) -> "PretrainedTokenizer":
        """Learn a tokenizer of bytes and of the most frequent pieces of words in the sentences.

        It can spell every text in every script. Capitals are read as small letters, and each Chinese character stands
        alone (byte-pair encoding: Sennrich et al., ACL 2016). `pieces` is the size with the 256 bytes.
        """
        try:
            from tokenizers import Tokenizer as Fast
            from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
        except ImportError:
            raise SettingsError(
                f"learning pieces of words needs the tokenizers library: {install_hint('transformers')}"
            ) from None
        fast = Fast(models.BPE())
        # Accents stay: in Vietnamese they are the word.
        fast.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False, lowercase=True)]
        )
        fast.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.BertPreTokenizer(),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        fast.post_processor = processors.ByteLevel(trim_offsets=True)
        trainer = trainers.BpeTrainer(
            vocab_size=pieces,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        # Sorted: ties between pairs are broken by their order of arrival, and a resumed run must find the same pieces.
        fast.train_from_iterator(sorted(sentences), trainer)
        return cls(fast.to_str())

    @classmethod
    def of(
        cls, fast: Any, source: str, *, special_tokens: bool = False, lower_case: bool = False
    ) -> "PretrainedTokenizer":
        """Take what `load_fast` gave; `lower_case` has it read capitals as small letters.

        Raises `SettingsError` for one that knows no word.
        """
        if is_siglip_tokenizer(fast):
            content = siglip_content(fast, source)
        else:
            if lower_case:
                _read_lower_case(fast.backend_tokenizer)
            content = fast.backend_tokenizer.to_str()
        tokenizer = cls(content, special_tokens=special_tokens)
        # Without its files transformers makes a tokenizer that knows its special tokens alone.
        if not any(entry.strip("▁Ġ#").isalnum() for entry in tokenizer.entries):
            raise SettingsError(
                f"tokenizer '{source}': it knows no word; tokenizer.json or the vocabulary's file is missing there"
            )
        return tokenizer

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The text of each token as the tokenizer stores it, e.g. "##ing"; that of token id i is `entries[i - 1]`."""
        # Added tokens too: some have ids beyond the vocabulary's own.
        by_id = {token_id: text for text, token_id in self._fast.get_vocab(with_added_tokens=True).items()}
        # Some vocabularies leave numbers out.
        return tuple(by_id.get(token_id, "") for token_id in range(max(by_id) + 1))

    def tokenize(
        self, sentences: Sequence[str], length: int, *, phrases: bool = False, words: bool = False
    ) -> list[TokenizedSentence]:
        """Read sentences of at most `length` tokens, special tokens counted."""
        return [
            self._tokenized(sentence, encoding, length, phrases, words)
            for sentence, encoding in zip(sentences, self._encoded(sentences), strict=True)
        ]

    def _encoded(self, sentences: Sequence[str]) -> list[Any]:
        # Half a surrogate pair, which a file name may hold, cannot be handed to the library.
        texts = [
            "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in as_it_looks(text))
            for text in sentences
        ]
        # Without special tokens: those of the sentence alone are counted, cut and traced back to words.
        found: list[Any] = self._fast.encode_batch(texts, add_special_tokens=False)
        return found

    def _tokenized(
        self, sentence: str, encoding: Any, length: int, phrases: bool, aligned: bool
    ) -> TokenizedSentence:
        # Grouped before the cut: a word that is cut off is still a word of the sentence, one without tokens.
        looks = as_it_looks(sentence)
        whole = _grouped(looks, encoding) if aligned else ()
        if whole and len(looks) < len(sentence):
            seen = seen_places(sentence)
            whole = [word._replace(start=seen[word.start], stop=seen[word.stop - 1] + 1) for word in whole]
        room = max(0, length - self._special_count)
        truncated = len(encoding.ids) > room
        # Cut before the special tokens come, so that the last of them ([SEP], </s>) stays.
        if truncated:
            encoding.truncate(room)
        before = 0
        if self.special_tokens:
            # The library knows which special tokens stand where; only the cut is ours.
            encoding = self._fast.post_process(encoding)
            before = next(
                (place for place, special in enumerate(encoding.special_tokens_mask) if not special), 0
            )
        return TokenizedSentence(
            # Plus 1 for each, so that 0 is padding whatever the tokenizer calls its own.
            tuple(token_id + 1 for token_id in encoding.ids[:length]),
            truncated,
            tuple(_phrases(looks, encoding.offsets[:length])) if phrases else None,
            tuple(_cut(word, room, before) for word in whole) if aligned else None,
        )

    def words(self, sentence: str) -> list[str]:
        """All words of a sentence in its own spelling."""
        return [word.text for word in _grouped(as_it_looks(sentence), self._encoded([sentence])[0])]

    def known_words(self, sentence: str) -> list[str]:
        """The words with a token other than the tokenizer's unknown one; all of them where it can spell anything."""
        encoding = self._encoded([sentence])[0]
        return [
            word.text
            for word in _grouped(as_it_looks(sentence), encoding)
            if any(encoding.ids[token] != self.unknown_id for token in word.tokens)
        ]

    def to_description(self) -> dict[str, Any]:
        """The digest of `content`."""
        # 256,000 pieces are 23 MB: in the checkpoint's header every reader of a description would have to parse them
        return {"kind": "pretrained", "special_tokens": self.special_tokens, "sha256": self._digest}

    def content(self) -> bytes:
        """The content of tokenizer.json."""
        return self._content

    def _knows(self) -> str:
        return f"its tokenizer has {self.size} tokens; write it in the language of the captions"


def load_fast(source: str) -> Any:
    """The fast tokenizer of transformers in a folder or of a name on the hub, or SigLIP 1's slow one.

    Raises `SettingsError`.
    """
    # A folder that is missing would be taken for a name on the hub, and the error speak of the network.
    if (Path(source).is_absolute() or source.startswith((".", "~"))) and not Path(source).is_dir():
        raise SettingsError(f"tokenizer '{source}': no such folder; give one with tokenizer.json")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise SettingsError(
            f"a pretrained tokenizer needs the transformers library: {install_hint('transformers')}"
        ) from None
    try:
        # Code that comes with a tokenizer is never run, whatever its settings ask for.
        found = AutoTokenizer.from_pretrained(source, use_fast=True, trust_remote_code=False)
    except Exception as error:  # transformers lets through what its libraries raise: OSError, ValueError …
        if isinstance(error, ImportError) and any(
            name in str(error) for name in ("SentencePiece", "protobuf")
        ):
            raise SettingsError(
                f"tokenizer '{source}': it has a spiece.model alone, which needs the sentencepiece and protobuf "
                f"libraries: {install_hint('sentencepiece')}"
            ) from None
        reason = f"{type(error).__name__} in tokenizer.json or tokenizer_config.json"
        # What SentencePiece says where SigLIP's slow tokenizer is made without a file.
        if "model_file or model_proto" in str(error):
            reason = "tokenizer.json with its tokenizer_config.json is missing, and so is spiece.model"
        raise SettingsError(
            f"tokenizer '{source}': cannot be read ({reason}); give a folder with tokenizer.json, or a hub name "
            "while there is a network"
        ) from None
    if not getattr(found, "is_fast", False) and not is_siglip_tokenizer(found):
        raise SettingsError(
            f"tokenizer '{source}': there is no fast version of it (no tokenizer.json), so tokens cannot be "
            "traced back to words; choose another"
        )
    return found


def _read_lower_case(fast: Any) -> None:
    """Have a tokenizer read capitals as small letters, before anything else it does."""
    from tokenizers import normalizers

    # Its parts tell nothing of themselves but by the state that is pickled, which is their JSON.
    before = None if fast.normalizer is None else json.loads(fast.normalizer.__getstate__())
    lower = {"type": "Lowercase"}
    if lower in (before, *((before or {}).get("normalizers") or ())):
        return
    added = normalizers.Lowercase()
    fast.normalizer = added if before is None else normalizers.Sequence([added, fast.normalizer])


def _unknown_id(content: str, fast: Any) -> int | None:
    """The id of the token that stands for text that the tokenizer cannot spell; None if it has no such token."""
    # WordPiece and BPE name the token by its text, Unigram by its number, which the library does not tell.
    if hasattr(fast.model, "unk_token"):
        named = fast.model.unk_token
        return None if named is None else fast.token_to_id(named)
    found: int | None = json.loads(content)["model"].get("unk_id")
    return found


def _grouped(sentence: str, encoding: Any) -> list[Word]:
    """The words of an encoding without special tokens.

    A word ends where the tokenizer's word does, or at a blank, since some take a sentence for one word. Tokens that
    share characters stay together: a tokenizer that writes "½" as "1/2" has three words of one character.
    """
    found: list[Word] = []
    last = None
    for token, ((start, stop), number) in enumerate(zip(encoding.offsets, encoding.word_ids, strict=True)):
        # Byte-level and SentencePiece tokenizers count the blank before a word among its characters.
        text = sentence[start:stop]
        start, stop = start + len(text) - len(text.lstrip()), stop - len(text) + len(text.rstrip())
        if start >= stop:  # a blank
            continue
        gap = sentence[found[-1].stop : start] if found else ""
        if found and (start < found[-1].stop or (number == last and not any(map(str.isspace, gap)))):
            word = found.pop()
            start, stop = word.start, max(word.stop, stop)
            found.append(Word(sentence[start:stop], start, stop, range(word.tokens.start, token + 1)))
        else:
            found.append(Word(sentence[start:stop], start, stop, range(token, token + 1)))
        last = number
    return found


def _cut(word: Word, room: int, before: int) -> Word:
    """A word with those of its tokens that have room, moved behind the special tokens that come first."""
    first, stop = min(word.tokens.start, room), min(word.tokens.stop, room)
    return word._replace(tokens=range(first + before, stop + before))


def _phrases(sentence: str, offsets: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The number of the noun phrase that each token begins in, from 1 among those with a token; 0 = in none."""
    spans = word_spans(sentence)
    places = [(spans[first].start, spans[stop - 1].stop) for first, stop in noun_phrases(sentence)]
    numbers: dict[int, int] = {}
    for start, stop in offsets:
        # The same blank: with it a token would begin before its phrase.
        start += len(sentence[start:stop]) - len(sentence[start:stop].lstrip())
        inside = next((place for place, (left, right) in enumerate(places) if left <= start < right), None)
        if inside is None or start >= stop:
            yield 0
        else:
            # Numbers count phrases with a token, so those that were cut off leave no gap.
            yield numbers.setdefault(inside, len(numbers) + 1)


def tokenizer_from_description(description: Mapping[str, Any], content: bytes | None = None) -> Tokenizer:
    """The tokenizer of `Tokenizer.to_description` and `Tokenizer.content`.

    Raises `SettingsError`, KeyError, TypeError, ValueError.
    """
    if description["kind"] == "words":
        return WordTokenizer([str(word) for word in description["words"]])
    if description["kind"] == "pretrained":
        if content is None:
            raise SettingsError("its tokenizer.json is missing")
        found = PretrainedTokenizer(content.decode(), special_tokens=bool(description["special_tokens"]))
        if found.to_description() != description:
            raise SettingsError("its tokenizer.json is damaged")
        return found
    raise SettingsError(f"expected a tokenizer of kind 'words' or 'pretrained', got {description['kind']!r}")

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.tokenizers import PretrainedTokenizer, WordTokenizer, tokenizer_from_description
from limner.data.words import as_it_looks, has_unspaced_letter, is_unspaced, words
from limner.errors import DataError, SettingsError
from limner.types import Tokenizer
from tests.data.subwords import CAPTIONS, byte_pairs, unigrams, word_pieces


def test_most_frequent_first_and_ties_by_letter() -> None:
    tokenizer = WordTokenizer.build(["b a c", "c b", "c"])
    assert tokenizer.entries == ("c", "b", "a")
    assert tokenizer.token_ids("A zebra C") == [3, 1]
    assert "zebra" not in tokenizer


SCRIPTS = {
    "Han": "一个穿着红色大衣的男人站在街上",
    "kana": "あかいコートをきたおとこのひと",
    "Thai": "ผู้ชายสวมเสื้อโค้ทสีแดง",
    "Lao": "ຜູ້ຊາຍໃສ່ເສື້ອສີແດງ",
    "Khmer": "បុរសពាក់អាវពណ៌ក្រហម",
    "Myanmar": "အနီရောင်အင်္ကျီဝတ်ထားသောအမျိုးသား",
}
SPACED = ("a man in a red coat", "ein Mann mit roten Schuhen", "빨간 코트를 입은 남자", "người đàn ông áo đỏ")


@given(
    script=st.sampled_from(sorted(SCRIPTS)),
    start=st.integers(0, 3),
    ending=st.sampled_from(["", "。", "。 ", " 42", "\n"]),
    beside=st.lists(st.sampled_from(SPACED), max_size=3),
)
def test_scripts_without_blanks_are_refused_in_one_line(
    script: str, start: int, ending: str, beside: list[str]
) -> None:
    text = SCRIPTS[script][start:] + ending
    assert is_unspaced(text)
    assert not any(map(is_unspaced, beside))
    with pytest.raises(DataError, match="written without blanks between words") as error:
        WordTokenizer.build([*beside, text])
    assert str(error.value).startswith(f"1 of {len(beside) + 1} training captions")
    assert text.split()[0][:10] in str(error.value)
    assert "limner recipes list" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    tokenizer = WordTokenizer.build([*SPACED, "42"])
    with pytest.raises(DataError, match=r"the query .* is written without blanks between words") as error:
        tokenizer.check(text)
    assert len(str(error.value).splitlines()) == 1


@given(script=st.sampled_from(sorted(SCRIPTS)), count=st.integers(1, 6), spaced=st.sampled_from(SPACED))
def test_a_few_such_letters_in_a_spaced_sentence_do_no_harm(script: str, count: int, spaced: str) -> None:
    text = f"{spaced} with a sign {SCRIPTS[script][:count]} on it"
    tokenizer = WordTokenizer.build([text])
    tokenizer.check(text)
    assert set(words(spaced)) <= set(tokenizer.entries)
    # Strays among many captions are left to the doctor.
    WordTokenizer.build([*SPACED * 5, SCRIPTS[script]])


def test_words_that_were_split_by_blanks_are_words() -> None:
    tokenizer = WordTokenizer.build(["一个 穿着 红色 大衣 的 男人", "ผู้ชาย สวม เสื้อ สี แดง"])
    assert {"红色", "เสื้อ"} <= set(tokenizer.entries)
    tokenizer.check("红色")
    tokenizer.check("红色 大衣")
    with pytest.raises(DataError, match="without blanks between words"):
        tokenizer.check("红色大衣nike一个")


@given(sentence=st.sampled_from([*SPACED, "Größe, Mütze über Fuß", "Người phụ nữ để tóc ngắn màu nâu."]))
def test_composed_and_decomposed_queries_find_the_same_words(sentence: str) -> None:
    forms = [unicodedata.normalize(form, sentence) for form in ("NFC", "NFD")]
    for learnt, asked in (forms, forms[::-1]):
        tokenizer = WordTokenizer.build([learnt])
        assert tokenizer.known_words(asked) == words(sentence)
        assert tokenizer.token_ids(asked) == tokenizer.token_ids(learnt)
        assert all(unicodedata.is_normalized("NFC", word) for word in tokenizer.entries)


def test_min_count_and_known_words() -> None:
    assert WordTokenizer.build(["b a c", "c b"], min_count=2).entries == ("b", "c")
    assert WordTokenizer.build(["b a c"], known={"a"}).entries == ("a",)
    with pytest.raises(DataError, match="no word is left"):
        WordTokenizer.build(["a"], min_count=2)


KINDS: dict[str, Tokenizer] = {
    "words": WordTokenizer.build(caption for caption in CAPTIONS if not is_unspaced(caption)),
    "word pieces": PretrainedTokenizer(word_pieces()),
    "word pieces between special tokens": PretrainedTokenizer(word_pieces(), special_tokens=True),
    "bytes": PretrainedTokenizer(byte_pairs()),
    "bytes between special tokens": PretrainedTokenizer(byte_pairs(), special_tokens=True),
    "unigrams": PretrainedTokenizer(unigrams()),
}
every_kind = pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
texts = st.text(max_size=30) | st.text("ab red½ﬁİΣ \t\u0301女🙂\ud800[CLS]", max_size=20)


@every_kind
@given(sentence=texts)
def test_spans_slice_the_sentence_to_the_words(tokenizer: Tokenizer, sentence: str) -> None:
    (read,) = tokenizer.tokenize([sentence], 1000, words=True)
    assert read.words is not None
    assert [word.text for word in read.words] == tokenizer.words(sentence)
    ends = [0, *(end for word in read.words for end in (word.start, word.stop)), len(sentence)]
    assert ends == sorted(ends)
    assert all(word.start < word.stop for word in read.words)
    if not tokenizer.whole_words:
        assert [word.text for word in read.words] == [
            as_it_looks(sentence[word.start : word.stop]) for word in read.words
        ]
        assert not any(
            character.isspace() for word in read.words for character in (word.text[0], word.text[-1])
        )


@every_kind
@given(sentence=texts)
def test_a_token_belongs_to_one_word_at_most(tokenizer: Tokenizer, sentence: str) -> None:
    (read,) = tokenizer.tokenize([sentence], 1000, words=True)
    tokens = [token for word in read.words or () for token in word.tokens]
    assert tokens == sorted(set(tokens))
    assert all(0 <= token < len(read.token_ids) for token in tokens)
    assert all(1 <= token_id <= tokenizer.size for token_id in read.token_ids)


@every_kind
@given(sentence=texts, length=st.integers(2, 12))
def test_cutting_keeps_the_words_and_the_tokens_before_the_cut(
    tokenizer: Tokenizer, sentence: str, length: int
) -> None:
    (whole,) = tokenizer.tokenize([sentence], 1000, words=True)
    (cut,) = tokenizer.tokenize([sentence], length, words=True)
    assert cut.words is not None
    assert whole.words is not None
    assert len(cut.token_ids) == min(length, len(whole.token_ids))
    assert cut.truncated == (len(whole.token_ids) > length)
    assert [word[:3] for word in cut.words] == [word[:3] for word in whole.words]
    for short, long in zip(cut.words, whole.words, strict=True):
        assert list(short.tokens) == list(long.tokens)[: len(short.tokens)]
        assert [cut.token_ids[token] for token in short.tokens] == [
            whole.token_ids[token] for token in short.tokens
        ]
    assert not whole.truncated


@every_kind
@given(sentences=st.lists(texts, max_size=4), seed=st.integers(0, 9))
def test_rows_hold_what_was_read(tokenizer: Tokenizer, sentences: list[str], seed: int) -> None:
    shift = np.random.default_rng(seed) if seed else None
    batch = tokenizer.encode(sentences, 9, words=True, shift=shift)
    read = tokenizer.tokenize(sentences, 9)
    assert batch.words is not None
    for row, sentence in enumerate(read):
        assert tuple(batch.token_ids[row][batch.mask[row]]) == sentence.token_ids
        assert bool(batch.truncated[row]) == sentence.truncated
        for word in batch.words[row]:
            assert batch.mask[row, list(word.tokens)].all()


@every_kind
@given(sentence=texts)
def test_a_sentence_is_refused_just_where_no_word_is_known(tokenizer: Tokenizer, sentence: str) -> None:
    known = tokenizer.known_words(sentence)
    assert not set(known) - set(tokenizer.words(sentence))
    assert set(tokenizer.unknown_words(sentence)) == set(tokenizer.words(sentence)) - set(known)
    if tokenizer.whole_words and is_unspaced(sentence):
        known = [word for word in known if has_unspaced_letter(word)]
    if known:
        tokenizer.check(sentence)
    else:
        with pytest.raises(DataError, match="the query"):
            tokenizer.check(sentence)


@every_kind
def test_a_tokenizer_is_made_again_of_its_description(tokenizer: Tokenizer) -> None:
    description = json.loads(json.dumps(tokenizer.to_description()))
    again = tokenizer_from_description(description, tokenizer.content())
    sentences = [*CAPTIONS, "A zebra's café, 一个女人 🙂"]
    np.testing.assert_array_equal(
        again.encode(sentences, 12).token_ids, tokenizer.encode(sentences, 12).token_ids
    )
    assert again.to_description() == description
    assert again.entries == tokenizer.entries


def test_a_word_tokenizer_spells_words_in_lower_case_and_leaves_unknown_ones_without_a_token() -> None:
    (read,) = KINDS["words"].tokenize(["A RED zebra, red bar"], 3, words=True)
    assert read.words is not None
    assert [(word.text, word.start, len(word.tokens)) for word in read.words] == [
        ("a", 0, 1),
        ("red", 2, 1),
        ("zebra", 6, 0),
        ("red", 13, 1),
        ("bar", 17, 0),
    ]
    assert read.truncated


@pytest.mark.parametrize("special_tokens", [False, True])
@pytest.mark.parametrize("make", [word_pieces, byte_pairs, unigrams])
def test_token_ids_and_offsets_are_those_of_transformers(
    make: Any, special_tokens: bool, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_text(make(), encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = PretrainedTokenizer.read(str(tmp_path), special_tokens=special_tokens)
    sentences = ["a red bar on white", "一个穿红衣服的女人", "Cafés, T-shirts & 🙂!"]
    expected = theirs(sentences, add_special_tokens=special_tokens)["input_ids"]
    read = ours.tokenize(sentences, 99)
    assert [[token_id - 1 for token_id in sentence.token_ids] for sentence in read] == expected
    cut = theirs(sentences, add_special_tokens=special_tokens, truncation=True, max_length=6)["input_ids"]
    read = ours.tokenize(sentences, 6)
    assert [[token_id - 1 for token_id in sentence.token_ids] for sentence in read] == cut
    mapping = theirs(sentences, add_special_tokens=special_tokens, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    for sentence, offsets, found in zip(
        sentences, mapping, ours.tokenize(sentences, 99, words=True), strict=True
    ):
        for word in found.words or ():
            assert all(
                word.start <= offsets[token][0] + 1 and offsets[token][1] <= word.stop
                for token in word.tokens
            )
            assert sentence[word.start : word.stop] == word.text


@every_kind
def test_a_query_is_read_as_it_looks(tokenizer: Tokenizer) -> None:
    plain = "a red coat XL 42"
    hidden = (
        "a r\u200bed co\u00adat XL 42",
        "\ufeff\u200ea red coat ＸＬ\u202c ４２",
        "ａ red\u2060 coat XL 42\u200d",
    )
    for shown in hidden:
        theirs, ours = (tokenizer.tokenize([one], 40, phrases=True, words=True)[0] for one in (shown, plain))
        assert theirs[:3] == ours[:3]
        assert theirs.words is not None
        assert ours.words is not None
        assert [one.text for one in theirs.words] == [one.text for one in ours.words]
        assert [as_it_looks(shown[one.start : one.stop]).strip() for one in theirs.words] == [
            plain[one.start : one.stop] for one in ours.words
        ]
        assert tokenizer.known_words(shown) == tokenizer.known_words(plain)


def test_words_of_several_tokens_and_chinese_ones() -> None:
    pieces = KINDS["word pieces"]
    (read,) = pieces.tokenize(["red squares 红 女人"], 20, words=True)
    assert read.words is not None
    assert [word.text for word in read.words] == ["red", "squares", "红", "女", "人"]
    assert len(read.words[1].tokens) > 1
    assert KINDS["bytes"].unknown_words("zebra 🙂") == []
    assert pieces.unknown_words("zebra 🙂 red 🙂") == ["🙂"]
    assert WordTokenizer.build(CAPTIONS[-1:]).words("红 女人") == ["红", "女人"]


def test_a_tokenizer_that_takes_a_sentence_for_one_word_has_it_cut_at_blanks() -> None:
    content = json.loads(unigrams())
    content["pre_tokenizer"]["split"] = False
    assert PretrainedTokenizer(json.dumps(content)).words("a red  bar") == ["a", "red", "bar"]


def test_words_that_share_a_character_are_one() -> None:
    content = json.loads(word_pieces())
    # "½" is written as "1⁄2", which this pre-tokenizer takes for three words.
    content["normalizer"], content["pre_tokenizer"] = {"type": "NFKC"}, {"type": "Whitespace"}
    (read,) = PretrainedTokenizer(json.dumps(content)).tokenize(["a ½ b"], 9, words=True)
    assert read.words is not None
    assert [(word.text, len(word.tokens)) for word in read.words] == [("a", 1), ("½", 3), ("b", 1)]


def test_phrases_are_those_of_the_words() -> None:
    pytest.importorskip("textblob")
    sentence = "A man in the black squares, with a red bar"
    (read,) = KINDS["word pieces"].tokenize([sentence], 99, phrases=True, words=True)
    whole = WordTokenizer.build([sentence])
    (expected,) = whole.tokenize([sentence], 99, phrases=True, words=True)
    assert read.phrases is not None
    assert expected.phrases is not None
    of_word = {word.start: expected.phrases[word.tokens[0]] for word in expected.words or ()}
    assert max(of_word.values()) == 3
    for word in read.words or ():
        assert {read.phrases[token] for token in word.tokens} == {of_word.get(word.start, 0)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "cannot be read"),
        ({"tokenizer.json": "{}"}, "cannot be read"),
        ({"tokenizer.json": "no JSON"}, "cannot be read"),
    ],
)
def test_a_folder_without_a_tokenizer_is_refused_in_one_line(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match=message) as caught:
        PretrainedTokenizer.read(str(tmp_path))
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match="no such folder"):
        PretrainedTokenizer.read(str(tmp_path / "none"))


def test_code_that_comes_with_a_tokenizer_is_not_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}), encoding="utf-8"
    )
    (tmp_path / "own.py").write_text("raise SystemExit('run')\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="cannot be read"):
        PretrainedTokenizer.read(str(tmp_path))


@pytest.mark.parametrize(
    "description", [{"kind": "bytes"}, {"kind": "pretrained", "tokenizer": {}, "special_tokens": 0}]
)
def test_a_description_of_no_tokenizer_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        tokenizer_from_description(description)


def test_composed_and_decomposed_text_have_the_same_tokens() -> None:
    for sentence in (unicodedata.normalize("NFC", "Größe"), unicodedata.normalize("NFD", "Größe")):
        assert WordTokenizer.build(["größe"]).token_ids(sentence) == [1]
        assert words(sentence) == ["größe"]

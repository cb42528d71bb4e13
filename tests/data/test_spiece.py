"""SigLIP 1's tokenizer against transformers' own, of SentencePiece files that are trained here."""

import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.data import tokenizers
from limner.data.tokenizers import PretrainedTokenizer
from limner.data.words import as_it_looks
from limner.errors import SettingsError
from tests import towers

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

LENGTH = 64
FILES: dict[str, dict[str, Any]] = {
    "as SigLIP's": {},
    "bytes for what has no piece": {"byte_fallback": True, "vocab_size": 500},
    "symbols beside the pieces": {"user_defined_symbols": ["<extra_id_0>", "<extra_id_1>"]},
}
PLAIN = "A woman in a BLUE shirt carries black bag two dogs zebra Tasche größe người mặc 一个 女人 犬 한국어"
ODD = "don't half-open shirt, (left) 3.5 !? _ “so” … ½ ﬁn ＡＢ ΟΔΟΣ Σ Α'Σ İ ẞ e\u0301 \u0301 🙂 नमस्ते ▁ ▁a"
WORDS = (*PLAIN.split(), *ODD.split(), "\x1c", "\x00", "\u200b", "\ufeff")
BLANKS = ("", " ", "  ", "\t", "\n", "\xa0", "\u3000", " \u2009")
sentences = st.lists(st.sampled_from(WORDS) | st.sampled_from(BLANKS) | st.just(" "), max_size=90).map(
    "".join
)
# what Python's and the library's tables of Unicode both know; special tokens in a text are the departure
# and signs that are composed in part, such as ô + `, are another
# (Hypothesis draws texts that it finds in the code it runs, such as "</s>")
any_text = (
    st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=40)
    .map(partial(unicodedata.normalize, "NFC"))
    .filter(lambda text: not any(special in text.lower() for special in ("</s>", "<unk>")))
)


@pytest.fixture(scope="module", params=FILES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("spiece")
    towers.save_spiece(folder, **FILES[request.param])
    ours = PretrainedTokenizer.read(str(folder), special_tokens=True)
    return ours, transformers.SiglipTokenizer.from_pretrained(folder)


def _equal(text: str, both: tuple[Any, Any]) -> None:
    ours, theirs = both
    # theirs reads what nobody sees, too
    looks = as_it_looks(text)
    expected = theirs(looks, padding="max_length", truncation=True, max_length=LENGTH)["input_ids"]
    (read,) = ours.tokenize([text], LENGTH)
    # the tower fills with the tokenizer's own padding, which SigLIP's files say is `</s>`
    padding = [theirs.pad_token_id] * (LENGTH - len(read.token_ids))
    assert [token_id - 1 for token_id in read.token_ids] + padding == expected
    assert read.truncated == (len(theirs.tokenize(looks)) > LENGTH - 1)
    # two unknown signs have one id: their texts say whether they were read alike
    found = ours._fast.encode(looks, add_special_tokens=False).tokens
    assert "".join(found) == "".join(theirs.tokenize(looks))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=sentences, decomposed=st.booleans())
def test_tokens_are_those_of_transformers(text: str, decomposed: bool, both: tuple[Any, Any]) -> None:
    _equal(unicodedata.normalize("NFD", text) if decomposed else text, both)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=any_text)
def test_tokens_of_any_text_are_those_of_transformers(text: str, both: tuple[Any, Any]) -> None:
    _equal(text, both)


def test_special_tokens_in_a_sentence_are_letters(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    (read,) = ours.tokenize(["a </s> bag<unk>"], LENGTH)
    assert [token_id - 1 for token_id in read.token_ids] == theirs("a s bagunk")["input_ids"]


def test_words_are_traced_back(both: tuple[Any, Any]) -> None:
    ours, _ = both
    assert ours.words("A woman, in  BLUE!") == ["A", "woman", "in", "BLUE"]


@pytest.mark.parametrize("trainer", [{"model_type": "bpe"}, {"model_type": "char"}])
def test_other_models_are_refused_in_one_line(trainer: dict[str, Any], tmp_path: Path) -> None:
    towers.save_spiece(tmp_path, **trainer)
    with pytest.raises(SettingsError, match="unigram") as caught:
        PretrainedTokenizer.read(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_file_whose_tokens_would_differ_is_refused(tmp_path: Path) -> None:
    # without a map of characters SentencePiece has two blanks before a sentence that begins with one
    towers.save_spiece(tmp_path, normalization_rule_name="identity")
    with pytest.raises(SettingsError, match="other tokens of ") as caught:
        PretrainedTokenizer.read(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    towers.save_spiece(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"no model")
    with pytest.raises(SettingsError) as caught:
        PretrainedTokenizer.read(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["sentencepiece", "protobuf"])
def test_a_missing_library_is_named_with_its_extra(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    towers.save_spiece(tmp_path)

    def absent(*_: object, **__: object) -> None:
        name = {"sentencepiece": "SentencePiece"}.get(missing, missing)
        # the words of transformers 5
        raise ImportError(f"\nSiglipTokenizer requires the {name} library but it was not found")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", absent)
    with pytest.raises(SettingsError, match=r"limner\[sentencepiece\]") as caught:
        tokenizers.load_fast(str(tmp_path))
    assert "\n" not in str(caught.value)

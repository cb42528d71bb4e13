from collections.abc import Callable
from pathlib import Path

import pytest

from limner.data.tokenizers import WordTokenizer
from limner.models.known import KNOWN
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.languages import _FREQUENT, language_of, languages_of, turning, unread_language
from limner.search.store_info import store_info
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, calibration, draw


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eine Frau mit einer roten Tasche", ("German",)),
        ("une femme avec un sac rouge", ("French",)),
        ("una mujer con un bolso", ("Spanish", "Italian")),
        ("een vrouw met een tas", ("Dutch",)),
        ("uma mulher com um chapéu", ("Portuguese",)),
        ("người phụ nữ mặc áo đỏ", ("Vietnamese",)),
        # with the marks apart, as some keyboards write them
        ("ngu\u031bo\u031b\u0300i ma\u0323\u0306c a\u0301o đo\u0309", ("Vietnamese",)),
        ("穿红色外套的女人", ("Chinese",)),
        ("赤い服の女", ("Japanese",)),
        ("빨간 코트를 입은 여자", ("Korean",)),
        ("женщина в красном", ("Cyrillic script",)),
        ("امرأة ترتدي معطفا", ("Arabic script",)),
        ("a woman in a blue shirt with a black bag", ("English",)),
        ("a man who is in Die Hard", ("English",)),
        # nothing is certain of a few words, of names, and of a brand among other words
        ("red bag", ()),
        ("Mann", ()),
        ("Mann mit Hut", ()),
        ("IMG_1234.jpg", ()),
        ("", ()),
        ("a shirt of 优衣库", ()),
    ],
)
def test_a_language_is_told_where_it_is_certain(text: str, found: tuple[str, ...]) -> None:
    assert language_of(text) == found
    assert unread_language(text, ()) is None
    expected = None if not found or "English" in found else " or ".join(found)
    assert unread_language(text, ("English",)) == expected
    assert not found or unread_language(text, ("English", found[-1])) is None


def test_no_frequent_word_is_english_and_another_language() -> None:
    english = set(_FREQUENT["English"].split())
    assert {name for name, words in _FREQUENT.items() if english & set(words.split())} == {"English"}


def test_a_model_reads_what_its_authors_say_or_its_vocabulary_holds() -> None:
    def languages(source: str | None = None, words: str | None = None) -> tuple[str, ...]:
        encoder = FakeEncoder()
        if source is not None:
            encoder.description = {"data": {"source": source}}  # type: ignore[attr-defined]
        if words is not None:
            encoder.tokenizer = WordTokenizer(words.split())  # type: ignore[attr-defined]
        return languages_of(encoder)

    for known in KNOWN:
        expected = () if "languages" in known.languages else tuple(known.languages.split(", "))
        assert languages(f"hf:{known.name}") == expected
    assert languages() == languages("folder:people") == ()
    assert languages(words="the and with is of a in man woman red coat her his") == ("English",)
    assert languages(words="der das und mit ein eine einer trägt hat mann") == ("German",)
    assert languages(words="红 色 外套") == ("Chinese",)
    assert languages(words="red coat mit und with the") == ()


@pytest.fixture
def engine_of(tmp_path: Path) -> Callable[[FakeEncoder], Engine]:
    def made(encoder: FakeEncoder) -> Engine:
        store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
        index_pictures(encoder, store, [draw(tmp_path / f"{number}.png", number) for number in range(7)])
        return Engine(store, encoder, calibration(threshold=0.01))

    return made


def test_without_a_word_that_turns_the_meaning_nothing_is_called_good(
    engine_of: Callable[[FakeEncoder], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = ["not", "wearing"]
    encoder = FakeEncoder()
    monkeypatch.setattr(
        encoder, "unknown_words", lambda text: [word for word in text.split() if word in unknown]
    )
    engine = engine_of(encoder)
    plain = engine.answer(SearchRequest(text="a woman wearing a red coat", k=3))
    assert (plain.good, plain.turned) == (True, ())
    for rank in (0, 2):
        answer = engine.answer(SearchRequest(text="a woman not wearing a red coat", k=3, offset=rank))
        assert (answer.good, answer.turned, answer.unknown) == (False, ("not",), ("not", "wearing"))
        assert {hit.probability for hit in answer.hits} == {None}
    # a model that knows the word is asked as ever
    unknown.remove("not")
    assert engine.answer(SearchRequest(text="a woman not wearing a red coat", k=3)).good is True


@pytest.mark.parametrize(
    "word", ["not", "No", "WITHOUT", "don't", "nicht", "ohne", "sin", "sans", "không", "不", "без"]
)
def test_words_that_turn_a_meaning(word: str) -> None:
    assert turning(["red", word, "coat"]) == [word]
    assert turning(["note", "now", "ohnegleichen", "red"]) == []


def test_a_text_in_another_language_is_told(engine_of: Callable[[FakeEncoder], Engine]) -> None:
    encoder = FakeEncoder()
    encoder.description = {"data": {"source": "hf:openai/clip-vit-base-patch32"}}  # type: ignore[attr-defined]
    engine = engine_of(encoder)
    assert engine.answer(SearchRequest(text="eine Frau mit einer Tasche")).language == "German"
    assert "language" not in engine.answer(SearchRequest(text="a woman with a bag")).model_dump()
    assert store_info(engine).model.languages == ("English",)

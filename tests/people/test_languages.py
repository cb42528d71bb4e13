"""Sentences in German, Chinese and Vietnamese: they tell what the English ones do, truly and in their own grammar."""

import dataclasses
import functools
import hashlib
import itertools
import json
import unicodedata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limner.data.readers import open_dataset
from limner.data.records import sentence_languages
from limner.errors import DataError, SettingsError
from limner.people import attributes, chinese, generate_people, german, phrases, vietnamese
from limner.people.attributes import Identity
from limner.people.cast import sample_people
from limner.people.generate import _Options
from limner.people.languages import LANGUAGES, chosen_languages, in_language
from limner.people.palette import COLOURS, HAIR_COLOURS
from limner.people.sentences import describe, describe_and_tell
from limner.people.telling import Telling
from tests.people.reader import claims_of, is_true
from tests.people.reader_of_languages import claims_in

MODULES = {"de": german, "zh": chinese, "vi": vietnamese}
others = pytest.mark.parametrize("language", MODULES)
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


@functools.cache
def described(count: int, seed: int) -> list[tuple[dict[str, Any], dict[str, Telling], list[int]]]:
    """(record of a person, English sentences with their content, seed of the other languages)."""
    found = []
    rng = np.random.default_rng(seed)
    details = sorted(
        {field.name for field in dataclasses.fields(Identity)} - {"upper", "upper_colour", "sex"}
    )
    for person in sample_people({"train": count}, seed):
        record = json.loads(json.dumps(person.identity.as_json()))
        there = [name for name in details if record[name] or name == "pattern"]
        seen = {"upper", "upper_colour", "sex", *(name for name in there if rng.random() < 0.85)}
        for name in ("lower", "shoes"):
            seen = seen | {f"{name}_colour"} if name in seen else seen - {f"{name}_colour"}
        walking = bool(rng.random() < 0.5)
        told = describe_and_tell(person, seen, walking, rng, 3)
        found.append(({**record, "walking": walking}, told, [seed, person.number, 0]))
    return found


@others
def test_the_same_details_are_told_as_in_english_and_truly(language: str) -> None:
    for record, told, seed in described(300, 6):
        for (english, telling), sentence in zip(told.items(), in_language(told, language, seed), strict=True):
            wanted, claims = claims_of(english), claims_in(language, sentence)
            assert {name for name, _ in claims} == {name for name, _ in wanted}, (english, sentence, telling)
            for claim in claims:
                assert is_true(claim, record, record["walking"]), (claim, sentence)


@others
def test_sentences_are_varied_and_well_formed(language: str) -> None:
    sentences = []
    for _, told, seed in described(200, 3):
        found = in_language(told, language, seed)
        assert len(set(found)) == len(found) == 3
        sentences += found
    for sentence in sentences:
        assert unicodedata.is_normalized("NFC", sentence)
        assert "  " not in sentence
        assert not set("~{}|/") & set(sentence), sentence
        assert sentence.endswith("。" if language == "zh" else ".")
        if language == "zh":
            assert not any(character.isspace() for character in sentence)
            assert "的的" not in sentence
            assert sentence.isascii() is False
        else:
            assert sentence[0].isupper()
    english = [sentence for _, told, _ in described(200, 3) for sentence in told]
    assert len(set(sentences)) > 0.95 * len(set(english))


def wordings(module: ModuleType) -> dict[str, dict[str, set[str]]]:
    """Table → value → its words."""

    def words_of(entry: str | tuple[str, ...]) -> set[str]:
        return {entry} if isinstance(entry, str) else {one.partition("/")[0] for one in entry}

    return {
        table: {value: words_of(entry) for value, entry in getattr(module, table).items()}
        for table in ("NAMES", "COLOURS", "HAIR_COLOURS", "HAIR", "PATTERNS")
    }


@every_module
def test_every_value_of_every_attribute_has_its_own_words(module: ModuleType) -> None:
    found = wordings(module)
    kinds = {
        *itertools.chain(*attributes.UPPERS.values(), *attributes.LOWERS.values()),
        *(*attributes.SHOES, *attributes.BAGS, *attributes.CARRIED, *attributes.WORN, *attributes.HEADWEAR),
    }
    assert set(found["NAMES"]) == kinds == set(phrases.NAMES)
    assert list(found["COLOURS"]) == list(COLOURS)
    assert list(found["HAIR_COLOURS"]) == list(HAIR_COLOURS)
    assert set(found["HAIR"]) == {*itertools.chain(*attributes.HAIR_STYLES.values())}
    assert set(found["PATTERNS"]) == set(attributes.PATTERNS)
    for table in found.values():
        assert all(words and all(words) for words in table.values())
        for one, other in itertools.combinations(table, 2):
            assert not table[one] & table[other], (one, other)


@others
def test_wordings_vary_as_the_english_ones_do(language: str) -> None:
    module = MODULES[language]
    several = {kind for kind, words in phrases.NAMES.items() if len(set(words)) > 1}
    varied = {kind for kind, words in module.NAMES.items() if len(set(words)) > 1}
    assert len(varied) >= len(several) - 4


def test_german_cases() -> None:
    def said(entry: str) -> list[str]:
        phrase = german.Phrase.of(entry).described("rot~")
        return [
            *(phrase.in_case(case) for case in ("nominative", "accusative", "dative")),
            phrase.in_case("nominative", article=False),
        ]

    assert said("lang~ Mantel/m") == [
        "ein langer roter Mantel",
        "einen langen roten Mantel",
        "einem langen roten Mantel",
        "langer roter Mantel",
    ]
    assert said("Jacke/f") == ["eine rote Jacke", "eine rote Jacke", "einer roten Jacke", "rote Jacke"]
    assert said("Hemd/n") == ["ein rotes Hemd", "ein rotes Hemd", "einem roten Hemd", "rotes Hemd"]
    assert said("Schuhe/pn") == ["rote Schuhe", "rote Schuhe", "roten Schuhen", "rote Schuhe"]
    assert said("Sandalen/p") == ["rote Sandalen", "rote Sandalen", "roten Sandalen", "rote Sandalen"]


def test_the_readers_see_wrong_grammar_and_wrong_details() -> None:
    assert claims_in(
        "de", "Ein Mann mit kurzen schwarzen Haaren trägt einen roten Mantel und weiße Schuhe."
    ) == {
        ("sex", "man"),
        ("hair", "short"),
        ("hair_colour", "black"),
        ("upper", "coat"),
        ("upper_colour", "red"),
        ("shoes", "shoes"),
        ("shoes_colour", "white"),
    }
    for wrong in (
        "einem rotem Mantel",
        "einen rote Jacke",
        "einen rotes Hemd",
        "weiße Schuhen",
        "weißen Schuhe",
    ):
        with pytest.raises(ValueError, match="does not agree"):
            claims_in("de", f"Ein Mann trägt {wrong}.")
    with pytest.raises(ValueError, match="blanks"):
        claims_in("zh", "一个 男人。")
    assert claims_in("zh", "一个男人穿着一件带白色条纹的红色T恤，撑着一把撑开的蓝色雨伞。") == {
        ("sex", "man"),
        ("upper", "t-shirt"),
        ("upper_colour", "red"),
        ("pattern", ("stripes", "white")),
        ("carried", ("umbrella", "blue")),
    }
    assert claims_in(
        "vi", "Một người phụ nữ mặc một chiếc chân váy dài màu đỏ và đi một đôi giày thể thao trắng."
    ) == {
        ("sex", "woman"),
        ("lower", "long skirt"),
        ("lower_colour", "red"),
        ("shoes", "sneakers"),
        ("shoes_colour", "white"),
    }


def test_names_of_languages() -> None:
    assert chosen_languages(["vi,de", "en", "DE"]) == ("en", "de", "vi")
    assert chosen_languages(LANGUAGES) == ("en", "de", "zh", "vi")
    with pytest.raises(SettingsError, match=r"unknown name 'fr'; known: en, de, zh, vi"):
        chosen_languages(["de, fr"])
    with pytest.raises(SettingsError, match="at least one"):
        chosen_languages([])


def pixels(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted((folder / "imgs").rglob("*.jpg")):
        with Image.open(path) as image:
            digest.update(str(path.relative_to(folder)).encode() + np.asarray(image).tobytes())
    return digest.hexdigest()


def test_a_set_in_several_languages(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 3, "val": 1, "test": 1, "views": (1, 2), "size": (64, 32)}
    generate_people(tmp_path / "en", 4, **options)
    generate_people(tmp_path / "all", 4, **options, languages=("zh", "de", "vi", "en"))
    generate_people(tmp_path / "de", 4, **options, languages=["de"])
    assert pixels(tmp_path / "en") == pixels(tmp_path / "all") == pixels(tmp_path / "de")
    sets = {name: open_dataset(f"cuhk-pedes:{tmp_path / name}") for name in ("en", "all", "de")}
    assert sentence_languages(sets["en"]) == ()
    assert "languages" not in (tmp_path / "en" / "people.json").read_text()
    for whole, english, german_ in zip(*(sets[name].records for name in ("all", "en", "de")), strict=True):
        by_language = {
            language: [
                text for text, said in zip(whole.sentences, whole.languages, strict=True) if said == language
            ]
            for language in LANGUAGES
        }
        assert list(dict.fromkeys(whole.languages)) == list(LANGUAGES)
        assert by_language["en"] == list(english.sentences)
        assert by_language["de"] == list(german_.sentences)
        assert {len(texts) for texts in by_language.values()} == {len(english.sentences)}
        assert german_.languages == ("de",) * len(german_.sentences)
        assert whole.labels == english.labels
    for record in json.loads((tmp_path / "all" / "reid_raw.json").read_text(encoding="utf-8")):
        assert len(record["captions"]) == len(record["languages"]) == len(record["processed_tokens"])
        assert all(record["processed_tokens"])
    assert generate_people(tmp_path / "de", 4, **options, languages=["de"]).drawn == 0
    with pytest.raises(DataError, match=r"languages \['de'\] there, \['en'\] asked for"):
        generate_people(tmp_path / "de", 4, **options)
    with pytest.raises(DataError, match=r"languages \['en'\] there, \['en', 'vi'\] asked for"):
        generate_people(tmp_path / "en", 4, **options, languages=["en", "vi"])


def test_options_of_english_alone_are_as_they_were() -> None:
    english = _Options(4, 0, 1, 1, (1, 2), (64, 32))
    assert "languages" not in english.as_json()
    assert dataclasses.replace(english, languages=("de",)).as_json()["languages"] == ["de"]


def test_describe_gives_the_english_sentences() -> None:
    (person,) = sample_people({"train": 1}, 0)
    everything = {field.name for field in dataclasses.fields(Identity)}
    told = describe_and_tell(person, everything, True, np.random.default_rng(1), 3)
    assert describe(person, everything, True, np.random.default_rng(1), 3) == list(told)

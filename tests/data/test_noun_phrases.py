import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data import noun_phrases as module
from limner.data.noun_phrases import noun_phrases, phrase_numbers
from limner.data.words import words
from limner.errors import SettingsError

LABELLED = """
[A tall man] in [a light-grey hooded sweater] is wearing [black pants], [a brown belt] and [black and white shoes].
[The girl] has [long, wavy hair] tied up in [a bun] and carries [a knee-length green coat] over [her left arm].
[A pair of round glasses], [a navy blue baseball cap] and [two silver rings].
[The old woman's white handbag] hangs from [her right shoulder]; [her other hand] holds [a stick].
She's wearing [black pants], he doesn't wear [any shoes].
Dressed in [white], [a chef] walks by [the open window].
[The guard] wears [a button-up shirt], [a black tank top] and [grey running shoes], and [his back] is turned.
[A lady] with [dyed purple hair] holds [number 12] in [the back] of [the crowd].
[A woman] in [light brown] and [a boy] in [red and blue].
[This bird] is small, brown and has [a short, pointed beak].
[The bird's crown] is black and white, with [a bright yellow patch] on [its back].
[A medium sized bird] with [webbed, orange feet] and [cream colored wings].
[White belly], [grey back] & [black/white striped tail].
[Two very small birds] have [slightly curved bills] and [dark eyes].
[These flowers] are pink in [the middle], and [the petals] have [ragged edges].
[The flower] has [five large, overlapping purple petals] with [yellow stamens] on top.
[Pale, star-shaped flowers] grow on [a thorny green stem].
[Brown leaves] cover [a narrow path] between [the snow covered trees].
[A group of tourists] waits in front of [an old stone church].
[A large herd of goats] and [a black and white sheepdog] stand on [the road].
[Two kids] race down [a steep hill] on [wooden sleds].
[A young woman] browses through [old books] while [a waiter] watches.
[A rider] jumps over [a ditch], another waits and leads [her horse].
[A running child] throws [a red ball] to [the smiling baby].
[A man] running after [a bus] drops [his wallet].
[A girl] in [pink] smiles at [the flying kite].
[The angler] wants to kiss [the big fish] with [closed eyes].
[A painting] of [a blue house] hangs above [the indoor swimming pool].
[A teddy bear] and [a hockey stick] lie near [the sink].
There are [red and green apples] in [a bowl] next to [the oven].
[3 men], [2 dogs] and nobody else at [the beach]...
It is very cold, dark and wet.
Someone who looks at them, then at you.
(( ?! — ... ☺ ))
""".strip().splitlines()
"""Our own sentences; each phrase in brackets."""

AWKWARD = """
["Exit" sign] over [the *red* door]
[a wmoan] with [a grene bag],[blue trousers] ,and [a  hat]
[A MAN] IN [A BLACK T-SHIRT]!!! [NICE HAT] :)
[the man 's shoes]
[a long -sleeved top] - [a skirt] -- [a bag]
[the bird’s long, white beak] and [1,000 feathers]
[Größe 42], [weiße Ärmel]
[a cafe\u0301] \U0001f600 [a dog]
""".strip().splitlines()


def labelled(line: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    return re.sub(r"[\[\]]", "", line), tuple(
        (len(words(line[: found.start()])), len(words(line[: found.end()])))
        for found in re.finditer(r"\[[^]]*\]", line)
    )


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    """The import takes longer than Hypothesis allows an example."""
    noun_phrases("a man é")


@pytest.mark.parametrize("line", LABELLED + AWKWARD)
def test_phrases_of_labelled_sentences(line: str) -> None:
    sentence, spans = labelled(line)
    assert noun_phrases(sentence) == spans


@pytest.mark.parametrize("sentence", ["", " ", "...", "'", "-", "\u0301", "\U0001f600 \U0001f600", "\n\n"])
def test_where_there_is_no_word_there_is_no_phrase(sentence: str) -> None:
    assert noun_phrases(sentence) == ()
    assert phrase_numbers(sentence, []) == []


def test_hyphens_and_apostrophes_do_not_shift_the_count() -> None:
    sentence = "A T-shirt that doesn't fit the man's well-known short-sleeved style"
    assert [words(sentence)[start:stop] for start, stop in noun_phrases(sentence)] == [
        ["a", "t", "shirt"],
        ["the", "man", "s", "well", "known", "short", "sleeved", "style"],
    ]


WORDS = sorted({word for line in LABELLED for word in words(line)})
SENTENCES = st.one_of(
    st.text(max_size=40),
    st.text(st.sampled_from("aAsSkt1é\u0301ß -'’,./&_!\t\n\u200d\U0001f600"), max_size=40),
    st.lists(st.sampled_from([*WORDS, ",", ".", "&", "-", "'s"]), max_size=25).map(" ".join),
)


@given(SENTENCES)
def test_spans_ascend_within_the_sentence(sentence: str) -> None:
    ends = [0, *(end for span in noun_phrases(sentence) for end in span), len(words(sentence))]
    assert ends == sorted(ends)
    assert all(start < stop for start, stop in noun_phrases(sentence))


@given(SENTENCES, st.data())
def test_numbers_agree_with_spans(sentence: str, data: st.DataObject) -> None:
    count = len(words(sentence))
    kept = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    numbers = phrase_numbers(sentence, kept)
    assert len(numbers) == sum(kept)
    groups = [sum(kept[start:stop]) for start, stop in noun_phrases(sentence)]
    expected = [size for size in groups if size]
    assert [numbers.count(number) for number in range(1, len(expected) + 1)] == expected
    inside = [number for number in numbers if number]
    assert inside == sorted(inside)
    owners = [any(start <= word < stop for start, stop in noun_phrases(sentence)) for word in range(count)]
    assert [number > 0 for number in numbers] == [
        owner for owner, keep in zip(owners, kept, strict=True) if keep
    ]


def test_a_phrase_without_a_kept_word_has_no_number() -> None:
    sentence = "a man in a red hat on the street"
    assert phrase_numbers(sentence, [True] * 9) == [1, 1, 0, 2, 2, 2, 0, 3, 3]
    kept = [True, True, True, False, False, False, True, False, True]
    assert phrase_numbers(sentence, kept) == [1, 1, 0, 0, 2]
    with pytest.raises(ValueError, match="9 entries in kept"):
        phrase_numbers(sentence, [True])


def test_long_texts_are_not_given_up() -> None:
    for unit in ("very red ", "group of ", "t-shirt's ", "left, "):
        noun_phrases(unit * 2000)
    assert len(noun_phrases("a man runs. " * 2000)) == 2000


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a new process, before and after."""
    caches = (module.noun_phrases, module._letter, module._tagger, module._chunker)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_threads_may_begin_at_once() -> None:
    sentences = [labelled(line)[0] for line in LABELLED]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(noun_phrases, sentences))
    assert found == [labelled(line)[1] for line in LABELLED]


@pytest.mark.usefixtures("fresh")
def test_without_textblob_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textblob.en", None)
    with pytest.raises(SettingsError, match=r"limner\[hgan\]"):
        noun_phrases("a zebra")

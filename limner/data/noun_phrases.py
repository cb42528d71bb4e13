"""The noun phrases of a description as spans of its words: "his short black hair" (HGAN MM 2020, section 3.2).

The paper has NLTK find them. So do we, with a grammar for captions, over the tags of TextBlob's tagger, which
brings its dictionary along; NLTK's own is a download. That tagger looks up each word by itself, so we add what only
the neighbours tell: "a pointed beak" against "he pointed", "brown leaves" against "she leaves".

**Decided**: a phrase is what describes one thing. Its articles, possessives and numbers belong to it ("his two black
dogs", "the man's hat"), and so do "a pair of", "a group of" and the like. Adjectives joined by commas, "and" or "/"
make one phrase ("black and white shoes"), nouns so joined make two. A colour that stands for clothes or a part is one
("a woman in red"). A pronoun is none, nor is what only follows "is" ("the shoes are white"). The language is
English; a word that the tagger does not know counts as a noun.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from threading import Lock
from typing import NamedTuple

from limner.data.words import fold, words
from limner.errors import SettingsError, install_hint

_OF_TAG = {
    tag: letter
    for letter, tags in {
        "d": "DT PDT PRP$ WP$ CD",  # what a phrase begins with
        "a": "JJ JJR JJS RBR",
        "n": "NN NNP FW",
        "N": "NNS NNPS",
        "v": "VB VBP",
        "V": "VBZ",
        "e": "VBD VBN",  # past and participle, in -ed
        "g": "VBG",  # in -ing
        "r": "RB RBS RP",
        "p": "IN",
        "c": "CC",
        "w": "PRP WP WDT",
    }.items()
    for tag in tags.split()
}
"""The letter of a word's class by its Penn Treebank tag; a capital for plural nouns and verbs in -s. Others are "x"."""

_OF_WORD = {
    word: letter
    for letter, listed in {
        "i": "a an this every another one either",  # as d, of one thing
        "D": "both many several few these those two three four five six seven eight nine ten",  # as d, of many
        # Colours.
        "k": "black white grey gray red blue green yellow orange brown pink purple tan beige silver gold golden "
        "maroon teal turquoise violet khaki burgundy blonde blond brunette",
        # Adjectives before an adjective or noun, else nouns.
        "h": "left right male female teen adult asian light navy sky baby lime rust olive cream charcoal mint "
        "jet neon giant",
        "a": "round medium blunt fast bathing living dining parking",
        "n": "bear sink monitor stick building clothing string ring wing thing spring evening ceiling wedding railing "
        "painting earring eyering clearing awning coloring colouring setting marking lettering lighting "
        "pedestrian covert sled",
        "N": "bears sinks tracks leaves",
        # Participles that are joined to the noun before: "cream colored".
        "f": "colored coloured shaped sized sleeved haired striped patterned nosed looking covered filled lined",
        # Nouns that are verbs after a plural ("two men race"), and plurals that are verbs after a singular.
        "u": "jump kick swing race fight smile chase drink dance splash slide surf ski use leap hug touch line hike "
        "blow dive lift set",
        "U": "jumps rides leaps watches chases smiles swings curves slides hits skis skateboards talks races surfs "
        "dances points hooks blows drinks bites rolls chews stares dribbles balances drives paddles dives kisses "
        "wades touches grabs bends hugs trots pounces",
        # "a pair of" is part of the phrase that follows.
        "m": "pair couple lot group bunch number variety herd flock crowd kind type",
        "M": "pairs lots groups",
        "O": "of",
        "E": "each",
        "z": "other",
        "t": "wear wears wearing wore carry carries carrying hold holds holding using having",  # have an object
        "o": "has have had",
        "b": "is are was were be been being",
        "q": "very quite rather somewhat almost really too so extra all most more less pretty",  # degree
        "r": "only indoors next downwards upwards backwards",
        "p": "past",
        "P": "by for from after before about without at",  # may govern a verb in -ing
        "T": "to",
        "y": "there",
        "w": "that someone somebody something everyone everybody everything anyone anything nobody nothing others",
        "x": "do does did while whilst as if",
        "B": "back",
        "F": "front top",
    }.items()
    for word in listed.split()
}
"""Words whose tag is wrong or too coarse for captions."""

_IN_CONTEXT = [
    (re.compile(pattern), letter)
    for pattern, letter in [
        # "a group of"; not "a group on"
        (r"[mM](?=O)|(?<=[mM])O", "m"),
        (r"(?<!m)m(?!m)", "n"),
        (r"M", "N"),
        (r"O", "p"),
        # "each other" is a pronoun
        (r"Ez", "x"),
        (r"E", "D"),
        (r"z", "a"),
        # "the shoes are white and", "is dinner."; not "there are white and"
        (r"(?<!y)b[rqx]*([akefh]+)(?=[,c])", "x"),
        (r"(?<!y)b[rqx]*([nhg])(?=[.,cpPx])", "x"),
        # "snow covered trees"; not "trees covered in"
        (r"[nhv](?=f[qakefhnNBu])", "a"),
        (r"f(?=[qakefhnNBu])", "a"),
        (r"f", "e"),
        # "dressed in black, white shoes"
        (r"ep[qak]*k(,)", "."),
        # "she's", "the man's wearing"; not "the man's hat"
        (r"(?<=[wy])s|s(?=[gtipPbrq.]|e[pPT])", "b"),
        # "a young woman browses", "the player dribbles the", "who browses in", "a girl in pink smiles"
        (r"i(?:[qakhr]|[,c](?=[ak]))*[nh]+([NU])(?![nN])", "x"),
        (r"(?<=n)N(?=[diD])|(?<=w)N(?=[prdiDT])", "x"),
        (r"[pt]k(?:[,c]+k)*([VU])", "x"),
        # "one rides", "man jumps", "and jumps"; but "brown leaves", "doing flips"
        (r"(?<=[iwnTx])V|(?<=[iwxnNc])U", "x"),
        (r"(?<=[dDakfhsptog])V|U", "N"),
        (r"V", "x"),
        # "two play", "to walk", "to kiss a"; but "a walk", "wearing flip flops"
        (r"(?<=[DwNTx])[vu]|(?<=N[qr])u|(?<=T)n(?=[diD])", "x"),
        (r"u", "n"),
        (r"(?<=[diakhfspto])v|(?<=n)v(?![diDprT])", "n"),
        (r"v", "x"),
        # "its back", "head and back"; not "walks back"
        (r"(?<=[diDaksp])B|(?<=[c,])B(?![diDpr])|(?<=n)B(?=n)", "n"),
        (r"B", "r"),
        # "on top of", "in front"; but "a tank top"
        (r"(?<=p)F", "x"),
        (r"F", "h"),
        # "a pointed beak", "webbed, orange feet"; not "a man dressed in"
        (r"(?<![nNwb])e(?=(?:(?:,c?|c)?[akefhq])*[nNhg])", "a"),
        (r"(?<=[di])e(?![pP])", "a"),
        # "a running dog", "with flowing hair", "small, smiling boys"; "a painting of"; not "a man running"
        (r"(?<=[dia])g(?=[akefhnN])|(?<![pt]k)(?<=k)g(?=[nNh])|(?<=[pst])g(?=[nNh])|(?<=D)g(?=N)", "a"),
        (r"(?<=a,)g(?=[akefh]*[nN])", "a"),
        (r"(?<=[di])g(?![dDi0ak])", "n"),
        # "very long", "its downhill road"
        (r"q(?![akq])", "r"),
        (r"(?<=[diDak])r(?=[nN])", "a"),
        # "number 12"; but "12 dogs"
        (r"(?<=n)0(?![akqnN])", "n"),
        (r"0", "d"),
        (r"h(?=[akhnN])", "a"),
        (r"h", "n"),
    ]
]
"""Corrections by neighbours, in this order: the match, or its group if it has one, gets the new letter."""

_ADJECTIVES = "<q|a|k>+((<,><c>?|<c>)<q|a|k>+)*"
_NOUNS = f"<d|i|D>*({_ADJECTIVES})?<n|N>+"
_GRAMMAR = rf"""
NP: {{(<d|i|D>*({_ADJECTIVES})?<m>+)?{_NOUNS}(<s>{_NOUNS})*}}
    {{<d|i|D>+{_ADJECTIVES}}}
    <p|t>{{<q|a>*<k>+((<,><c>?|<c>)<q|a|k>*<k>)*}}
"""
"""After `_IN_CONTEXT`: "a group of tall men", "the man's hat"; "the tall and the short"; "dressed in light blue"."""

_HYPHENS = frozenset("-‐‑–_")
_APOSTROPHES = frozenset("'’`")
_QUOTES = str.maketrans("", "", "'\"’‘“”`*")
_LOADING = Lock()

_AT_ONCE = 256
"""Words and commas looked at together: the chunker's time grows with their square, and NLTK gives up after 5 s."""


class _Token(NamedTuple):
    """Words `start` to `stop` − 1, taken as one, or a separator (no word), with the letter of its class."""

    start: int
    stop: int
    letter: str


def phrase_numbers(sentence: str, kept: Sequence[bool]) -> list[int]:
    """For each kept word the number of its phrase, counted from 1 among phrases that keep a word; 0 outside of any.

    `kept` says for each of `words(sentence)` whether it stays (a vocabulary drops unknown words).

    >>> phrase_numbers("A man in the black hat", [False, False, True, False, True, True])
    [0, 1, 1]
    """
    if len(kept) != (count := len(words(sentence))):
        raise ValueError(f"expected {count} entries in kept, one a word of the sentence, got {len(kept)}")
    numbers = [0] * count
    found = 0
    for span in noun_phrases(sentence):
        inside = [word for word in range(*span) if kept[word]]
        found += bool(inside)
        for word in inside:
            numbers[word] = found
    return [number for number, keep in zip(numbers, kept, strict=True) if keep]


@lru_cache(maxsize=2**17)
def noun_phrases(sentence: str) -> tuple[tuple[int, int], ...]:
    """Each noun phrase's first word and the word behind its last, counted in `words(sentence)`; ascending, disjoint.

    Those of the last 131,072 sentences are kept, 0.4 kB each. The first call imports TextBlob, which takes about
    3 s; then 4,000 to 6,000 sentences a second. Raises `SettingsError` when it is not installed.

    >>> noun_phrases("She wears light-grey trousers, and red and white shoes.")
    ((2, 5), (6, 10))
    """
    tokens = _tokens(sentence)
    spans: list[tuple[int, int]] = []
    for begin in range(0, len(tokens), _AT_ONCE):
        part = tokens[begin : begin + _AT_ONCE]
        letters = "".join(token.letter for token in part).join("..")
        for pattern, letter in _IN_CONTEXT:
            letters = pattern.sub(partial(_relabelled, letter=letter), letters)
        spans += [(part[first].start, part[last].stop) for first, last in _chunker()(letters[1:-1])]
    return tuple(spans)


def _relabelled(match: re.Match[str], *, letter: str) -> str:
    start, stop = match.span(match.re.groups)
    return f"{match.string[match.start() : start]}{letter * (stop - start)}{match.string[stop : match.end()]}"


def _tokens(sentence: str) -> list[_Token]:
    tokens: list[_Token] = []
    before = ""
    for number, (gap, word) in enumerate(_words_with_gaps(sentence)):
        letter = _letter(word)
        if number and (joined := _joined(before, gap, word, letter)):
            tokens[-1] = _Token(tokens[-1].start, number + 1, joined)
        else:
            if separator := _separator(gap):
                tokens.append(_Token(number, number, separator))
            if gap.strip() in _APOSTROPHES and word == "s":
                letter = "s"
            tokens.append(_Token(number, number + 1, letter))
        before = word
    return tokens


def _words_with_gaps(sentence: str) -> Iterator[tuple[str, str]]:
    """Each word behind the text between it and the word before."""
    text = fold(sentence)
    end = 0
    for word in words(sentence):
        # A gap holds no letter or digit, with which each word begins: the first place is the right one.
        start = text.index(word, end)
        yield text[end:start], word
        end = start + len(word)


def _joined(before: str, gap: str, word: str, letter: str) -> str:
    """The class of the word before and this as one ("t-shirt", "don't", "10.30"), or "" when they are two."""
    if gap in _HYPHENS:
        return "a" if letter in "akefg" else "h"
    if gap in _APOSTROPHES and word in ("t", "re", "ve", "ll", "d", "m"):
        return "x"
    return "0" if gap in (".", ",", ":") and before.isdigit() and word.isdigit() else ""


def _separator(gap: str) -> str:
    bare = "".join(gap.translate(_QUOTES).split())
    if not bare or gap in ("- ", " -"):
        return ""
    if set(bare) == {","}:
        return ","
    return "c" if bare in ("&", "/", "+") else "."


@lru_cache(maxsize=2**16)
def _letter(word: str) -> str:
    if word in _OF_WORD:
        return _OF_WORD[word]
    if word.isdigit():
        return "0"
    letter = _OF_TAG.get(_tagger()(word), "x")
    if letter == "n" and word.endswith("ing"):
        return "g"
    return "q" if letter == "r" and word.endswith("ly") else letter


@cache
def _tagger() -> Callable[[str], str]:
    """TextBlob's tag for a word."""
    # Two threads at once would read half a dictionary.
    with _LOADING, warnings.catch_warnings():
        # Its dictionary's file is closed by the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            from textblob.en import tag
        except ImportError:
            raise SettingsError(f"noun phrases need TextBlob: {install_hint('hgan')}") from None
        tag("a", tokenize=False)
    return lambda word: str(tag(word, tokenize=False)[0][1])


@cache
def _chunker() -> Callable[[str], list[tuple[int, int]]]:
    """NLTK's chunker with our grammar: the first and the last letter of each phrase."""
    from nltk import RegexpParser

    parser = RegexpParser(_GRAMMAR)

    def chunks(letters: str) -> list[tuple[int, int]]:
        tree = parser.parse(list(enumerate(letters)))
        return [(part[0][0], part[-1][0]) for part in tree if not isinstance(part, tuple)]

    return chunks

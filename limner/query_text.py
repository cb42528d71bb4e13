"""Descriptions as people type them: what is wanted, what is not, and what counts more.

    a beach without people       "people" is taken away
    a beach -people -"a dog"     the same, of a word or of words in quotes
    2*red car                    "red" counts twice
    a van "red cross"            words in quotes must occur, where words are searched (`limner.search.words`)

The embedding of a whole sentence hardly knows what "without" takes away: on Flickr8k some 60 % of the first ten
pictures had what was not wanted, and 15 % where it is taken from the vector (docs/log/2026-11-29.md). The rule:
`limner.search.query_vectors.weighed`.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from pydantic import ConfigDict

from limner.documented import Documented

WordField = Literal["name", "folder", "identity", "fact", "sentence"]
"""Where a word of a picture stands: in the name of its file or folder, in what was told of it, or in a sentence."""


class QueryTerm(Documented):
    """Words that a description takes away or weighs, beside the rest of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    """Its words."""

    weight: float
    """Share of their embedding that is added to that of the rest; below 0 it is taken away."""

    start: int
    """Where it stands in the text: its first letter, from 0."""

    end: int
    """The letter behind its last."""


_MOST = 8
"""Terms of a text at most; what follows is read as words."""

MINUS = -0.5
"""Weight of what is not wanted, beside the rest of the description at 1.

Between 0.4 and 0.6, which half of the queries of Flickr8k's validation chose for two models.
"""

_WORDS = r"\"[^\"]+\"|“[^”]+”|[^\W\d_][\w'’-]*"
# behind a blank, since "t-shirt" takes nothing away
_SIGN = re.compile(rf"(?<!\S)(?:[-−](?P<minus>{_WORDS})|(?P<weight>\d(?:\.\d+)?)\*(?P<weighed>{_WORDS}))")
_ENDS = (
    "in on at with near by beside behind under over from against next into wearing holding carrying riding but who "
    "that which while is are"
)
_END = rf"\s*[,;.]|\s+(?:and\s+)?(?:{_ENDS.replace(' ', '|')})\b|\s+{_SIGN.pattern}|\s*$"
_WITHOUT = re.compile(rf"\b(?:without|with no|but no)\s+(?P<words>\S.*?)(?={_END})", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
_OR = re.compile(r"\s+(?:or|nor|and)\s+")


class QueryText(NamedTuple):
    """A description that was read: what is left of it, its terms in their order, and what stands in quotes."""

    wanted: str
    terms: tuple[QueryTerm, ...] = ()
    quoted: tuple[str, ...] = ()


@lru_cache(1024)
def read_query(text: str) -> QueryText:
    """Read a description.

    >>> read_query("a woman without a hat or bag in a red coat").wanted
    'a woman in a red coat'
    >>> [(term.text, term.weight) for term in read_query("a beach -people 2*sunset").terms]
    [('people', -0.5), ('sunset', 1.0)]
    """
    terms: list[QueryTerm] = []
    wanted = text
    for found in _WITHOUT.finditer(text):
        parts = [one.strip() for one in _OR.split(found["words"]) if one.strip()]
        if len(terms) + len(parts) > _MOST:
            break
        span = {"start": found.start(), "end": found.end()}
        terms += [QueryTerm(text=one, weight=MINUS, **span) for one in parts]
        wanted = _replaced(wanted, found.start(), found.end(), "")
    for found in _SIGN.finditer(wanted):
        minus = found["minus"] is not None
        words = (found["minus"] or found["weighed"]).strip('"“”').strip()
        if not words or len(terms) == _MOST:
            continue
        # the sentence holds a weighed word once already
        weight = MINUS if minus else float(found["weight"]) - 1
        terms.append(QueryTerm(text=words, weight=weight, start=found.start(), end=found.end()))
        wanted = _replaced(wanted, found.start(), found.end(), "" if minus else words)
    quoted = [found[1] or found[2] for found in _QUOTED.finditer(wanted)]
    if not terms and not quoted:
        return QueryText(text)
    wanted = re.sub(r"\s+(?=[,;.]|$)|^\s+|(?<=\s)\s+", "", _QUOTED.sub(r"\1\2", wanted))
    return QueryText(wanted, tuple(sorted(terms, key=lambda term: term.start)), tuple(quoted))


def _replaced(text: str, start: int, end: int, by: str) -> str:
    # as long as before, so that later places are those of the text
    return text[:start] + by.ljust(end - start) + text[end:]

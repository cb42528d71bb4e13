"""The licence of published weights, from the terms of everything that they have learnt from.

The terms are those of `limner.data.terms`, which a run keeps. Weights are under an open licence only where every set
and every file of weights behind them states one; "unknown" is no permission, and neither is "research".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from limner.data.terms import OWN, TERMS, WEIGHTS, TermsOfUse
from limner.errors import SettingsError
from limner.inference.seen_before import terms_of
from limner.models.known import KNOWN

OPEN = {
    "Apache-2.0": "apache-2.0",
    "MIT": "mit",
    "BSD-3-Clause": "bsd-3-clause",
    "CC BY 4.0": "cc-by-4.0",
    "CC0-1.0": "cc0-1.0",
}
"""Licences that let weights be passed on, and what the hub calls them."""

OTHER = "other"
"""The hub's name of any licence that it does not list."""

_STATED = re.compile("|".join(f"({re.escape(name)})(?=$|[,;])" for name in OPEN))
_HUB_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}")


@dataclass(frozen=True)
class Licence:
    """Under what the weights are published.

    - `licence`: the hub's name of it, "other" where no open licence covers everything behind the weights.
    - `terms`: of the sets and weights that they have learnt from.
    - `restricted`: those among them that state no open licence.
    """

    licence: str
    terms: tuple[TermsOfUse, ...]
    restricted: tuple[TermsOfUse, ...]


def licence_of(description: Mapping[str, Any], stated: str | None = None) -> Licence:
    """The licence of a checkpoint's weights; `stated` is what its owner says, where it is the owner's to say.

    That is so for one's own pictures, whose folder states nothing. What is of others and restricted stays "other".
    """
    terms = terms_of(description)
    own = {TERMS[name].name for name in OWN} if stated is not None else set()
    restricted = tuple(one for one in terms if hub_licence(one) is None and one.name not in own)
    found = {hub_licence(one) for one in terms}
    if restricted or not found:
        return Licence(OTHER, terms, restricted)
    if stated is not None:
        return Licence(stated, terms, ())
    # of several open ones none is the other: the card lists them
    return Licence(str(*found) if len(found) == 1 else OTHER, terms, ())


def hub_licence(terms: TermsOfUse) -> str | None:
    """The hub's name of an open licence that these terms state, for all of it; None otherwise.

    >>> hub_licence(TERMS["people"]), hub_licence(TERMS["cirr"]), hub_licence(TERMS["flickr8k"])
    ('apache-2.0', None, None)
    """
    # the terms of the others hold as well, and nothing here says what they are
    if terms.composed_of or terms.withdrawn == "yes":
        return None
    found = _STATED.match(terms.licence)
    return None if found is None else OPEN[found[0]]


def state_terms(description: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """A description with the terms that its owner states, by the names that `run.json` has, of what limner knows not.

    Raises `SettingsError` for a name that the run has not, for one whose terms limner knows, and for what are no terms.
    """
    terms = list(description.get("terms") or ())
    names = [str(one.get("name")) for one in terms]
    tables = {one.name for table in (TERMS, WEIGHTS) for one in table.values()} - {
        TERMS[name].name for name in OWN
    }
    for name, values in stated.items():
        if name not in names:
            raise SettingsError(
                f"--terms: the run has learnt from no {str(name)[:80]!r}; there are: {', '.join(names)}"
            )
        if name in tables or any(name == model.name for model in KNOWN):
            raise SettingsError(
                f"--terms: limner knows the terms of {name}, and states them as it knows them"
            )
        if not isinstance(values, Mapping):
            raise SettingsError(
                f"--terms: {str(name)[:80]}: expected the fields of a terms.json (docs/terms.md)"
            )
        new = TermsOfUse.parse({"name": name, "checked": "stated by whoever published the weights", **values})
        terms = [new.model_dump(mode="json") if one.get("name") == name else one for one in terms]
    return {**description, "terms": terms}


def set_of(description: Mapping[str, Any]) -> str | None:
    """The format of the published set that a run was trained on, or "people" for generated ones; None for any other.

    By its terms, since another set may lie in the form of a published one, as generated people do.
    """
    names = {one.name for one in terms_of(description)}
    source = str((description.get("data") or {}).get("source", "")).partition(":")[0]
    if TERMS["people"].name in names:
        return "people"
    return source if source in TERMS and source not in OWN and TERMS[source].name in names else None


def is_hub_licence(text: str) -> bool:
    """True for what can be a name in the hub's list of licences."""
    return _HUB_NAME.fullmatch(text) is not None

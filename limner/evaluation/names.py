"""Every measure by its name."""

import difflib
import re
from collections.abc import Iterable
from typing import get_args

from limner.arguments import several
from limner.errors import SettingsError
from limner.evaluation.curves import CURVES, CurveMeasure
from limner.evaluation.measures import NAMED, OF_K, STANDARD, Measure
from limner.evaluation.scores import Overlap
from limner.plugins import find_plugin, plugins

AnyMeasure = Measure | CurveMeasure | Overlap
"""Whatever can be asked of a ranking: a value a query, a curve, or how far true and wrong pairs overlap."""

# Measures of K are not here: there is no end of them, so they are parsed by their form.
_ALL: tuple[AnyMeasure, ...] = (*NAMED, *CURVES, Overlap())
_BY_NAME = {str(measure): measure for measure in _ALL}

# A bounded number of plain digits: no gallery has 10**12 items, and int() would take other scripts' digits.
_K = "([1-9][0-9]{0,11})"


def parse_measure(name: str) -> AnyMeasure:
    """The measure that prints as `name`. Raises `SettingsError` with the nearest known name.

    >>> str(parse_measure("R@50")), str(parse_measure("MAP@50(min)"))
    ('R@50', 'MAP@50(min)')
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    for form, make in OF_K.items():
        if match := re.fullmatch(re.escape(form).replace("K", _K, 1), name):
            return make(int(match[1]))
    if (added := _of_a_package(name)) is not None:
        return added
    examples = ["R@1", "R@5", "R@10", *(form.replace("K", "50") for form in OF_K if form != "R@K")]
    # In lower case, since difflib takes "map" and "mAP" for words with one letter in common.
    near = difflib.get_close_matches(
        name.lower(), folded := {known.lower(): known for known in (*examples, *_BY_NAME)}, n=1
    )
    # Its own message: "did you mean 'R@1'" would not say why R@0 is refused.
    if re.fullmatch("|".join(re.escape(form).replace("K", "0+", 1) for form in OF_K), name):
        raise SettingsError(f"unknown measure {name[:40]!r}; K counts from 1")
    known = ", ".join((*OF_K, *_BY_NAME, *plugins("limner.measures")))
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {known} (K from 1)"
    raise SettingsError(f"unknown measure {name[:40]!r}; {hint}")


def _of_a_package(name: str) -> Measure | None:
    """The measure that another package adds: one by its name, or by NAME@K what makes one of K; None without any."""
    form = re.fullmatch(f"(.+)@{_K}", name)
    plugin = find_plugin("limner.measures", name)
    made_of = None if plugin is not None or form is None else find_plugin("limner.measures", form[1])
    if plugin is None and (made_of is None or form is None):
        return None
    of = (plugin or made_of).package  # type: ignore[union-attr]
    found = (plugin or made_of).load()  # type: ignore[union-attr]
    if plugin is not None and callable(found):
        raise SettingsError(
            f"measure '{name}' of {of} is one of K, whose number is missing; e.g. '{name}@10'"
        )
    if plugin is None and form is not None:
        if not callable(found):
            raise SettingsError(f"measure '{name}' of {of}: '{form[1]}' takes no K; leave '@{form[2]}' out")
        found = found(int(form[2]))
    # a report has it by the name that it prints
    if not isinstance(found, Measure) or str(found) != name:
        raise SettingsError(
            f"limner.measures: '{name}' of {of} is no measure that prints as its name (docs/extend.md); mend it"
        )
    return found


def parse_measures(names: str | Iterable[str | AnyMeasure]) -> list[AnyMeasure]:
    """The measures of names with blanks or commas between them, or of several names and measures.

    "all" stands for each there is, with K = 1, 5, 10 for R@K and 50 for the others. Raises `SettingsError` for an
    unknown name and for none at all.

    >>> [str(measure) for measure in parse_measures("R@1, mAP")]
    ['R@1', 'mAP']
    """
    listed: list[AnyMeasure] = []
    for one in several(names, (str, *get_args(AnyMeasure)), "measures: a name, e.g. 'R@1 mAP',"):
        if not isinstance(one, str):
            listed.append(one)
        elif one.strip() == "all":
            listed += [*STANDARD, *(make(50) for form, make in OF_K.items() if form != "R@K"), *_ALL]
        else:
            listed += [parse_measure(name) for name in one.replace(",", " ").split()]
    if not listed:
        raise SettingsError("no measure was named; give some, e.g. 'R@1 mAP', or 'all'")
    # Each once, in the order asked for: "all" would name mAP twice.
    return list({str(measure): measure for measure in listed}.values())

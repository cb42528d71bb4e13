from pathlib import Path

import pytest

from limner.errors import SettingsError
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K, RecallAt
from limner.evaluation.names import AnyMeasure, parse_measure, parse_measures
from limner.evaluation.scores import Overlap
from tests.installed import install


@pytest.mark.parametrize(
    "measure",
    [*NAMED, *CURVES, Overlap(), *(make(k) for make in OF_K.values() for k in (1, 50, 1000))],
    ids=str,
)
def test_names_print_and_parse_back(measure: AnyMeasure) -> None:
    assert parse_measure(str(measure)) == measure


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("map", "'mAP'"),
        ("R@٣", "R@"),
        ("r@5", "'R@5'"),
        ("map@50", "'MAP@50'"),
        ("MAP@50(max)", "'MAP@50(min)'"),
        ("x", "known: R@K"),
        ("", "known"),
        ("R@" + "9" * 99, ""),
    ],
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match="unknown measure") as caught:
        parse_measure(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "asked", "said"),
    [
        ("class Made:\n def __init__(self, k): pass", "made@5", "is no measure that prints as its name"),
        ("Made = 3", "made", "is no measure that prints as its name"),
        ("from limner.evaluation.measures import MeanRank\nMade = MeanRank()", "made", "prints as its name"),
        ("class Made:\n def __init__(self, k): pass", "made", r"is one of K, .*; e\.g\. 'made@10'"),
        ("Made = 3", "made@5", "'made' takes no K; leave '@5' out"),
        ("1 / 0", "made", "ZeroDivisionError"),
        ("Made = 3", "xyz", "known: .*, made"),
        ("Made = 3", "made@0", "unknown measure 'made@0'"),
    ],
)
def test_what_another_package_names_a_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, asked: str, said: str
) -> None:
    install(
        tmp_path, monkeypatch, "theirs", "[limner.measures]\nmade = theirs:Made\nR@1 = theirs:Made\n", code
    )
    with pytest.raises(SettingsError, match=said):
        parse_measure(asked)
    # a package cannot replace one of limner's own
    assert parse_measure("R@1") == RecallAt(1)


def test_lists_of_names() -> None:
    everything = parse_measures("all")
    assert {*NAMED, *CURVES, Overlap()} <= set(everything)
    assert parse_measures(" ".join(map(str, everything))) == everything
    assert parse_measures("R@1,R@1 R@1") == [RecallAt(1)]
    for nothing in ("", " , "):
        with pytest.raises(SettingsError, match="no measure was named"):
            parse_measures(nothing)


def test_k_counts_from_one() -> None:
    for name in ("R@0", "MAP@00", "MAP@0(min)"):
        with pytest.raises(SettingsError, match="K counts from 1"):
            parse_measure(name)

import pytest

from limner.errors import SettingsError
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K, RecallAt
from limner.evaluation.names import AnyMeasure, parse_measure, parse_measures
from limner.evaluation.scores import Overlap


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

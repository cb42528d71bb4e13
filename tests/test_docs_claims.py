"""The verdicts of docs/claims.md follow from the figures of docs/claims.toml by the rule at the top of the page."""

import math
import re
import tomllib
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t as student

from docs.claim_rule import FILE, Claim, Claims, Trial, read_claims, verdict
from docs.claims_page import claims_page, words_of
from limner.errors import SettingsError

DOCS = Path(__file__).parents[1] / "docs"
TEXT = tomllib.loads(FILE.read_text(encoding="utf-8"))
TRIALS = [(claim, trial) for claim in read_claims().claim for trial in claim.tried]
NAMED = [f"{claim.says[:30]}, {trial.on}" for claim, trial in TRIALS]


def _claim(trial: dict[str, Any], **more: Any) -> tuple[Claim, Trial]:
    sides = len(trial.get("figures") or trial["spreads"])
    measures = len(trial["figures"][0][0] if "figures" in trial else trial["spreads"][0])
    claim = Claim.parse(
        {
            "system": "MNiL",
            "says": "better",
            "sides": [f"side {side}" for side in range(sides)],
            "measures": [f"R@{at + 1}" for at in range(measures)],
            "tried": [{"on": "toys val", "log": "2026-11-20.md#toys", **trial}],
            **more,
        }
    )
    return claim, claim.tried[0]


def _word(trial: dict[str, Any], **more: Any) -> str:
    return verdict(*_claim(trial, **more)).word


# --- the slow twin: the rule once more, typed from the page's text, in loops over the file itself


def _twin(claim: dict[str, Any], trial: dict[str, Any]) -> str:
    sides, measures = len(claim["sides"]), len(claim["measures"])
    sign = -1 if claim.get("smaller") else 1
    if "no_test" in trial:
        return "no test"
    runs = [
        len(trial["figures"][side]) if "figures" in trial else min(one[2] for one in trial["spreads"][side])
        for side in range(sides)
    ]
    if min(runs) < 3:
        return "not decided"
    found: list[str] = []
    for other in range(1, sides):
        places = []
        for at in range(measures):
            if "figures" in trial:
                pairs = [
                    sign * (trial["figures"][0][run][at] - trial["figures"][other][run][at])
                    for run in range(runs[0])
                ]
                middle, error = fmean(pairs), stdev(pairs) / math.sqrt(len(pairs))
                freedom = float(len(pairs) - 1)
            else:
                (a, s, n), (b, r, m) = trial["spreads"][0][at], trial["spreads"][other][at]
                middle, error = sign * (a - b), math.sqrt(s * s / n + r * r / m)
                freedom = error**4 / (s**4 / (n * n * (n - 1)) + r**4 / (m * m * (m - 1)))
            half = float(student.ppf(0.975, freedom)) * error
            places.append("ahead" if middle - half > 0 else "behind" if middle + half < 0 else "open")
        found.append(places[0] if len(set(places)) == 1 else "open")
    if "behind" in found:
        word, resting = "refuted", [0, *(at + 1 for at, one in enumerate(found) if one == "behind")]
    elif set(found) == {"ahead"}:
        word, resting = "confirmed", list(range(sides))
    else:
        return "not decided"
    for side in resting:
        lowest = []
        for at in range(measures):
            if "figures" in trial:
                values = [run[at] for run in trial["figures"][side]]
                middle, deviation, n = fmean(values), stdev(values), len(values)
            else:
                middle, deviation, n = trial["spreads"][side][at]
            lowest.append(middle - float(student.ppf(0.975, n - 1)) * deviation / math.sqrt(n))
        chance = trial.get("chance")
        guesses = chance is not None and all(low <= guess for low, guess in zip(lowest, chance, strict=True))
        if guesses and not (claim.get("fails") and side > 0):
            return "no test"
    return word


def test_every_verdict_of_the_page_follows_from_the_figures() -> None:
    """The words that stand on the page, against the rule typed a second time."""
    expected = []
    for claim in TEXT["claim"]:
        words = [_twin(claim, trial) for trial in claim.get("tried", [])]
        words += [
            "confirmed" if one["figure"] <= one["at_most"] else "refuted" for one in claim.get("exact", [])
        ]
        expected += words or ["not run"]
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    standing = re.findall(
        r"\| \*\*(confirmed|refuted|not decided|no test|not run)\*\*[^|]* \|$", page, flags=re.MULTILINE
    )
    assert standing == expected == words_of(read_claims())
    assert len(TEXT["claim"]) >= 30


def test_the_page_says_how_the_rule_was_followed() -> None:
    """Figures that are changed change the page: no verdict is kept anywhere."""
    claims = read_claims()
    content = claims.model_dump(mode="json")
    turned = next(one for one in content["claim"] if one["says"].startswith("Stage II adds"))
    turned["tried"][0]["figures"] = turned["tried"][0]["figures"][::-1]
    before, after = claims_page(""), claims_page("", Claims.parse(content))
    rows = [page.split("| Stage II adds")[1].split("\n")[0] for page in (before, after)]
    assert rows[0].endswith("| **confirmed** |")
    assert rows[1].endswith("| **refuted** |")
    assert "+7.7 (+3.5 to +12.0)" in rows[0]
    assert "−7.7 (−12.0 to −3.5)" in rows[1]


# --- the rule itself

VALUES = st.floats(min_value=0, max_value=100, allow_nan=False).map(lambda value: round(value, 1))
RUNS = st.integers(3, 6)


@st.composite
def paired(draw: st.DrawFn, sides: int = 2) -> list[list[list[float]]]:
    runs, measures = draw(RUNS), draw(st.integers(1, 2))
    row = st.lists(VALUES, min_size=measures, max_size=measures)
    return [draw(st.lists(row, min_size=runs, max_size=runs)) for _ in range(sides)]


@given(paired())
def test_turning_a_claim_round_turns_its_verdict_round(figures: list[list[list[float]]]) -> None:
    turned = {"confirmed": "refuted", "refuted": "confirmed", "not decided": "not decided"}
    word = _word({"figures": figures})
    assert _word({"figures": figures[::-1]}) == turned[word]
    assert _word({"figures": figures}, smaller=True) == turned[word]


@given(paired(), st.randoms(use_true_random=False))
def test_the_order_of_seeds_changes_nothing_and_pairing_does(
    figures: list[list[list[float]]], rng: Any
) -> None:
    order = list(range(len(figures[0])))
    rng.shuffle(order)
    assert _word({"figures": [[side[at] for at in order] for side in figures]}) == _word({"figures": figures})


def test_a_difference_that_every_seed_shares_is_seen_through_seeds_that_differ() -> None:
    """Seeds forty points apart, one side ahead by one to two in each: paired it is sure, unpaired nothing is."""
    other = [[10.0], [30.0], [50.0]]
    figures = [[[11.0], [31.5], [51.3]], other]
    assert _word({"figures": figures}) == "confirmed"
    spreads = [[[fmean(one[0] for one in side), stdev(one[0] for one in side), 3]] for side in figures]
    assert _word({"spreads": spreads}) == "not decided"
    # the same figures, seeds mixed up: no pairs any more
    assert _word({"figures": [figures[0], [other[2], other[0], other[1]]]}) == "not decided"


@given(paired(sides=3))
def test_a_side_has_to_be_ahead_of_each_other(figures: list[list[list[float]]]) -> None:
    words = [_word({"figures": [figures[0], other]}) for other in figures[1:]]
    expected = (
        "refuted" if "refuted" in words else "confirmed" if set(words) == {"confirmed"} else "not decided"
    )
    assert _word({"figures": figures}) == expected


@given(paired())
def test_both_directions_have_to_say_the_same(figures: list[list[list[float]]]) -> None:
    assume(len(figures[0][0]) == 2)
    words = {_word({"figures": [[[run[at]] for run in side] for side in figures]}) for at in (0, 1)}
    assert _word({"figures": figures}) == (words.pop() if len(words) == 1 else "not decided")


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(runs: int) -> None:
    assert _word({"figures": [[[90.0]] * runs, [[10.0]] * runs]}) == "not decided"
    assert _word({"spreads": [[[90.0, 0.1, 9]], [[10.0, 0.1, runs]]]}) == "not decided"


def test_nothing_is_confirmed_against_a_side_that_did_not_train() -> None:
    ahead, guessing, late = [[20.0], [21.0], [19.0]], [[0.4], [0.6], [0.5]], [[0.5], [2.0], [4.0]]
    trained = [[5.0], [6.0], [5.5]]
    for other, word in ((trained, "confirmed"), (guessing, "no test"), (late, "no test")):
        trial = {"figures": [ahead, other], "chance": [0.5]}
        assert _word(trial) == word, other
        # a claim that this side does not learn is another matter
        assert _word(trial, fails=True) == "confirmed"
        assert _word({**trial, "figures": [other, ahead]}) == ("refuted" if other is trained else "no test")
    # at chance itself, a side confirms no claim that another does not learn
    assert _word({"figures": [guessing, [[0.1], [0.3], [0.2]]], "chance": [0.5]}, fails=True) == "no test"
    # one direction above chance is enough to have trained
    both = {"figures": [[[20.0, 20.0], [21.0, 21.0], [19.0, 19.5]], [[0.5, 5.0], [0.4, 6.0], [0.6, 5.5]]]}
    assert _word({**both, "chance": [0.5, 0.5]}) == "confirmed"
    assert _word({**both, "chance": [0.5, 9.0]}) == "no test"


def test_runs_that_were_cut_short_are_no_test() -> None:
    figures = [[[90.0], [91.0], [92.0]], [[10.0], [11.0], [12.0]]]
    assert _word({"figures": figures}) == "confirmed"
    assert _word({"figures": figures, "no_test": "12 of 48 epochs"}) == "no test"


@pytest.mark.parametrize("unpaired", [False, True])
def test_of_sides_that_are_equal_one_in_twenty_is_decided(unpaired: bool) -> None:
    """The level of the interval: 4,000 comparisons of three seeds that differ by chance alone."""
    rng = np.random.default_rng(0)
    decided = 0
    for sides in rng.normal(50, 2, (4000, 2, 3)):
        if unpaired:
            trial = {"spreads": [[[float(of.mean()), float(of.std(ddof=1)), 3]] for of in sides]}
        else:
            trial = {"figures": sides[:, :, None].tolist()}
        decided += _word(trial) != "not decided"
    # 0.05 ± three of its own deviations; Welch's is known to hold less than its level with so few runs
    assert (0.025 if unpaired else 0.04) < decided / 4000 < 0.06


@pytest.mark.parametrize(
    "wrong",
    [
        {"figures": [[[1.0]], [[2.0], [3.0]]]},
        {"figures": [[[1.0]], [[2.0]]], "spreads": [[[1.0, 0.1, 3]], [[2.0, 0.1, 3]]]},
        {"figures": [[[1.0]], [[2.0, 3.0]]]},
        {"figures": [[[1.0]], [[2.0]]], "chance": [0.1, 0.1]},
        {"figures": [[[1.0]], [[2.0]]], "verdict": "confirmed"},
    ],
    ids=["unlike seeds", "both kinds", "unlike measures", "two chances", "a verdict by hand"],
)
def test_figures_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        _claim(wrong)


# --- the evidence


def _entry(log: str) -> str:
    """The text of an entry of the log, by page and anchor."""
    page, _, anchor = log.partition("#")
    for part in re.split(r"^## ", (DOCS / "log" / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading = part.split("\n", 1)[0]
        if re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") == anchor:
            return part
    raise AssertionError(f"{log}: no such entry")


@pytest.mark.parametrize(("claim", "trial"), TRIALS, ids=NAMED)
def test_every_figure_stands_in_the_entry_that_is_named(claim: Claim, trial: Trial) -> None:
    entries = [trial.log, *re.findall(r"\]\(log/([^)]+)\)", trial.note)]
    text = " ".join(map(_entry, entries)).replace(" ± ", " +- ")
    for side in trial.figures:
        for value in (value for run in side for value in run):
            assert re.search(rf"(?<![\d.]){value:.1f}(?!\d)", text), f"{claim.says}, {trial.on}: {value}"
    for mean, deviation, _ in (one for side in trial.spreads for one in side):
        assert f"{mean:.1f} +- {deviation:.1f}" in text, f"{claim.says}, {trial.on}: {mean} ± {deviation}"


@pytest.mark.parametrize(("claim", "trial"), TRIALS, ids=NAMED)
def test_rankings_have_their_chance_and_readings_of_test_are_counted(claim: Claim, trial: Trial) -> None:
    if any("@" in measure for measure in claim.measures):
        assert trial.chance, "without it, a side that did not train is not seen"
    if " test" in trial.on:
        counted = {one.log for one in read_claims().reading}
        assert trial.log in counted, f"{trial.on}: [[reading]] does not have {trial.log}"

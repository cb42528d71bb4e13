"""The figures of `docs/claims.toml`, and the rule by which each verdict follows from them.

A verdict is made here and nowhere written down. The rule in words is at the top of `docs/claims.md`.

Sources: Student's t for paired differences; Welch, "The generalization of 'Student's' problem when several different
population variances are involved", Biometrika 34 (1947), for means whose runs are not paired.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, Self

from pydantic import model_validator
from scipy.special import stdtrit

from limner.settings import Settings

FILE = Path(__file__).parent / "claims.toml"

LEVEL = 0.95
"""Of every interval, over seeds."""

FEWEST = 3
"""Runs a side. Of two, the quantile of t is 12.7 deviations: nothing would ever be decided."""

Word = Literal["confirmed", "refuted", "not decided", "no test", "not run"]


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A word of the rule, why where the figures do not show it, and the differences from each other side by measure.

    A difference is positive where the claim's side is ahead, also of measures whose smaller values are better.
    """

    word: Word
    why: str = ""
    differences: tuple[tuple[Interval, ...], ...] = ()


class Trial(Settings):
    """A comparison on one set."""

    on: str
    """The set, its split, and how it differs from the paper's own comparison."""
    figures: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """By side, run and measure; the runs of all sides are of the same seeds, in the same order."""
    spreads: tuple[tuple[tuple[float, float, int], ...], ...] = ()
    """By side and measure: mean, sample deviation and number of runs, where the log has no more."""
    chance: tuple[float, ...] = ()
    """What guessing gets, by measure; () where a measure knows no guessing."""
    log: str
    """The entry of docs/log/ with command, seeds and commit."""
    note: str = ""
    """What a reader has to know beside the figures."""
    no_test: str = ""
    """Why the comparison says nothing of the claim, whatever its figures: runs cut short, or on other pictures."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.figures) == bool(self.spreads):
            raise ValueError("give either figures or spreads")
        if self.figures and len({len(side) for side in self.figures}) > 1:
            raise ValueError("each side needs the same seeds")
        return self

    @property
    def runs(self) -> int:
        """Runs of the side that has the fewest."""
        if self.figures:
            return len(self.figures[0])
        return min(runs for side in self.spreads for *_, runs in side)

    def spread(self, side: int, measure: int) -> tuple[float, float, int]:
        """Mean, sample deviation and number of runs of a side; the deviation of a single run is 0."""
        if self.spreads:
            return self.spreads[side][measure]
        values = self._values(side, measure)
        return fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values)

    def difference(self, side: int, measure: int) -> Interval:
        """The first side less another, over at least two runs: paired by seeds where their figures are kept."""
        if self.figures:
            pairs = zip(self._values(0, measure), self._values(side, measure), strict=True)
            return _interval([first - other for first, other in pairs])
        (ours, first, n), (theirs, second, m) = self.spread(0, measure), self.spread(side, measure)
        parts = first**2 / n, second**2 / m
        # Welch and Satterthwaite; two sides without any deviation have no width to find a quantile for
        freedom = (
            sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1)) if sum(parts) else math.inf
        )
        return _around(ours - theirs, math.sqrt(sum(parts)), freedom)

    def trained(self, side: int) -> bool:
        """True if the interval of a side's own mean lies above chance in one of the measures."""
        if not self.chance:
            return True
        for measure, guessing in enumerate(self.chance):
            mean, deviation, runs = self.spread(side, measure)
            if _around(mean, deviation / math.sqrt(runs), runs - 1).low > guessing:
                return True
        return False

    def _values(self, side: int, measure: int) -> list[float]:
        return [run[measure] for run in self.figures[side]]


class Exact(Settings):
    """A figure that needs no seeds, since it is counted or enumerated, and the limit that the statement sets."""

    on: str
    """What was counted."""
    figure: float
    unit: str
    """What the figure is."""
    at_most: float
    """The statement holds up to here."""
    why: str
    """Where the limit comes from."""
    log: str
    """The entry of docs/log/ with the command."""


class Open(Settings):
    """Runs that would decide a claim or say more of it."""

    command: str
    hours: float
    """Of one core."""
    cost: str
    """How the hours were found."""


class Claim(Settings):
    """A statement of a paper with what was found here."""

    system: Literal["Dual-path", "Identity-aware", "MNiL", "HGAN"]
    says: str
    """The statement, with its place in the paper."""
    sides: tuple[str, ...] = ()
    """What is compared; the claim puts the first ahead of all others."""
    measures: tuple[str, ...] = ()
    """The measures in which the paper states the claim."""
    paper: tuple[tuple[float, ...], ...] = ()
    """The paper's figures by side and measure; () where it prints none."""
    smaller: bool = False
    """True if smaller values are better."""
    fails: bool = False
    """True if the claim is that the other side does not learn, so that this is no reason for "no test"."""
    tried: tuple[Trial, ...] = ()
    exact: tuple[Exact, ...] = ()
    open: tuple[Open, ...] = ()
    at_hand: str = ""
    """What keeps the claim from being run, where no cost can be named."""

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        sides, measures = len(self.sides), len(self.measures)
        for rows in (self.paper, *(trial.spreads for trial in self.tried)):
            if rows and (len(rows) != sides or any(len(row) != measures for row in rows)):
                raise ValueError(f"{self.says}: figures of {sides} sides and {measures} measures are needed")
        for trial in self.tried:
            runs = [run for side in trial.figures for run in side]
            if trial.figures and (len(trial.figures) != sides or any(len(run) != measures for run in runs)):
                raise ValueError(f"{self.says}, {trial.on}: {sides} sides and {measures} measures are needed")
            if trial.chance and len(trial.chance) != measures:
                raise ValueError(f"{self.says}, {trial.on}: a chance for each measure")
        if not (self.tried or self.exact or self.open or self.at_hand):
            raise ValueError(f"{self.says}: neither figures nor what it would take")
        return self


class Reading(Settings):
    """Readings of a test split that the log tells of."""

    split: str
    times: int
    """A checkpoint of each stage, and each further measure of one, is a reading more."""
    log: str
    """The entry that tells of them."""


class Claims(Settings):
    """The file."""

    claim: tuple[Claim, ...]
    reading: tuple[Reading, ...]


def read_claims(file: Path = FILE) -> Claims:
    """The claims with their figures. Raises `SettingsError` for a file that does not fit."""
    return Claims.parse(tomllib.loads(file.read_text(encoding="utf-8")))


def verdict(claim: Claim, trial: Trial) -> Verdict:
    """The verdict of a claim on one set."""
    if trial.no_test:
        return Verdict("no test", trial.no_test, _differences(claim, trial))
    if trial.runs < FEWEST:
        return Verdict("not decided", f"{trial.runs} of {FEWEST} seeds")
    differences = _differences(claim, trial)
    words = [_word(of_side) for of_side in differences]
    word: Word = (
        # the claim puts its side ahead of each other one: behind one of them it is wrong
        "refuted" if "refuted" in words else "confirmed" if set(words) == {"confirmed"} else "not decided"
    )
    # the sides without which the word would not stand
    needed = [side for side, found in enumerate(words, start=1) if found == word]
    untrained = [side for side in (0, *needed) if not trial.trained(side)]
    if word != "not decided" and untrained and not (claim.fails and 0 not in untrained):
        named = " and ".join(claim.sides[side] for side in untrained)
        return Verdict("no test", f"{named}: not above chance", differences)
    return Verdict(word, differences=differences)


def exact_verdict(exact: Exact) -> Word:
    """The verdict on a counted or enumerated figure."""
    return "confirmed" if exact.figure <= exact.at_most else "refuted"


def _differences(claim: Claim, trial: Trial) -> tuple[tuple[Interval, ...], ...]:
    if trial.runs < FEWEST:
        return ()
    found = [
        [trial.difference(side, measure) for measure in range(len(claim.measures))]
        for side in range(1, len(claim.sides))
    ]
    if claim.smaller:
        found = [[Interval(-one.mean, -one.high, -one.low) for one in of_side] for of_side in found]
    return tuple(map(tuple, found))


def _word(differences: Sequence[Interval]) -> Word:
    """Against one other side: every measure has to say the same."""
    if all(one.low > 0 for one in differences):
        return "confirmed"
    return "refuted" if all(one.high < 0 for one in differences) else "not decided"


def _interval(values: Sequence[float]) -> Interval:
    return _around(fmean(values), stdev(values) / math.sqrt(len(values)), len(values) - 1)


def _around(mean: float, error: float, freedom: float) -> Interval:
    half = error * float(stdtrit(freedom, (1 + LEVEL) / 2)) if error else 0.0
    return Interval(mean, mean - half, mean + half)

"""The page `docs/claims.md`: the papers' claims beside our figures, with the verdicts of `docs.claim_rule`."""

from collections.abc import Iterator

from docs.claim_rule import (
    FEWEST,
    Claim,
    Claims,
    Exact,
    Interval,
    Trial,
    Verdict,
    exact_verdict,
    read_claims,
    verdict,
)

_SYSTEMS = ("Dual-path", "Identity-aware", "MNiL", "HGAN")

_RULE = (
    "**One rule for all rows.** `docs/claims.toml` has the figures, `docs/claim_rule.py` makes each verdict of "
    "them, and a test holds this page to both.\n\n"
    "1. **The difference** is between runs of the same seeds on the same data: the mean of the differences of "
    "each seed, with its 95 % interval by Student's t. Where the log has means and deviations alone, marked "
    "*unpaired*, it is Welch's interval of two means. A side's figure is at the epoch that validation chose.\n"
    "2. **confirmed**: in every measure in which the paper states the claim, in both directions where it has "
    "both, the whole interval lies on the claim's side of 0. **refuted**: in every one of them it lies on the "
    f"other side. **not decided**: anything else, and fewer than {FEWEST} seeds a side, however far apart they "
    "are. A side that is claimed to be better than several others has to be ahead of each; behind one of them "
    "it is refuted.\n"
    "3. **no test**: whatever the figures say, where the runs were cut short or the sides are of unlike "
    "pictures, which the row says; and where a verdict would rest on a side that did not train: no 95 % "
    "interval of its own mean, in any of the measures, lies above chance. If the claim is that a side does not "
    "learn, that side may be at chance.\n"
    "4. **Several sets have a verdict each.** None carries over to another set, and none is taken back for "
    "being alone: with 95 % for each, one of twenty intervals misses by chance, and nothing is corrected for "
    "how many there are.\n"
    "5. **Counted and enumerated statements** (memory, the bias of an estimator) have no seeds: confirmed up "
    "to the limit that stands beside the figure, refuted above it.\n"
    "6. **not run**: nothing was measured; [what it would take](#open) stands below."
)

_INTRODUCTION = (
    "What the four papers say is better, beside what was measured here: the paper's figures, ours with seeds, "
    "and a verdict.\n\n"
    "No paper's own dataset and no ImageNet ResNet can be had where limner is developed "
    "([results](results.md#what-has-not-been-measured)). So a verdict is about the claim on **other data and "
    "smaller networks**: Flickr8k with MobileNetV2, ten species of CUB, and [generated "
    "people](data-formats.md#generated-people), whose network starts at random. It does not say that a paper's "
    "figure is wrong. Rows on Flickr8k with MiniLM read sentences by a tower that was tuned on captions of "
    "Flickr30k, which holds all of Flickr8k's pictures, test included "
    "([results](results.md#a-text-tower-that-has-seen-the-captions)): they confirm nothing about sentences that "
    "are new to the model. CPU figures from before 2026-11-28 are in bf16 where the processor had it."
)

_READING = (
    "Figures are means over seeds ± sample deviation, in percent unless the measure says otherwise, image→text "
    "| text→image where there are two. A difference is the claim's side less the other, positive where the "
    'claim\'s side is ahead, with the ends of its 95 % interval in brackets. "val" is the validation split, '
    '"test" the test split. **Seen people** are the demo\'s 200 test people, whose figures had been seen while '
    "recipes were chosen. Chance is one in the number of persons, pictures or species of the split."
)

_READINGS = (
    "How often the log tells of figures of a test split, each checkpoint and each further evaluation of one "
    "counted: at least so often it was read. Runs since 2026-11-24 keep their own count in `evaluations.jsonl` "
    "([measures](measures.md#seeds-and-how-often-the-test-split-was-seen)); what was read earlier, and is in "
    "no entry, is in no count. A split that was read so often is no unseen one for a new recipe."
)


def claims_page(note: str, claims: Claims | None = None) -> str:
    """A table for each system, then what is open and how often the test splits were read."""
    known = claims or read_claims()
    parts = [note, "# The papers' claims", _INTRODUCTION, _RULE, _READING, _counted(known)]
    for system in _SYSTEMS:
        rows = [
            "| claim | the paper | tried on | here | difference | verdict |",
            "|---|---|---|---|---|---|",
            *(row for claim in known.claim if claim.system == system for row in _rows(claim)),
        ]
        parts += [f"## {system}", "\n".join(rows)]
    parts += ["## Open", _open(known), "## Test splits and how often they were read", _READINGS, _read(known)]
    return "\n\n".join(parts) + "\n"


def words_of(claims: Claims) -> list[str]:
    """The words of all verdicts, in the order of the page."""
    return [word for claim in claims.claim for word in _words(claim)]


def _words(claim: Claim) -> list[str]:
    tried = [verdict(claim, trial).word for trial in claim.tried]
    return [*tried, *map(exact_verdict, claim.exact)] or ["not run"]


def _counted(claims: Claims) -> str:
    words = words_of(claims)
    order = ("confirmed", "refuted", "not decided", "no test", "not run")
    counted = ", ".join(f"{words.count(word)} {word}" for word in order)
    return f"{len(claims.claim)} claims with {len(words)} verdicts: {counted}."


def _rows(claim: Claim) -> Iterator[str]:
    said, paper = claim.says, _paper(claim)
    for trial in claim.tried:
        found = verdict(claim, trial)
        yield _row(said, paper, trial.on, _here(claim, trial), _shown(claim, trial, found), _said(found))
        # once a claim: the rows below are of other sets
        said = paper = ""
    for exact in claim.exact:
        yield _row(
            said, paper or "stated", exact.on, _counted_here(exact), "–", f"**{exact_verdict(exact)}**"
        )
        said = paper = ""
    if not claim.tried and not claim.exact:
        yield _row(said, paper, "–", claim.at_hand or "–", "–", "**not run**")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _paper(claim: Claim) -> str:
    if not claim.paper:
        return "stated"
    sides = [
        f"{named}: {' | '.join(map(_plain, figures))}"
        for named, figures in zip(claim.sides, claim.paper, strict=True)
    ]
    return f"{' | '.join(claim.measures)}; {'; '.join(sides)}"


def _here(claim: Claim, trial: Trial) -> str:
    sides = [
        f"{named}: {' | '.join(_spread(name, *trial.spread(side, at)) for at, name in enumerate(claim.measures))}"
        for side, named in enumerate(claim.sides)
    ]
    seeds = "one seed" if trial.runs == 1 else f"{trial.runs} seeds"
    return (
        "; ".join(sides) + f" ({seeds}, [log](log/{trial.log}))" + (f". {trial.note}" if trial.note else "")
    )


def _counted_here(exact: Exact) -> str:
    return (
        f"{_plain(exact.figure)} {exact.unit}, at most {_plain(exact.at_most)}: {exact.why} "
        f"([log](log/{exact.log}))"
    )


def _shown(claim: Claim, trial: Trial, found: Verdict) -> str:
    if not found.differences:
        return "–"
    many = len(found.differences) > 1
    sides = [
        (f"to {named}: " if many else "") + " | ".join(map(_ends, claim.measures, of_side))
        for named, of_side in zip(claim.sides[1:], found.differences, strict=True)
    ]
    return "; ".join(sides) + (" *unpaired*" if trial.spreads else "")


def _said(found: Verdict) -> str:
    return f"**{found.word}**" + (f": {found.why}" if found.why else "")


def _spread(measure: str, mean: float, deviation: float, runs: int) -> str:
    return _figure(measure, mean) + ("" if runs == 1 else f" ± {_figure(measure, deviation)}")


def _ends(measure: str, one: Interval) -> str:
    mean, low, high = (
        ("−" if value < 0 else "+") + _figure(measure, abs(value)) for value in (one.mean, one.low, one.high)
    )
    return f"{mean} ({low} to {high})"


def _figure(measure: str, value: float) -> str:
    """Percent to a tenth, as the log has them; S, correlations and seconds to three figures."""
    return f"{value:.1f}" if "@" in measure else f"{value:.3g}"


def _plain(value: float) -> str:
    return f"{value:g}"


def _open(claims: Claims) -> str:
    """The runs that are open, the cheapest first."""
    runs = sorted(
        ((claim, one) for claim in claims.claim for one in claim.open), key=lambda pair: pair[1].hours
    )
    rows = ["| claim | command | hours of one core | how that was found |", "|---|---|---|---|"]
    rows += [
        _row(f"{claim.system}: {claim.says}", f"`{one.command}`", _plain(one.hours), one.cost)
        for claim, one in runs
    ]
    total = sum(one.hours for _, one in runs)
    text = (
        "Runs that would decide a row or begin it, the cheapest first. Those on Flickr8k, of MNiL too, are with "
        f"MOBILENET's settings ([log](log/index.md)). {_plain(round(total, 1))} hours of one core together, less what "
        "rows share: those of stage I by the instance loss alone are one run in Tables 4 to 8."
    )
    kept = [f"{claim.system}: {claim.says}: {claim.at_hand}" for claim in claims.claim if claim.at_hand]
    told = "No cost can be named for what is not at hand:\n\n" + "\n".join(f"- {one}." for one in kept)
    return "\n\n".join([text, "\n".join(rows), *([told] if kept else [])])


def _read(claims: Claims) -> str:
    by_split: dict[str, list[tuple[int, str]]] = {}
    for one in claims.reading:
        by_split.setdefault(one.split, []).append((one.times, one.log))
    rows = ["| test split | readings | by entry of the log |", "|---|---|---|"]
    for split, found in by_split.items():
        entries = ", ".join(f"[{times}](log/{log})" for times, log in found)
        rows.append(_row(split, str(sum(times for times, _ in found)), entries))
    return "\n".join(rows)

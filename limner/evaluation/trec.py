"""TREC's files: runs (`query Q0 item rank score tag`) and qrels (`query 0 item relevance`), read and written.

Other programs (trec_eval, ir_measures, ranx) read the same files.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from pydantic import Field

from limner.documented import Result
from limner.errors import DataError, SettingsError
from limner.evaluation.array_files import expect_no_folder
from limner.evaluation.arrays import Results
from limner.evaluation.curves import Curve, CurveMeasure
from limner.evaluation.measures import STANDARD, VOID, Matches, Measure
from limner.evaluation.names import AnyMeasure
from limner.evaluation.per_query import QueryValues
from limner.evaluation.ranking import RankingAccumulator
from limner.evaluation.relevance import Relevance
from limner.evaluation.reranking import reranked
from limner.evaluation.scores import Overlap, Scores, of_embeddings, of_matrix
from limner.evaluation.ties import FirstTies, TiedFigure
from limner.text_files import text_lines

# Scores held at once, 16 MiB of float32.
_BLOCK = 1 << 22


class TrecReport(Result):
    """Measures of a TREC run."""

    run: dict[str, str]
    """File name and SHA-256 of the run."""
    qrels: dict[str, str]
    """File name and SHA-256 of the qrels."""
    counts: dict[str, int]
    """Queries, those without a true match, which do not count, those that the run does not answer, which count as
    missed, and items that the run and the qrels name."""
    values: dict[str, float]
    """Value by measure."""
    chance: dict[str, float]
    """Each R@K of a random ranking of these items; a gallery may have more."""
    ties: dict[str, TiedFigure]
    """Each R@K that ties decide for some queries."""
    curves: dict[str, Curve]
    """Curves by name, if asked for."""
    versions: dict[str, str] = Field(default={})
    """Versions of the programs that measured."""
    # a run does not say which queries belong together
    per_query: Any = Field(exclude=True, repr=False)
    """The values of each query (`QueryValues`), which is its own cluster."""


def score_run(run: Path, qrels: Path, measures: Sequence[AnyMeasure] | None = None) -> TrecReport:
    """Measure a run file under a qrels file.

    Items go by score, ties against the model; the ranks in the file are not used. A true match that the run does not
    list is never found: it counts as missed, and so does each query of which it lists nothing, as in `trec_eval -c`
    (`counts["queries_unanswered"]`). pytrec_eval leaves such queries out, which raises its means. Any relevance above 0
    is a match.

    Without `measures` they are `STANDARD`, less those that need the rank of a match which is not listed. Raises
    `DataError` for damaged files, for such a measure that is asked for, and for overlap-S, which needs every score.
    """
    relevant = _read_qrels(qrels)
    listed = _read_run(run)
    chosen, measures = measures is not None, STANDARD if measures is None else measures
    if any(isinstance(measure, Overlap) for measure in measures):
        raise DataError(
            f"{run}: overlap-S needs the score of every pair, and a run has those of the first items"
        )
    # The ranks in the file are not read: tools break ties as they like, and ours go against the model.
    rows, ties = [], []
    for query, matches in relevant.items():
        # False sorts before True: at a tie the wrong item stands first.
        order = sorted(listed.get(query, {}).items(), key=lambda scored: (-scored[1], scored[0] in matches))
        ranks = [rank for rank, (item, _) in enumerate(order, start=1) if item in matches]
        # A match that the run does not list stays in the count, so recall and mAP fall by it.
        rows.append(ranks + [VOID] * (len(matches) - len(ranks)))
        best = order[ranks[0] - 1][1] if ranks else -np.inf
        tied = [item in matches for item, score in order if score == best]
        # A match that is not listed stands behind every item and ties with none.
        above = ranks[0] - 1 - tied.count(False) if ranks else VOID
        ties.append((above, tied.count(False), tied.count(True)))
    if not rows:
        raise DataError(f"{qrels}: no query has a true match")
    # Else every query would score 0, which looks like a very poor model.
    if not relevant.keys() & listed.keys():
        raise DataError(f"{run} and {qrels} have no query in common; is the run of the other direction?")
    # Nobody says how large the gallery was; the longest list is the least that it can be.
    table = Matches.of(rows, max(map(len, listed.values())))
    accumulator = RankingAccumulator(measures, len(rows), table.gallery_size)
    accumulator.add(np.arange(len(rows)), table, FirstTies(*np.array(ties).T))
    ranking = accumulator.result()
    # Lists end where their makers chose; what no list and no match names is in no figure but this one's.
    named = set().union(*listed.values(), *relevant.values())
    lost = int(np.count_nonzero(ranking.first_ranks == VOID))
    # A share counts a lost match as 0; its rank is unknown, and any number would be made up.
    values = [
        measure
        for measure in measures
        if isinstance(measure, Measure) and (chosen or not lost or measure.unit != "rank")
    ]
    for measure in values:
        if measure.unit == "rank" and lost:
            raise DataError(
                f"{run}: {measure} needs the rank of a match of every query, and {lost} have none in the run; list "
                "more items, or leave this measure out"
            )
    return TrecReport(
        run=file_facts(run),
        qrels=file_facts(qrels),
        counts={
            "queries": len(rows),
            "queries_without_match": len(listed.keys() - relevant.keys()),
            "queries_unanswered": len(relevant.keys() - listed.keys()),
            "items": len(named),
        },
        values={str(measure): ranking.value(measure) for measure in values},
        curves={
            str(measure): ranking.curve(measure) for measure in measures if isinstance(measure, CurveMeasure)
        },
        per_query=QueryValues(
            *(places := np.arange(len(rows)), places, np.zeros_like(places), ranking.first_ranks),
            {str(measure): ranking.each(measure) for measure in values},
            list(relevant),
        ),
        ties={name: tied for name, tied in ranking.tied_recalls(measures).items() if tied.queries},
        chance=replace(ranking, gallery_size=len(named)).chance(measures),
    )


def file_facts(path: Path) -> dict[str, str]:
    """The name of a file and its SHA-256, since files of results are overwritten under their old names."""
    with path.open("rb") as opened:
        # in pieces: the file may be larger than memory
        return {"file": path.name, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def expect_one_ranking(folds: int) -> None:
    """Raise `SettingsError` for folds: a run has one ranking a query, and folds have several galleries."""
    if folds > 1:
        raise SettingsError("--trec writes runs of the whole set, and folds are ranked apart; give --folds 1")


def write_trec(results: Results, folder: Path, depth: int = 1000) -> None:
    """Write runs and qrels of both directions, re-ranked where the results are: `image_to_text.run` and so on.

    Items without names are called image0, sentence0, …; blanks in names become "%20". Raises `DataError` as
    `write_run`, `OSError` where the system refuses.
    """
    # Arrays of others seldom have names, but a run must name its items.
    images = results.image_names or [f"image{number}" for number in range(len(results.image_groups))]
    sentences = results.sentence_names or [
        f"sentence{number}" for number in range(len(results.sentence_groups))
    ]
    # Fields are parted by blanks; with the percent sign written so too, names that differ still do.
    images, sentences = (
        [re.sub(r"[\s%]", lambda found: quote(found[0]), name) for name in names]
        for names in (images, sentences)
    )
    folder.mkdir(parents=True, exist_ok=True)
    of_images, of_sentences = results.relevance()
    for name, forward in (("image_to_text", True), ("text_to_image", False)):
        queries, items = (images, sentences) if forward else (sentences, images)
        relevance = of_images if forward else of_sentences
        if results.scores is not None:
            scores = of_matrix(results.scores if forward else results.scores.T)
        else:
            # `Results` has scores or embeddings, one of them always.
            assert results.images is not None
            assert results.sentences is not None
            pair = (results.images, results.sentences)
            scores = of_embeddings(*(pair if forward else pair[::-1]))
            scores = reranked(
                scores, results.reranking, forward, np.arange(len(queries)), np.arange(len(items))
            )
        write_run(folder / f"{name}.run", queries, items, scores, relevance, depth=depth)
        write_qrels(folder / f"{name}.qrels", queries, items, relevance)


def write_run(
    path: Path,
    queries: Sequence[str],
    items: Sequence[str],
    scores: Scores,
    relevance: Relevance,
    *,
    depth: int = 1000,
    tag: str = "limner",
) -> None:
    """Write the first `depth` items of each query in the order that our measures see, ties against the model.

    The score that is written is `depth` for the first item and one less for each next: other programs go by scores,
    some in single precision, and would break ties and near-ties their own way. `relevance` says which items
    are true matches.
    """
    if depth < 1:
        raise SettingsError(f"depth: expected at least 1 item, got {depth}")
    _expect_names(queries)
    _expect_names(items)
    step = max(1, _BLOCK // len(items))
    room = torch.empty(min(step, len(queries)), len(items), dtype=scores.dtype, device=scores.device)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, len(queries), step):
            stop = min(start + step, len(queries))
            # One block for all, overwritten: fresh memory costs page faults.
            block = room[: stop - start]
            scores.write(start, stop, block)
            if scores.rescore is not None:
                scores.rescore(start, stop, block)
            for number, row in enumerate(block.cpu().numpy(), start=start):
                true = relevance.matches(number)
                wrong = np.ones(len(items), bool)
                wrong[true] = False
                # As in the ranking: a match stands behind what reaches its score less the tolerance.
                lowered = torch.from_numpy(row[true])[None]
                row[true] -= scores.tolerance(number, number + 1, lowered)[0].cpu().numpy()
                # The last key is the first to sort by; at a tie `~wrong` puts wrong items first.
                order = np.lexsort((~wrong, -row))[:depth]
                file.writelines(
                    f"{queries[number]} Q0 {items[position]} {rank} {depth + 1 - rank} {tag}\n"
                    for rank, position in enumerate(order, start=1)
                )


def write_qrels(path: Path, queries: Sequence[str], items: Sequence[str], relevance: Relevance) -> None:
    """Write which items match which queries."""
    _expect_names(queries)
    _expect_names(items)
    with path.open("w", encoding="utf-8") as file:
        for number, query in enumerate(queries):
            file.writelines(f"{query} 0 {items[position]} 1\n" for position in relevance.matches(number))


def _read_run(path: Path) -> dict[str, dict[str, float]]:
    listed: dict[str, dict[str, float]] = {}
    for number, fields in _lines(path, 6, "query Q0 item rank score tag"):
        query, _, item, _, text, _ = fields
        score = _number(text, path, number)
        # Refused: with two scores, programs differ in which they take.
        if item in listed.setdefault(query, {}):
            raise DataError(f"{path}, line {number}: item '{item}' is there twice for query '{query}'")
        listed[query][item] = score
    if not listed:
        raise DataError(f"{path}: an empty run")
    return listed


def _read_qrels(path: Path) -> dict[str, set[str]]:
    relevant: dict[str, set[str]] = {}
    judged: dict[tuple[str, str], bool] = {}
    for number, (query, _, item, relevance) in _lines(path, 4, "query 0 item relevance"):
        # 0 and the negative values of some tracks say "looked at and not relevant".
        is_relevant = _number(relevance, path, number) > 0
        if judged.setdefault((query, item), is_relevant) != is_relevant:
            raise DataError(f"{path}, line {number}: {item!r} is both relevant and not for query {query!r}")
        if is_relevant:
            relevant.setdefault(query, set()).add(item)
    return relevant


def _lines(path: Path, fields: int, form: str) -> list[tuple[int, list[str]]]:
    expect_no_folder(path, "a TREC file")
    lines = [(number, line.split()) for number, line in enumerate(text_lines(path), start=1) if line.strip()]
    for number, parts in lines:
        if len(parts) != fields:
            raise DataError(f"{path}, line {number}: expected '{form}', got {' '.join(parts)[:60]!r}")
    return lines


def _number(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        # Falls into the refusal below, which NaN and infinity of the file itself share.
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{path}, line {line}: expected a finite number, got {text!r}")
    return value


def _expect_names(names: Sequence[str]) -> None:
    """Of one side: names are what items are told apart by."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"name {twice!r} is there twice; TREC's files tell items by their names")
    for name in names:
        # `isspace`, because readers split at all blanks of Unicode, as `str.split` does here.
        if not name or any(letter.isspace() for letter in name):
            raise DataError(f"name {name!r}: TREC's files part fields by blanks, so a name cannot have any")

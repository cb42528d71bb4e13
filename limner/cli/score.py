"""`limner score`: measure somebody else's results under limner's definitions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from limner.cli.conflicts import Conflict
from limner.cli.console import out, working
from limner.cli.contract import command, group
from limner.cli.options import Depth, Folds, Measures, PerQuery, ProtocolName, ReportFile, Trec
from limner.counted import counted
from limner.durable import write_text
from limner.one_line import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from limner.evaluation.report import Report
    from limner.evaluation.trec import TrecReport

app = group("Score.")


@command(
    app,
    "score",
    Conflict(
        "--qrels", without="--trec --protocol --folds --cosine", why="is for a TREC run, others for arrays"
    ),
)
def score_command(
    file: Annotated[
        Path,
        "Arrays in an .npz file, a table in .parquet or .csv (docs/measures.md), or a TREC run with --qrels.",
    ],
    protocol: ProtocolName = None,
    measures: Measures = None,
    folds: Folds = None,
    cosine: Annotated[bool, "L2-normalise the embeddings first."] = False,
    qrels: Annotated[Path | None, "TREC qrels: FILE is a TREC run."] = None,
    trec: Trec = None,
    depth: Depth = 1000,
    per_query: PerQuery = None,
    report_file: ReportFile = None,
) -> "Report | TrecReport":
    """Measure somebody else's embeddings, scores or TREC run."""
    from limner.evaluation.arrays import read_results
    from limner.evaluation.names import parse_measures
    from limner.evaluation.per_query import expect_writable, write_queries
    from limner.evaluation.protocols import find_protocol
    from limner.evaluation.report import render
    from limner.evaluation.results_table import ENDINGS, read_results_table
    from limner.evaluation.scores import Overlap
    from limner.evaluation.trec import expect_one_ranking, file_facts, score_run, write_trec
    from limner.inference.provenance import versions

    chosen = None if measures is None else parse_measures(measures)
    # before the ranking: 100,000 pictures and 500,000 sentences took twenty minutes (docs/log/2026-11-22.md)
    if per_query is not None:
        expect_writable(per_query)
    if qrels is not None:
        if chosen is not None and measures == "all":  # a run has the scores of its first items alone
            chosen = [measure for measure in chosen if not isinstance(measure, Overlap)]
        found = score_run(file, qrels, chosen).replace(versions=versions())
        # the rank of a match that a run does not list is not known
        out.print(_table(found, file, chosen is None and "MedR" not in found.values))
        if per_query is not None:
            write_queries(per_query, {"as given": found.per_query})
        if report_file is not None:
            write_text(report_file, json.dumps(found.model_dump(), indent=2) + "\n")
        return found
    # arrays have no format to tell the protocol by
    rules = find_protocol(protocol or "plain")
    if trec is not None:
        expect_one_ranking(rules.folds if folds is None else folds)
    results = read_results_table(file) if file.suffix in ENDINGS else read_results(file)
    if cosine:
        # only on request: the dot products of these embeddings may be meant as they are
        results = results.unit()
    with working("ranking"):
        report = rules.report(
            results,
            chosen,
            folds=folds,
            provenance={**file_facts(file), "versions": versions()},
        )
    out.print(render(report))
    if report_file is not None:
        write_text(report_file, report.to_json())
    if per_query is not None:
        write_queries(per_query, report.queries)
    if trec is not None:
        # as the protocol ranks them, so that trec_eval finds the report's figures
        write_trec(rules.applied(results), trec, depth)
        out.print(f"runs and qrels in {trec}")
    return report


def _table(found: "TrecReport", file: Path, left_out: bool) -> "Table":
    from rich.table import Table

    from limner.evaluation.report import said_of_chance, shown

    table = Table(title=one_line(file.name))
    remarks = []
    # stated, since the figures are means over the other queries
    if without := found.counts["queries_without_match"]:
        remarks.append(f"{counted(without, 'queries')} without a true match, not scored")
    if unanswered := found.counts["queries_unanswered"]:
        remarks.append(f"not in the run, and so missed: {unanswered:,} of the queries")
    if left_out:
        remarks.append("no MedR and MeanR, since some queries have no match in the run")
    if found.ties:
        listed = (
            f"{name} of {of.queries:,} (at random: {of.expected:.1f})" for name, of in found.ties.items()
        )
        remarks.append(f"ties decide {', '.join(listed)}")
    if chance := said_of_chance({"": found.chance}):
        remarks.append(
            f"{chance} (rankings of all {counted(found.counts['items'], 'items')} that run and qrels name)"
        )
    table.caption = "; ".join(remarks) or None
    table.add_column("measure")
    table.add_column(f"{counted(found.counts['queries'], 'queries')}", justify="right")
    for name, value in found.values.items():
        table.add_row(name, shown(name, value))
    return table

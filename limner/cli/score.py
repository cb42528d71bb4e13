"""`limner score`: somebody else's results under our definitions."""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from limner.cli.console import err, out
from limner.cli.options import Folds, Measures, ProtocolName
from limner.errors import SettingsError
from limner.evaluation.arrays import Results, read_results
from limner.evaluation.measures import STANDARD
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import find_protocol
from limner.evaluation.report import render, shown
from limner.evaluation.trec import RunMeasures, score_run, write_qrels, write_run
from limner.runs.checkpoint import write_text
from limner.runs.provenance import versions


def score_command(
    file: Annotated[
        Path,
        typer.Argument(help="Arrays in an .npz file (docs/measures.md), or a TREC run with --qrels."),
    ],
    protocol: ProtocolName = None,
    measures: Measures = None,
    folds: Folds = None,
    cosine: Annotated[bool, typer.Option("--cosine", help="L2-normalise the embeddings first.")] = False,
    qrels: Annotated[Path | None, typer.Option(help="TREC qrels: FILE is a TREC run.")] = None,
    trec: Annotated[
        Path | None, typer.Option(help="Write TREC runs and qrels of both directions to this folder.")
    ] = None,
    depth: Annotated[int, typer.Option(help="Items a query in these runs.")] = 1000,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this file, too.")
    ] = None,
) -> None:
    """Measure somebody else's embeddings, scores or TREC run."""
    asked = None if measures is None else parse_measures(measures)
    if qrels is not None:
        if trec is not None or folds is not None or cosine or protocol is not None:
            raise SettingsError(
                "--trec, --protocol, --folds and --cosine are for arrays, and --qrels is for a TREC run"
            )
        found = score_run(file, qrels, STANDARD if asked is None else asked)
        out.print(_table(found, file))
        if json_file is not None:
            write_text(json_file, _json(found))
        return
    rules = find_protocol(protocol or "plain")
    results = read_results(file)
    if cosine:
        results = results.unit()
    with err.status("ranking"):
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        report = rules.report(
            results,
            asked,
            folds=folds,
            provenance={"file": file.name, "sha256": digest, "versions": versions()},
        )
    out.print(render(report))
    if json_file is not None:
        write_text(json_file, report.to_json())
    if trec is not None:
        _write_trec(rules.applied(results), trec, depth)
        out.print(f"runs and qrels in {trec}")


def _write_trec(results: Results, folder: Path, depth: int) -> None:
    images = results.image_names or [f"image{number}" for number in range(len(results.image_groups))]
    sentences = results.sentence_names or [
        f"sentence{number}" for number in range(len(results.sentence_groups))
    ]
    images, sentences = ([re.sub(r"\s", "%20", name) for name in names] for names in (images, sentences))
    folder.mkdir(parents=True, exist_ok=True)
    of_images, of_sentences = results.relevance()
    for name, forward in (("image_to_text", True), ("text_to_image", False)):
        queries, items = (images, sentences) if forward else (sentences, images)
        if results.scores is not None:
            scores = results.scores if forward else results.scores.T
            write_run(folder / f"{name}.run", queries, items, scores, depth=depth)
        else:
            assert results.images is not None
            assert results.sentences is not None
            pair = (results.images, results.sentences)
            write_run(folder / f"{name}.run", queries, items, pair if forward else pair[::-1], depth=depth)
        write_qrels(folder / f"{name}.qrels", queries, items, of_images if forward else of_sentences)


def _table(found: RunMeasures, file: Path) -> Table:
    table = Table(title=file.name)
    if found.without_match:
        table.caption = f"{found.without_match:,} queries without a true match are not scored"
    table.add_column("measure")
    table.add_column(f"{found.queries:,} queries", justify="right")
    for name, value in found.values.items():
        table.add_row(name, shown(name, value))
    return table


def _json(found: RunMeasures) -> str:
    content = {
        "counts": {"queries": found.queries, "queries_without_match": found.without_match},
        "values": found.values,
        "curves": {name: curve.to_dict() for name, curve in found.curves.items()},
        "versions": versions(),
    }
    return json.dumps(content, indent=2) + "\n"

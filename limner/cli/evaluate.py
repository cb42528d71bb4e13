"""`limner evaluate`: a run's measures on a split."""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from limner.cli.cluster import connected_to, encoded_by
from limner.cli.conflicts import Conflict
from limner.cli.console import counting_each, err, out, say_looks
from limner.cli.contract import command, group
from limner.cli.options import (
    Arithmetic,
    ClusterAddress,
    Cpu,
    Depth,
    Folds,
    Measures,
    PerQuery,
    ProtocolName,
    ReportFile,
    Rerank,
    RunFolder,
    Stage,
    Trec,
    device,
)
from limner.counted import counted
from limner.durable import write_text
from limner.errors import SettingsError

if TYPE_CHECKING:
    from limner.evaluation.composed import ComposedReport
    from limner.evaluation.explanations import ExplanationReport
    from limner.evaluation.report import Report, TransferReport
    from limner.evaluation.reranking import First

app = group("Evaluate.")


_HOW = "--split --stage --report --precision --cpu"


@command(
    app,
    "evaluate",
    Conflict(needs="--data --on --composed"),
    Conflict("--submission", needs="--composed"),
    Conflict("--composed", only=f"{_HOW} --submission"),
    Conflict("--on", only=f"{_HOW} --protocol --rerank --cluster"),
    Conflict("--explanations", only=f"{_HOW} --data"),
)
def evaluate_command(
    run: RunFolder,
    data: Annotated[str | None, "The dataset (docs/data-formats.md).", "FORMAT:PATH"] = None,
    on: Annotated[
        str | None,
        "Measure on several datasets in place of --data: the row of a direct-transfer table.",
        "FORMAT:PATH,…",
    ] = None,
    # test, the split that papers report; training never sees it
    split: Annotated[str, "Split to rank."] = "test",
    stage: Stage = None,
    protocol: ProtocolName = None,
    measures: Measures = None,
    folds: Folds = None,
    rerank: Rerank = None,
    save: Annotated[
        Path | None, "Write the embeddings (before any re-ranking) to this .npz file, for `limner score`."
    ] = None,
    trec: Trec = None,
    depth: Depth = 1000,
    per_query: PerQuery = None,
    explanations: Annotated[
        bool, "Measure explanations instead, on generated people (docs/measures.md)."
    ] = False,
    composed: Annotated[
        str | None, "Measure queries of a picture and a text, in place of --data.", "cirr|fashioniq|itcpr:DIR"
    ] = None,
    submission: Annotated[
        Path | None, "With --composed: write the rankings for CIRR's server to this folder."
    ] = None,
    report_file: ReportFile = None,
    precision: Arithmetic = None,
    cpu: Cpu = False,
    cluster: ClusterAddress = None,
) -> "Report | ExplanationReport | TransferReport | ComposedReport":
    """Measure a run in both directions."""
    from limner.data.readers import open_dataset
    from limner.evaluation.arrays import Results
    from limner.evaluation.names import parse_measures
    from limner.evaluation.per_query import expect_writable, write_queries
    from limner.evaluation.protocols import find_protocol, protocol_of
    from limner.evaluation.report import render
    from limner.evaluation.trec import expect_one_ranking, write_trec
    from limner.inference.evaluate_run import evaluate_run
    from limner.inference.learnt_images import knows_what_it_learnt
    from limner.inference.load import load_model

    # how a run is loaded, whatever is measured of it
    how: dict[str, Any] = {"stage": stage, "device": device(cpu), "precision": precision}
    if composed is not None:
        from limner.cli.composed_queries import evaluate_composed_queries

        return evaluate_composed_queries(run, composed, split, report_file, submission, how)
    if on is not None:
        return _transfer(run, on, split, how, protocol, rerank, report_file, cluster=cluster)
    assert data is not None
    if explanations:
        return _explanations(run, data, split, how, report_file)
    if per_query is not None:
        expect_writable(per_query)
    # names first: a misspelt measure is found before the model is loaded
    chosen = None if measures is None else parse_measures(measures)
    rules = None if protocol is None else find_protocol(protocol)
    ranked_by = rules or protocol_of(data.partition(":")[0])
    if trec is not None:
        expect_one_ranking(ranked_by.folds if folds is None else folds)
    kept: list[Results] = []

    def keep(results: Results) -> None:
        # written before the ranking: embeddings are what takes the time
        if save is not None:
            results.save(save)
        kept.append(results)

    with ExitStack() as connection:
        connected = connection.enter_context(connected_to(cluster))
        loaded = load_model(run, **how)
        dataset = open_dataset(data).split(split)
        with counting_each("pictures") as progress:
            report = evaluate_run(
                loaded,
                dataset,
                split,
                chosen,
                protocol=rules,
                folds=folds,
                rerank=rerank,
                progress=progress,
                keep=keep,
                # closed then: whole machines would wait while this one ranks
                encode=encoded_by(connected, loaded, cpu=cpu, progress=progress, then=connection.close),
            )
    # printed first: a report that cannot be written must not take the figures along
    out.print(render(report))
    if cut := report.provenance["sentences_cut"]:
        err.print(
            f"{counted(cut, 'sentences')} lost the end, being longer than the "
            f"{loaded.model.settings.text.words} tokens that the model reads"
        )
    _say_what_was_seen(report, split, known=knows_what_it_learnt(loaded))
    if report_file is not None:
        write_text(report_file, report.to_json())
    if per_query is not None:
        write_queries(per_query, report.queries, loaded.precision)
    if trec is not None:
        # of the ranking that is reported: after re-ranking, and as the protocol has it
        write_trec(ranked_by.applied(kept[0]), trec, depth)
        out.print(f"runs and qrels in {trec}")
    return report


def _transfer(
    run: Path,
    on: str,
    split: str,
    how: dict[str, Any],
    protocol: str | None,
    rerank: "First | None",
    report_file: Path | None,
    *,
    cluster: str | None,
) -> "TransferReport":
    """Measure a run on several datasets; what it has learnt from is refused in each."""
    from limner.data.readers import open_dataset
    from limner.evaluation.protocols import find_protocol
    from limner.evaluation.report import TransferReport, render_transfer
    from limner.inference.evaluate_run import evaluate_run
    from limner.inference.learnt_images import knows_what_it_learnt
    from limner.inference.load import load_model

    # A path may have a comma of its own; behind one that divides stands a format.
    sources = re.split(r",(?=[a-z][a-z0-9-]+:)", on)
    if twice := [source for source, count in Counter(sources).items() if count > 1]:
        raise SettingsError(f"--on: {twice[0]} stands there twice")
    rules = None if protocol is None else find_protocol(protocol)
    reports: dict[str, Report] = {}
    with connected_to(cluster) as connection:
        loaded = load_model(run, **how)
        cpu = how["device"] == "cpu"
        # All before the first is encoded: a misspelt one is found at once.
        datasets = {source: open_dataset(source).split(split) for source in sources}
        for source, dataset in datasets.items():
            err.print(f"measuring on {source}")
            with counting_each("pictures") as progress:
                encode = encoded_by(connection, loaded, cpu=cpu, progress=progress)
                reports[source] = evaluate_run(
                    loaded, dataset, split, protocol=rules, rerank=rerank, progress=progress, encode=encode
                )
            _say_what_was_seen(reports[source], split, known=knows_what_it_learnt(loaded))
    trained_on = loaded.description["data"]["source"]
    out.print(render_transfer(reports, f"{run}, trained on {trained_on} · {split}"))
    result = TransferReport(run=run, trained_on=trained_on, datasets=reports)
    if report_file is not None:
        write_text(report_file, result.model_dump_json(indent=2) + "\n")
    return result


def _explanations(
    run: Path, data: str, split: str, how: dict[str, Any], report_file: Path | None
) -> "ExplanationReport":
    """Measure the explanations of a run."""
    from limner.data.readers import open_dataset
    from limner.evaluation.explanations import render
    from limner.inference.evaluate_explanations import evaluate_explanations
    from limner.inference.load import load_model
    from limner.people import truth_of

    loaded = load_model(run, **how)
    dataset = open_dataset(data).split(split)
    with counting_each("explanations") as progress:
        report = evaluate_explanations(loaded, dataset, split, truth_of, progress=progress)
    out.print(render(report))
    _say_looks(report.provenance, split)
    if report_file is not None:
        write_text(report_file, report.to_json())
    return report


def _say_what_was_seen(report: "Report", split: str, *, known: bool) -> None:
    """Tell how much of a split the run has learnt from, and how often it was evaluated on it."""
    _say_what_was_learnt(report.provenance["learnt_from"], known, split)
    _say_looks(report.provenance, split)


def _say_looks(provenance: Mapping[str, Any], split: str) -> None:
    say_looks(provenance["evaluations_of_split"], provenance.get("evaluations_problem", ""), split)


def _say_what_was_learnt(learnt: Mapping[str, Any] | None, known: bool, split: str) -> None:
    """Tell how many pictures the run has learnt from, where that is more than the split's name says."""
    if learnt is not None:
        for kind, what in (("trained_on", "was trained on"), ("selected_on", "was selected on")):
            # a set that holds a file twice has it in both splits for everybody, so it is measured
            if learnt[kind] and split not in ("train", "val"):
                err.print(
                    f"the run {what} {counted(learnt[kind], 'pictures', of=learnt['images'])} here, which "
                    "the set has in its "
                    "training splits, too; `limner data check` lists them"
                )
    if not known:
        err.print(
            "this run does not name all pictures that it has learnt from, so that their content could not be compared; "
            "a copy of its training pictures would not be noticed"
        )

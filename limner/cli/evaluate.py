"""`limner evaluate`: a run's measures on a split."""

from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting_each, out
from limner.cli.options import Cpu, Folds, Measures, ProtocolName, Rerank, device, first
from limner.data.readers import open_dataset
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import find_protocol
from limner.evaluation.report import render
from limner.inference import load_model
from limner.inference.checkpoint import write_text
from limner.inference.evaluate_run import evaluate_run


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="Run folder, or a checkpoint file.")],
    data: Annotated[str, typer.Option("--data", help="FORMAT:PATH of the dataset.")],
    split: Annotated[str, typer.Option(help="Split to rank.")] = "test",
    stage: Annotated[
        str | None, typer.Option(help="Checkpoint of this stage instead of the best one.")
    ] = None,
    protocol: ProtocolName = None,
    measures: Measures = None,
    folds: Folds = None,
    rerank: Rerank = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write the embeddings (not what re-ranking made of them) to this .npz file, for `limner score`."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this file, too.")
    ] = None,
    cpu: Cpu = False,
) -> None:
    """Measure a run in both directions."""
    asked = None if measures is None else parse_measures(measures)
    rules = None if protocol is None else find_protocol(protocol)
    loaded = load_model(run, stage=stage, device=device(cpu))
    dataset = open_dataset(data).split(split)
    with counting_each("pictures") as progress:
        report = evaluate_run(
            loaded,
            dataset,
            split,
            asked,
            protocol=rules,
            folds=folds,
            rerank=first(rerank),
            progress=progress,
            keep=None if save is None else lambda results: results.save(save),
        )
    out.print(render(report))
    if json_file is not None:
        write_text(json_file, report.to_json())

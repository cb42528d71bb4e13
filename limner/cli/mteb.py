"""`limner mteb`: a run measured on tasks of MTEB."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.options import Arithmetic, Cpu, Rerank, RunFolder, Stage, device, writable
from limner.documented import Result
from limner.durable import write_text
from limner.errors import SettingsError

app = group("MTEB.")


class LeaderboardTask(Result):
    """Scores of one split and subset of a task of MTEB, from 0 to 1."""

    task: str
    """MTEB's name of the task."""
    split: str
    """The split."""
    subset: str
    """The subset, such as a language; "default" of a task without any."""
    main_score: float
    """The score that MTEB's own tables show for the task."""
    scores: dict[str, float]
    """hit_rate_at_1, which is R@1, and others; {} of a task that is no retrieval."""


class LeaderboardMeasures(Result):
    """The result of `limner mteb`."""

    run: str
    """The run."""
    fingerprint: str
    """Digest of the model."""
    precision: str
    """Its arithmetic, fp32 or bf16."""
    search: bool
    """True if a store was measured as it is served, False for the embedding alone."""
    mteb: str
    """Version of MTEB."""
    note: str
    """How recall_at_1 differs from the R@1 of papers."""
    tasks: list[LeaderboardTask]
    """The tasks in the order in which they were named."""


_NOTE = (
    "hit_rate_at_1 is the R@1 of papers. recall_at_1 is the share of all right answers that stand first: with five "
    "sentences a picture a perfect model has 0.2 from picture to text."
)


@command(app, "mteb", Conflict("--rerank", needs="--search", why="the embedding alone is measured"))
def mteb_command(
    run: RunFolder,
    tasks: Annotated[
        str,
        typer.Option(metavar="NAME,…", help="Tasks by MTEB's names, such as Flickr30kT2IRetrieval."),
    ],
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=writable, help="Write all of MTEB's scores to this JSON file."
        ),
    ] = None,
    search: Annotated[
        bool, "Measure a store as it is served, re-ranked, in place of the embedding alone."
    ] = False,
    rerank: Rerank = None,
    stage: Stage = None,
    precision: Arithmetic = None,
    cpu: Cpu = False,
) -> LeaderboardMeasures:
    """Measure a run on tasks of MTEB, the leaderboard of embeddings.

    Data of a task come from the Hugging Face hub, or its cache.
    """
    from limner.inference.evaluations import note_look
    from limner.inference.load import load_model
    from limner.mteb import Encoder, Search, expect_fit, find_tasks, library, measure

    names = [name for name in tasks.replace(" ", ",").split(",") if name]
    if not names:
        raise SettingsError("--tasks: name at least one, such as Flickr30kT2IRetrieval")
    version = str(library().__version__)
    chosen = find_tasks(names)
    loaded = load_model(run, stage=stage, device=device(cpu), precision=precision)
    model = Search(loaded, rerank=rerank) if search else Encoder(loaded)
    for task in chosen:
        expect_fit(model, task)
    results = []
    for task in chosen:
        # one after the other, so that whoever waits sees how far it is
        err.print(f"measuring {task.metadata.name}")
        results += measure(model, [task])
        for row in _rows(results[-1]):
            # a task is its data: MTEB holds their revision, and there are no files to make a fingerprint of
            note_look(loaded, f"MTEB {row.task} {row.subset} {row.split}", row.split, "MTEB")
    measured = LeaderboardMeasures(
        run=str(run),
        fingerprint=loaded.fingerprint,
        precision=loaded.precision,
        search=search,
        mteb=version,
        note=_NOTE,
        tasks=[row for result in results for row in _rows(result)],
    )
    if out_file is not None:
        whole = {
            "model": model.mteb_model_meta.to_dict(),
            **measured.model_dump(mode="json", exclude={"tasks", "run"}),
            "results": [result.to_dict() for result in results],
        }
        write_text(out_file, json.dumps(whole, indent=2, default=str) + "\n")
    _print(measured)
    return measured


def _rows(result: Any) -> list[LeaderboardTask]:
    from limner.mteb import MEASURES

    return [
        LeaderboardTask(
            task=result.task_name,
            split=split,
            subset=scores["hf_subset"],
            main_score=scores["main_score"],
            scores={name: float(scores[name]) for name in MEASURES if name in scores},
        )
        for split, subsets in result.scores.items()
        for scores in subsets
    ]


def _print(measured: LeaderboardMeasures) -> None:
    from rich.table import Table

    from limner.mteb import MEASURES

    what = "store" if measured.search else "embedding"
    table = Table(title=f"MTEB {measured.mteb}, {what}, in {measured.precision}")
    table.add_column("task")
    for name in ("main score", *MEASURES):
        table.add_column(name, justify="right")
    for row in measured.tasks:
        # a task of one split and one subset, as most are, is named by itself
        where = f"{row.task} {row.split}" + ("" if row.subset == "default" else f" {row.subset}")
        cells = [f"{row.scores[name]:.4f}" if name in row.scores else "–" for name in MEASURES]
        table.add_row(where, f"{row.main_score:.4f}", *cells)
    out.print(table)
    out.print(measured.note)

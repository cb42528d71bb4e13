"""`limner ablate`: a table of a paper, trained and measured here, beside the published figures."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from limner.cli.conflicts import Conflict
from limner.cli.console import counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource
from limner.durable import write_text
from limner.errors import SettingsError

# for annotations alone: at run time these bring torch, and `limner ablate --help` starts without it
if TYPE_CHECKING:
    from limner.data.records import Dataset
    from limner.evaluation.protocols import Protocol
    from limner.training.ablation import Variant
    from limner.training.ablation_report import AblationReport

app = group("Ablate.")


@command(app, "ablate", Conflict("--held-out", needs="--draws"))
def ablate_command(
    table: Annotated[str, "Name of a table, see `limner recipes tables`."],
    data: DataSource,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the runs and of the table.")],
    recipe: Annotated[
        str | None,
        "Recipe that the rows change, or a .json file of one; without it the table's own small one.",
    ] = None,
    seeds: Annotated[str, "Seeds, separated by commas."] = "0",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of all rows, key=value; may be repeated."),
    ] = None,
    split: Annotated[str, "Split to measure on; the papers' tables are on val."] = "val",
    stage: Annotated[str | None, "Only the rows of this stage, I or II."] = None,
    row: Annotated[list[str] | None, "Only the row of this key, e.g. instance-1; may be repeated."] = None,
    classes: Annotated[
        str | None, "Table 5: the two numbers of classes (default: the paper's shares of the pictures)."
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=2, help="Draw the splits at random so many times and give mean and deviation (MNiL: 10)."
        ),
    ] = None,
    held_out: Annotated[
        str | None, "With --draws: groups for validation and for testing (default: the table's own)."
    ] = None,
    protocol: Annotated[
        str | None, "Protocol to measure by (default: the table's, or the dataset's own)."
    ] = None,
    cpu: Cpu = False,
) -> dict[str, JsonValue]:
    """Train and measure the rows of a paper's table.

    Each row is trained with each seed and set beside the paper's figures. Run it again to go on where it stopped:
    finished runs are kept. Writes table.md, table.csv and table.json, and table.png and table.svg where the extra
    `figures` is installed.
    """
    # inside the command, like those of every command: the module is also imported for its help
    from limner.cli.training_progress import TrainingProgress
    from limner.data.readers import open_dataset
    from limner.data.splits import split_source
    from limner.figures.ablation_changes import ablation_figure, read_table
    from limner.figures.style import write_figure
    from limner.inference.run_file import expect_free
    from limner.recipes.ablations import get_table, variants
    from limner.recipes.change import change
    from limner.recipes.registry import get_recipe
    from limner.training.ablation import Outcome, Trial, measure_variant, train_variant
    from limner.training.ablation_report import AblationReport

    # what can be wrong on the command line comes first: a table takes hours
    expect_free(folder, "the table and its runs")
    chosen, given = get_table(table), tuple(settings or ())
    if stage is not None and stage not in chosen.stages:
        raise SettingsError(f"--stage {stage}: {table} has rows of stage {' and '.join(chosen.stages)}")
    numbers = _numbers("--seeds", seeds)
    two = None if classes is None else _two("--classes", _numbers("--classes", classes))
    standard = get_recipe(recipe or chosen.recipe)
    changed = change(standard, given)
    # each run sets its own seed, which would overwrite this one without a word
    if any(setting.partition("=")[0] == "seed" for setting in given):
        raise SettingsError("--set seed: the seeds of a table are given by --seeds, e.g. --seeds 0,1,2")
    sources = _drawn(table, data, draws, held_out)
    dataset = open_dataset(sources[0])
    # Table 5 has numbers of classes, which are shares of the training pictures: 3,000 of MSCOCO's 113,287
    rows = variants(chosen, changed, training_pictures=len(dataset.split("train")), classes=two)
    ranked = dataset.split(split)
    # before any training: a protocol that does not fit the set would otherwise be found only after it
    rules = _rules(table, protocol, ranked)
    asked = _asked(table, rows, stage, row)
    trials: dict[str, list[Trial]] = {key: [] for key in asked}
    fingerprints = []
    # draws outside, so that each is opened once
    for draw, source in enumerate(sources):
        if draw:
            dataset = open_dataset(source)
            ranked = dataset.split(split)
        fingerprints.append(ranked.fingerprint)
        within = folder if draws is None else folder / f"draw-{draw}"
        for key, variant in asked.items():
            for seed in numbers:
                named = f"{variant.label}, stage {variant.stage}, seed {seed}"
                err.print(named if draws is None else f"{named}, draw {draw}")
                with TrainingProgress(err.rich) as progress:
                    # a row and seed that is finished stays as it is
                    run = train_variant(rows, key, seed, dataset, within, listener=progress.listen, cpu=cpu)
                with counting_each("pictures") as count:
                    trial = measure_variant(
                        variant, seed, ranked, split, run, protocol=rules, cpu=cpu, progress=count
                    )
                trials[key].append(trial if draws is None else replace(trial, draw=draw))
    outcomes = [Outcome(variant, tuple(trials[key])) for key, variant in asked.items()]
    report = AblationReport(
        table,
        chosen.title,
        chosen.published_on,
        data,
        split,
        " ".join(fingerprints),
        standard,
        changed,
        given,
        tuple(numbers),
        tuple(outcomes),
        () if draws is None else tuple(split_source(source)[1] for source in sources),
    )
    # written before anything is drawn: a figure that fails must not take the table with it
    for name, text in (
        ("table.md", report.to_markdown()),
        ("table.csv", report.to_csv()),
        ("table.json", report.to_json()),
    ):
        write_text(folder / name, text)
    _show(report)
    # asks for the extra without importing it
    if find_spec("matplotlib") is not None:
        # from the file, so that the figure is the one that `limner figure ablation` draws of it later
        write_figure(ablation_figure(read_table(folder), folder=folder), folder / "table")
    # the text of table.json and no second way to the same numbers
    return json.loads(report.to_json())  # type: ignore[no-any-return]


def _drawn(table: str, data: str, draws: int | None, held_out: str | None) -> list[str]:
    """The set with each of the random splits that were asked for, or as it is."""
    from limner.data.noise import noise_source
    from limner.data.splits import split_source
    from limner.recipes.ablations import get_table

    if draws is None:
        return [data]
    if already := split_source(data)[1]:
        raise SettingsError(f"--draws: the splits of {data} are drawn already; leave #{already} out")
    sizes = (
        get_table(table).draws
        if held_out is None
        else _two("--held-out", _numbers("--held-out", held_out, same=True))
    )
    if sizes is None:
        raise SettingsError(
            f"--draws: {table} is of one split in its paper; say how many groups are for validation and for testing, "
            "e.g. --held-out 1000,1000"
        )
    bare, noise = noise_source(data)
    more = f"#{noise}" if noise else ""
    return [f"{bare}#draw={draw}/{sizes[0]}/{sizes[1]}{more}" for draw in range(draws)]


def _rules(table: str, protocol: str | None, dataset: "Dataset") -> "Protocol | None":
    """The protocol of the rows; None = the dataset's own, with the measures of every report.

    Raises `SettingsError` for one that does not measure what the table prints, `DataError` for one that the dataset
    does not fit.
    """
    from limner.evaluation.measures import STANDARD
    from limner.evaluation.protocols import PROTOCOLS, find_protocol, protocol_of
    from limner.inference.evaluate_run import expect_fit
    from limner.recipes.ablations import get_table

    chosen = get_table(table)
    printed = {name for row in chosen.rows for name in row.published}
    # published figures are named "image_to_text R@1"; a protocol measures both directions by the second part
    name = protocol or chosen.protocol
    if name is None and {one.split(" ", 1)[1] for one in printed} <= {str(one) for one in STANDARD}:
        return None
    rules = find_protocol(name) if name else protocol_of(dataset.source.partition(":")[0])
    # a row without a figure beside the paper's would be noticed only when all is trained
    if not rules.measures_all(printed):
        others = [other.name for other in PROTOCOLS.values() if other.measures_all(printed)]
        raise SettingsError(
            f"--protocol {rules.name} does not measure what {table} prints, {_listed(printed)}; these do: "
            f"{', '.join(others)}"
        )
    expect_fit(dataset, rules)
    return rules


def _listed(printed: set[str]) -> str:
    return ", ".join(sorted({name.split(" ", 1)[1] for name in printed}))


def _asked(
    table: str, rows: "dict[str, Variant]", stage: str | None, keys: list[str] | None
) -> "dict[str, Variant]":
    """The rows of a stage and of some keys, in the table's order."""
    if unknown := [key for key in keys or () if key not in rows]:
        # before the rows are filtered, so that a misspelt key is not taken for one of another stage
        raise SettingsError(f"--row {unknown[0]}: {table} has no such row; there are: {', '.join(rows)}")
    found = {
        key: variant
        for key, variant in rows.items()
        if (stage is None or variant.stage == stage) and (keys is None or key in keys)
    }
    if not found:
        raise SettingsError(f"--row and --stage: none of these rows is of stage {stage}")
    return found


def _show(report: "AblationReport") -> None:
    from rich.table import Table as Grid

    grid = Grid(title=report.title)
    for index, title in enumerate(report.header):
        # the first two columns are words, all others figures
        grid.add_column(title, justify="left" if index < 2 else "right")
    for row in report.rows:
        grid.add_row(*row)
    out.print(grid)
    for remark in report.remarks:
        out.print(remark)


def _numbers(option: str, text: str, *, same: bool = False) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    # isdecimal: int() takes "-1", "+1" and "1_0" as well; a seed given twice would count twice in the deviation
    if not all(part.isdecimal() for part in parts) or not (same or len(set(parts)) == len(parts)):
        different = "" if same else "different "
        raise SettingsError(f"{option}: expected {different}whole numbers such as 0,1,2, got '{text}'")
    return [int(part) for part in parts]


def _two(option: str, numbers: list[int]) -> tuple[int, int]:
    if len(numbers) != 2:
        raise SettingsError(f"{option}: expected two numbers such as 160,530, got {len(numbers)}")
    return numbers[0], numbers[1]

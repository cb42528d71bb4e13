"""`limner figure`: the figures of the papers, of our own runs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import out, say_looks, working
from limner.cli.contract import command, group
from limner.cli.options import Cpu, DataSource, Method, RunFolder, Stage, device
from limner.documented import Result
from limner.errors import DataError, SettingsError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from limner.data.records import Dataset
    from limner.inference.trained import TrainedModel

app = group("Draw the figures of the papers from runs, results and reports.")


def _checked(path: Path) -> Path:
    from limner.figures.style import check_path

    return check_path(path)


Out = Annotated[
    Path,
    typer.Option(
        "--out",
        # checked while the command line is read, before the encoding that a figure takes
        help="File to write: .png, .svg or .pdf; without an ending both .png and .svg.",
        callback=_checked,
    ),
]
Split = Annotated[str, "Split to draw from."]
Titles = Annotated[list[str] | None, typer.Option("--title", help="Name in the figure, one for each file.")]
Seed = Annotated[int, "Another seed draws other items."]


class FigureFiles(Result):
    """A figure that was drawn."""

    files: tuple[Path, ...]
    """Its files."""


class CorrelationFigure(FigureFiles):
    """A figure of correlations, with what it shows as numbers."""

    backbone: float
    """Mean correlation of two pictures by the backbone's features."""
    embedding: float
    """Mean correlation of two pictures by their embeddings."""


@command(app, "training")
def training_command(run: Annotated[Path, "Run folder, or its metrics.jsonl."], file: Out) -> FigureFiles:
    """Losses of both paths and R@1 on validation, epoch by epoch."""
    from limner.figures import training_curves

    return _write(training_curves.training_curves(training_curves.read_log(run)), file)


@command(app, "ablation")
def ablation_command(
    table: Annotated[Path, "Folder of `limner ablate`, or its table.json."],
    file: Out,
    baseline: Annotated[str | None, "Key of the row that the others are compared with.", "ROW"] = None,
) -> FigureFiles:
    """Changes of an ablation table's rows against one of them, here and in the paper."""
    from limner.figures.ablation_changes import ablation_figure, read_table

    return _write(
        ablation_figure(read_table(table), baseline, table if table.is_dir() else table.parent), file
    )


@command(app, "similarities")
def similarities_command(
    results: Annotated[list[Path], "Results in .npz files, of `limner evaluate --save` or others."],
    file: Out,
    titles: Titles = None,
) -> FigureFiles:
    """Distributions of the cosines of true and of wrong pairs, with their overlap S."""
    from limner.evaluation.arrays import read_results
    from limner.figures import similarities

    names = _titles(results, titles)
    with working("counting"):
        # file after file: only the counts of each stay in memory
        counted = [similarities.similarities_of(read_results(path)) for path in results]
    return _write(similarities.similarity_figure(counted, names), file)


@command(app, "precision")
def precision_command(
    reports: Annotated[list[Path], "Reports in JSON, with curves."],
    file: Out,
    titles: Titles = None,
) -> FigureFiles:
    """Precision over recall and over scope."""
    from limner.figures import precision_curves

    names = _titles(reports, titles)
    return _write(
        precision_curves.precision_figure([precision_curves.read_curves(path) for path in reports], names),
        file,
    )


@command(app, "correlation")
def correlation_command(
    run: RunFolder,
    data: DataSource,
    file: Out,
    split: Split = "val",
    images: Annotated[int, "Pictures, drawn at random."] = 100,
    stage: Stage = None,
    seed: Seed = 0,
    cpu: Cpu = False,
) -> CorrelationFigure:
    """Pearson's correlation between pictures, of the backbone's features and of the embeddings."""
    from limner.figures import features

    loaded, dataset = _opened(run, data, split, stage, cpu)
    drawn = _drawn(dataset, images, seed)
    with working("encoding"):
        found = features.picture_features(loaded, drawn.records)
    files = _write(features.correlation_figure(found), file).files
    backbone, embedding = map(features.mean_correlation, (found.entering, found.embedded))
    out.print(f"mean correlation of two pictures: backbone {backbone:.4f}, embedding {embedding:.4f}")
    return CorrelationFigure(files=files, backbone=backbone, embedding=embedding)


@command(app, "map")
def map_command(
    run: RunFolder,
    data: DataSource,
    file: Out,
    groups: Annotated[
        list[str], typer.Option("--group", help="Group or label to show; give it twice or more.")
    ],
    split: Split = "val",
    images: Annotated[int, "Pictures a group, drawn at random."] = 500,
    stage: Stage = None,
    seed: Seed = 0,
    cpu: Cpu = False,
) -> FigureFiles:
    """t-SNE of the pictures and sentences of some groups: features that enter, and embeddings."""
    from limner.figures import features

    # before the model is loaded
    if len(set(groups)) < 2:
        raise SettingsError("a map is of two groups or more; give --group twice")
    loaded, dataset = _opened(run, data, split, stage, cpu)
    parts = [(group, _drawn(_of_group(dataset, group), images, seed).records) for group in groups]
    records = [record for _, members in parts for record in members]
    # one sentence a picture, so that the points of sentences do not bury those of pictures
    sentences = [
        (sentence, group)
        for group, members in parts
        for record in members
        for sentence in record.sentences[:1]
    ]
    if not sentences:
        raise DataError(f"{dataset.source}: the pictures of these groups have no sentence")
    with working("encoding and placing"):
        figure = features.map_figure(
            features.picture_features(loaded, records),
            features.sentence_features(loaded, [sentence for sentence, _ in sentences]),
            [group for group, members in parts for _ in members],
            [group for _, group in sentences],
            seed=seed,
        )
    return _write(figure, file)


@command(app, "ranks")
def ranks_command(
    run: RunFolder,
    data: DataSource,
    file: Out,
    split: Split = "test",
    queries: Annotated[int, typer.Option(min=1, max=50, help="Queries, drawn at random.")] = 5,
    k: Annotated[int, typer.Option("-k", "--k", min=1, max=50, help="Items of each.")] = 10,
    to_text: Annotated[bool, "Ask sentences for pictures."] = False,
    stage: Stage = None,
    seed: Seed = 0,
    cpu: Cpu = False,
) -> FigureFiles:
    """Rank lists of random queries, true matches in green and wrong ones in red."""
    from limner.figures import rank_lists

    loaded, dataset = _opened(run, data, split, stage, cpu)
    with working("encoding and ranking"):
        lists = rank_lists.rank_lists(
            loaded, dataset.records, to_text=to_text, queries=queries, first=k, seed=seed
        )
    return _write(rank_lists.rank_list_figure(lists), file)


@command(app, "nearest")
def nearest_command(
    run: RunFolder,
    words: Annotated[list[str], "Words to find the neighbours of."],
    file: Out,
    k: Annotated[int, "Neighbours of each."] = 8,
    stage: Stage = None,
) -> FigureFiles:
    """The nearest words of some words: by an LSTM's output for each, else by the model's word table."""
    from limner.figures import word_bars
    from limner.inference.load import load_model

    # a few words need no accelerator, so there is no --cpu to give either
    loaded = load_model(run, stage=stage, device="cpu")
    return _write(
        word_bars.nearest_figure([(word, word_bars.nearest_words(loaded, word, k)) for word in words]), file
    )


@command(app, "words")
def words_command(
    run: RunFolder,
    image: Annotated[Path, "Picture."],
    sentence: Annotated[str, "Sentence that describes it."],
    file: Out,
    method: Method = "masked-regression",
    each_word: Annotated[bool, "A bar a word: do not join words to phrases."] = False,
    stage: Stage = None,
    cpu: Cpu = False,
) -> FigureFiles:
    """How much each phrase of a sentence adds to its match with a picture."""
    from limner.figures import word_bars
    from limner.inference.load import load_model

    loaded = load_model(run, stage=stage, device=device(cpu))
    found = word_bars.word_weights(loaded, image, sentence, method, each_word=each_word)
    return _write(word_bars.weights_figure(found, sentence, method), file)


@command(app, "attention")
def attention_command(
    run: RunFolder,
    image: Annotated[Path, "Picture."],
    sentence: Annotated[str, "Sentence to match it with."],
    file: Out,
    stage: Stage = None,
    bare: Annotated[bool, "Leave the picture itself out, for one that may not be shown."] = False,
    cpu: Cpu = False,
) -> FigureFiles:
    """Where a reranker looks: each word's attention over the picture, each step's over the words."""
    from limner.figures import attention
    from limner.inference.load import load_model

    loaded = load_model(run, stage=stage, device=device(cpu))
    return _write(attention.attention_figure(attention.attended(loaded, image, sentence), bare=bare), file)


def _opened(run: Path, data: str, split: str, stage: str | None, cpu: bool) -> "tuple[TrainedModel, Dataset]":
    from limner.data.readers import open_dataset
    from limner.inference.evaluations import note_look
    from limner.inference.load import load_model

    # the dataset first: a wrong path or split is found before the model is loaded
    dataset = open_dataset(data).split(split)
    loaded = load_model(run, stage=stage, device=device(cpu))
    # validation may be looked at as often as one likes; a figure of the test split is a look at it
    if split == "test":
        say_looks(*note_look(loaded, dataset.fingerprint, split, "figure"), split)
    return loaded, dataset


def _drawn(dataset: "Dataset", count: int, seed: int) -> "Dataset":
    if count < 1:
        raise SettingsError(f"expected at least one picture, got {count}")
    return dataset.sample(count, seed)


def _of_group(dataset: "Dataset", name: str) -> "Dataset":
    # a group where a set has identities or species, a label where it has categories (MNiL's Figure 5)
    chosen = tuple(record for record in dataset.records if name == record.group or name in record.labels)
    if not chosen:
        example = dataset.records[0]
        raise DataError(
            f"{dataset.source}: no picture of group or label '{name}' in this split; there is e.g. "
            f"'{example.labels[0] if example.labels else example.group}'"
        )
    # replaced, so that messages still name the source
    return replace(dataset, records=chosen)


def _titles(files: list[Path], titles: list[str] | None) -> list[str]:
    from limner.figures.style import labels_of

    if titles is None:
        return labels_of(files)
    # zip would drop the surplus without a word
    if len(titles) != len(files):
        raise SettingsError(f"{len(files)} files were given and {len(titles)} titles; give one for each")
    return titles


def _write(figure: "Figure", file: Path) -> FigureFiles:
    from limner.figures.style import write_figure

    files = tuple(write_figure(figure, file))
    for written in files:
        out.print(str(written))
    return FigureFiles(files=files)

"""The models of `--json` output of the commands that measure, such as evaluate, score and compare."""

from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from limner.cli.schemas import Many, Result


class LanguageMeasures(Result):
    """Measures of the sentences of one language, with all images of the split."""

    counts: dict[str, int]
    """Images, sentences of the language, groups, and queries without a match."""
    image_to_text: dict[str, float]
    """Value by measure; each image ranks the sentences of this language alone."""
    text_to_image: dict[str, float]
    """Value by measure; each sentence of this language ranks all images."""
    problem: str = ""
    """Why there are no values; empty if there are."""


class TiedFigure(Result):
    """A recall that the order of tied items decides for some queries."""

    queries: int
    """Queries whose value depends on the order of tied items."""
    pessimistic: float
    """Tied wrong items first: the reported value."""
    expected: float
    """Mean over all orders of tied items."""


class EvaluationReport(Result):
    """Measures of both directions, with what a reader needs to trust or repeat them."""

    protocol: str
    """The rules."""
    split: str
    """The split that was ranked."""
    counts: dict[str, int]
    """Images, sentences, groups, and queries without a match."""
    image_to_text: dict[str, float]
    """Value by measure: recalls and precisions in percent, ranks from 1."""
    text_to_image: dict[str, float]
    """As `image_to_text`."""
    intervals: dict[str, dict[str, tuple[float, float]]] = Field(default={})
    """95 % interval by direction and measure, over clusters of queries; absent for fewer than two clusters."""
    chance: dict[str, dict[str, float]] = Field(default={})
    """R@K of a random ranking by direction and measure, in percent."""
    ties: dict[str, dict[str, TiedFigure]] = Field(default={})
    """By direction and measure, each R@K that ties decide for some queries; absent if they decide no R@K."""
    curves: dict[str, JsonValue] = Field(default={})
    """Curves by direction and name, if asked for."""
    languages: dict[str, LanguageMeasures] = Field(default={})
    """Measures by the language of the sentences, if the split's sentences have any."""
    provenance: dict[str, JsonValue]
    """Fingerprints of the split and the model, seed, versions, and the split that chose the checkpoint."""


class TransferReport(Result):
    """Measures of a run on several datasets."""

    run: Path
    """The run."""
    trained_on: str
    """Source of the dataset that it was trained on, or of its weights."""
    datasets: dict[str, EvaluationReport]
    """By dataset, in the order in which they were given."""


class ExplanationFigure(Result):
    """A figure of explanations."""

    value: float
    """The figure: a percentage, a ROC AUC, or a share of the score."""
    interval: tuple[float, float] | None
    """95 % interval over identities; null below two of them, and for chance."""
    count: int
    """Cases that it is of: texts, words or pairs."""


class ExplanationsReport(Result):
    """Measures of a run's explanations on pictures of which it is known what they show."""

    split: str
    """The split that was measured."""
    counts: dict[str, int]
    """Pictures, identities, and texts with a planted word."""
    methods: dict[str, dict[str, ExplanationFigure]]
    """Figures by the method that gives words their effects and by name; "random" is an order by chance."""
    passes: dict[str, float]
    """Texts that one explanation scores, by method, in the mean."""
    attention: dict[str, dict[str, ExplanationFigure]]
    """The pointing game by part of a person, "all" for all, in percent; empty without attention over regions."""
    provenance: dict[str, JsonValue]
    """Fingerprints of the split and the model, seeds, versions, and the split that chose the checkpoint."""


class LieAccuracy(Result):
    """How often what is true scores above what is false."""

    cases: int
    """Cases."""
    clusters: int
    """People, or pictures, that they are of."""
    accuracy: float
    """Percent of cases that are right; a tie counts as wrong."""
    interval: tuple[float, float] | None
    """95 % interval over clusters; null below two."""
    ties: int
    """Cases in which both score alike."""
    ties_at_random: float
    """Percent with a tie as half right."""
    unread: int | None
    """Cases in which the model does not read a word that decides; null for embeddings."""


class LiesMeasured(Result):
    """The lies that a model believes."""

    name: str
    """The set."""
    version: str
    """Its version."""
    digest: str
    """Its digest; figures are comparable where it is the same."""
    chance: float
    """Percent that a guess has right, in every kind."""
    controls: list[str]
    """Kinds in which nothing can be known."""
    about: dict[str, str]
    """A line about each kind."""
    kinds: dict[str, LieAccuracy]
    """By kind of lie."""
    details: dict[str, dict[str, LieAccuracy]]
    """By kind and what the lie is about."""
    retrieval: EvaluationReport | None
    """R@K of the true sentences and all pictures; null if no sentence has a group."""
    unknown_words: list[str] | None
    """Words of the set that the model leaves out; null for embeddings."""
    provenance: dict[str, JsonValue]
    """Fingerprint of the model, its training, versions."""


class BenchReport(Result):
    """The result of `limner bench`."""

    name: str
    """The set."""
    version: str
    """Its version."""
    digest: str
    """Digest of its names, sentences and cases."""
    pictures: int
    """Pictures in it."""
    sentences: int
    """Sentences in it, true and false."""
    cases: int
    """Cases in it."""
    folder: Path | None
    """The folder that it was written to, with `--write`."""
    measured: LiesMeasured | None
    """The figures of the model; null without one."""


class ComposeEpoch(Result):
    """An epoch of `limner compose`."""

    epoch: int
    """Its number, from 1."""
    pictures: float
    """Mean of the loss of pictures."""
    triplets: float | None
    """Mean of the loss of triplets; null without any."""
    score: float
    """Validation score: the mean of R@1, R@5 and R@10, in percent."""


class ComposeReport(Result):
    """The result of `limner compose`."""

    file: Path
    """The file in the run's folder."""
    epoch: int
    """The epoch that was kept."""
    score: float
    """Its validation score."""
    image_weight: float
    """Weight of the picture's embedding beside the sentence's, chosen on validation."""
    triplets: str | None
    """The set of triplets; null without one."""
    epochs: tuple[ComposeEpoch, ...]
    """All epochs."""


class ComposedQueries(Result):
    """One way of making a query of a picture and a text, measured."""

    name: str
    """The way: picture alone, text alone, weighted sum, composed."""
    values: dict[str, float]
    """By measure, in percent; the mean over categories, where a set has several."""
    intervals: dict[str, tuple[float, float]]
    """95 % intervals by measure, over references."""
    by_category: dict[str, dict[str, float]]
    """The values of each category, where a set has several."""


class ComposedDifference(Result):
    """The composed query minus the weighted sum, by one measure on the same queries."""

    first: float
    """Of the sum."""
    second: float
    """Of the composed query."""
    difference: float
    """Their difference."""
    interval: tuple[float, float] | None
    """Its 95 % interval; null for one reference."""
    p: float
    """Two-sided probability of a difference at least so large, if both were exchangeable."""
    queries: int
    """Queries."""
    clusters: int
    """References."""


class ComposedMeasures(Result):
    """Measures of composed queries (`limner evaluate --composed`)."""

    protocol: str
    """The rules: cirr, fashioniq or itcpr."""
    split: str
    """The split."""
    counts: dict[str, int]
    """Queries, and pictures that are ranked."""
    rows: tuple[ComposedQueries, ...]
    """The ways of making a query; none with `--submission`."""
    text_weight: float | None
    """Weight of the text in the sum."""
    weight_chosen_on: str | None
    """The split that chose it."""
    against_sum: dict[str, ComposedDifference]
    """By measure, the composed query against the sum; empty for a run that has learnt none."""
    reference: str
    """The rule about the reference in its own ranking, in words."""
    provenance: dict[str, JsonValue]
    """Fingerprints of the split and the model, the file of `limner compose`, and versions."""


class RunsSummary(Result):
    """One configuration over its runs."""

    recipe: str
    """Name of the recipe."""
    stage: str
    """Stage whose checkpoint was evaluated."""
    reranked: int | str | None
    """How many of the first hits were re-ranked: 0 = none, or "all"."""
    protocol: str
    """The rules under which the runs were evaluated; a number that differs between repeated draws is "…"."""
    split_fingerprint: str | None
    """Digest of the split's annotations; null for repeated draws."""
    runs: tuple[str, ...]
    """Run folders, or the names of runs behind the file that keeps their evaluations."""
    seeds: tuple[int | None, ...]
    """Seeds of the runs, in their order; null for an imported model."""
    splits: int
    """Different splits among them; above 1 for repeated draws."""
    looks: int | None
    """How often these runs have read the split in all, by explanations, figures and exports, too; null if not known."""
    values: dict[str, dict[str, tuple[float, float | None]]]
    """Mean and sample standard deviation by direction and measure; null for a single run."""
    problems: tuple[str, ...] = ()
    """Logs of these runs with a line that was cut off, which is not counted."""
    files: tuple[str, ...] = ()
    """Names of the files that keep evaluations of these runs (`--save`), without ".jsonl"."""
    intervals: dict[str, dict[str, tuple[float, float]]] = Field(default={})
    """95 % interval over queries by direction and measure, of several runs the means of both ends; empty if a run has
    none."""


class RunsSummaries(Many[list[RunsSummary]]):
    """The result of `limner summarise`: a configuration each."""


class Comparison(Result):
    """One measure of two systems on the same queries."""

    direction: str
    """"image_to_text", "text_to_image", or "as given" of a file without directions."""
    measure: str
    """A column of the files."""
    first: str
    """The system that the other is compared with: its files."""
    second: str
    """The other system."""
    values: tuple[float, float]
    """Values of both, in the measure's unit."""
    difference: float
    """Second minus first."""
    interval: tuple[float, float] | None
    """95 % interval of the difference over clusters of queries; null below two clusters."""
    p: float
    """Two-sided p-value of a randomisation test that exchanges whole clusters."""
    p_holm: float
    """The same adjusted for the number of comparisons of this call (Holm)."""
    queries: int
    """Queries that both have."""
    clusters: int
    """Clusters of them."""


class Comparisons(Many[list[Comparison]]):
    """The result of `limner compare`."""


class TrecReport(Result):
    """Measures of a TREC run."""

    run: dict[str, str]
    """File name and SHA-256 of the run."""
    qrels: dict[str, str]
    """File name and SHA-256 of the qrels."""
    counts: dict[str, int]
    """Queries, those without a true match, and items that the run and the qrels name."""
    values: dict[str, float]
    """Value by measure."""
    chance: dict[str, float] = Field(default={})
    """Each R@K of a random ranking of these items; a gallery may have more."""
    ties: dict[str, TiedFigure] = Field(default={})
    """Each R@K that ties decide for some queries."""
    curves: dict[str, JsonValue]
    """Curves by name, if asked for."""
    versions: dict[str, str]
    """Versions of the programs that measured."""


class CalibrationReport(Result):
    """The reliability of a run's probabilities of first hits."""

    split: str
    """The split that was measured, or "store"."""
    pictures: int
    """Pictures that were searched."""
    threshold: float
    """Probability from which a first hit counts as good."""
    reliability: dict[str, dict[str, float | None]]
    """By kind of score: queries, share right, calibration error, Brier score, and what the threshold does."""
    unusable: dict[str, str]
    """By kind of score, why searches do not say "no good match" by the threshold, where they do not."""
    file: str | None
    """The file that was written; null with `--check`."""


# open, since its rows have the measures that their table prints
class AblationTable(Many[dict[str, JsonValue]]):
    """The content of `table.json`: rows with mean, deviation and the paper's figures, runs, remarks, versions."""


def of_report(report: Any) -> EvaluationReport:
    """An evaluation's report as a result."""
    return EvaluationReport.model_validate(report.to_dict())


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
    search: bool
    """True if a store was measured as it is served, False for the embedding alone."""
    mteb: str
    """Version of MTEB."""
    note: str
    """How recall_at_1 differs from the R@1 of papers."""
    tasks: list[LeaderboardTask]
    """The tasks in the order in which they were named."""

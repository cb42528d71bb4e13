"""Train, evaluate and bench from Python in one call each: `limner.train`, `limner.evaluate`, `limner.bench`.

They take what the commands take: a recipe by its name, a dataset as FORMAT:PATH, settings as `--set` writes them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from limner.arguments import PATH, expect, expect_call, several
from limner.data.minimal_pairs import PairSet, read_pairs
from limner.data.readers import open_dataset
from limner.data.records import Dataset, group_numbers
from limner.errors import DataError, SettingsError
from limner.evaluation.arrays import Results, as_array
from limner.evaluation.minimal_pairs import PairReport, bench_embeddings, expect_fit_of_rows
from limner.evaluation.names import AnyMeasure, parse_measures
from limner.evaluation.protocols import Protocol, find_protocol, protocol_of
from limner.evaluation.report import Report
from limner.evaluation.reranking import First
from limner.inference.bench_run import bench_run
from limner.inference.evaluate_run import evaluate_run, results_of
from limner.inference.load import load_model
from limner.inference.provenance import versions
from limner.inference.trained import TrainedModel
from limner.recipes import get_recipe
from limner.recipes.change import change, start_from
from limner.training.log import Listener, silent
from limner.training.loop import train as run_stages
from limner.training.recipe import Recipe

# no shapes by jaxtyping: these arrays are somebody else's, and one that does not fit is a `DataError`
Embeddings = tuple[np.ndarray, np.ndarray]
"""Embeddings of a split's images, each once, and of its sentences, in the order of its records."""


def train(
    recipe: str | Path | Recipe,
    data: str | Dataset,
    out: str | Path,
    *,
    start: str | Path | None = None,
    resume: bool = False,
    settings: Iterable[str] | Mapping[str, Any] = (),
    cpu: bool = False,
    cuda_graphs: bool = False,
    listener: Listener = silent,
) -> TrainedModel:
    """Train a recipe on a dataset's training split and load the checkpoint that its validation split chose.

    - `recipe`: a recipe, its name (`limner recipes list`), or a JSON file of one.
    - `data`: FORMAT:PATH, e.g. "folder:pictures", or a dataset. Its test split is not handed to the training loop.
    - `out`: the run's folder. One that holds a run is refused unless `resume` is set, which goes on with it.
    - `start`: a run, imported or trained, whose network and tokenizer training starts from, in place of the recipe's.
    - `settings`: changes of the recipe: `["seed=1", "stages.stage-1.epochs=5"]` or `{"seed": 1}`.
    - `cpu`: use the CPU even where there is an accelerator.
    - `cuda_graphs`: record a step once and replay it, on a CUDA device, in stages that allow it.
    - `listener`: called with each event of `limner.training.log`, e.g. to draw a progress bar.

    Raises `LimnerError` for what the caller can mend.
    """
    chosen = recipe if isinstance(recipe, Recipe) else get_recipe(str(recipe))
    if start is not None:
        chosen = start_from(chosen, start)
    chosen = change(chosen, _written(settings))
    dataset = open_dataset(data)
    folder = run_stages(
        chosen,
        # these two splits and no dataset: the training loop cannot even see the test split
        dataset.split("train"),
        dataset.split("val"),
        Path(out),
        resume=resume,
        listener=listener,
        cpu=cpu,
        cuda_graphs=cuda_graphs,
    )
    # loaded from the folder, not handed over: the checkpoint that validation chose, as every later program gets it
    return load_model(folder, device="cpu" if cpu else None)


def _written(settings: Iterable[str] | Mapping[str, Any]) -> Iterable[str]:
    """Settings as `--set` writes them."""
    if isinstance(settings, Mapping):
        # as JSON, which is what `--set` reads: str() of None or True would be a text
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return several(settings, (str,), "settings: 'key=value'")


def evaluate(
    model: TrainedModel | Results | Embeddings | str | Path,
    data: str | Dataset | None = None,
    split: str = "test",
    *,
    measures: str | Iterable[str | AnyMeasure] | None = None,
    protocol: str | Protocol | None = None,
    folds: int | None = None,
    rerank: First | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Measure a model, or somebody else's embeddings, on a split, in both directions.

    - `model`: a loaded run, its folder or checkpoint; or two arrays, a row for each image of the split, each image
      once, and a row for each sentence, both in the order of the dataset's records, compared by dot product; or
      `Results`, which hold what matches what, so that no dataset is needed.
    - `data`: FORMAT:PATH or a dataset.
    - `measures`: e.g. "R@1 R@10 mAP", in place of the protocol's.
    - `protocol`: the dataset format's own unless another is named (docs/measures.md); `folds` in place of its own.
    - `rerank`: how many of the first the model's reranker orders anew, in place of the recipe's number; 0 = none.
    - `progress`: called with what is done ("images", "sentences", …), how many, and their total.

    The report's `languages` has the measures of each language that sentences of the split have. Raises `DataError` for
    a split without sentences and for arrays that do not fit the dataset.
    """
    wanted = None if measures is None else parse_measures(measures)
    rules = find_protocol(protocol) if isinstance(protocol, str) else protocol
    expect(rules, (Protocol, NoneType), "evaluate: the name of a protocol")
    expect(folds, (int, NoneType), "evaluate: the number of folds")
    _expect_first("evaluate", rerank)
    expect_call(progress)
    if isinstance(model, Results):
        # refused rather than left out: somebody would believe that the dataset was read
        if data is not None:
            raise SettingsError("evaluate: Results say themselves what matches what; leave out the dataset")
        if rerank:
            raise SettingsError("evaluate: Results have a reranking of their own or none; leave out rerank")
        # no dataset format that would name its own
        rules = rules or find_protocol("plain")
        return rules.report(model, wanted, folds=folds, provenance={"versions": versions()})
    if data is None:
        raise SettingsError("evaluate: a dataset is missing; name it as FORMAT:PATH, e.g. 'folder:pictures'")
    dataset = open_dataset(data).split(split)
    if (arrays := _arrays("evaluate", model)) is not None:
        # 0 and None ask for nothing
        if rerank:
            raise SettingsError("evaluate: embeddings have no reranker; leave out rerank")
        return _of_arrays(arrays, dataset, split, wanted, rules, folds)
    return evaluate_run(
        _run(model), dataset, split, wanted, protocol=rules, folds=folds, rerank=rerank, progress=progress
    )


def bench(
    model: TrainedModel | Embeddings | str | Path,
    pairs: PairSet | str | Path,
    *,
    rerank: First | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> PairReport:
    """Measure which lies a model believes: how often a true sentence scores above a false one, by kind of lie.

    - `model`: a loaded run, its folder or checkpoint; or two arrays, a row for each picture and a row for each sentence
      of the set, in the order of its `cases.json`.
    - `pairs`: a set, or its folder: `limner bench --write FOLDER` draws one, docs/bench.md says how to make another.
    - `rerank`: 0 leaves out the model's reranker; otherwise how many of the first it orders anew in R@K.
    - `progress`: called with what is done ("pictures", "sentences", …), how many, and their total.

    Raises `DataError` for a folder that is no set, and for arrays that do not fit it.
    """
    _expect_first("bench", rerank)
    expect_call(progress)
    expect(pairs, (PairSet, *PATH), "bench: a set of pairs, or its folder,")
    chosen = pairs if isinstance(pairs, PairSet) else read_pairs(Path(pairs))
    if (arrays := _arrays("bench", model)) is not None:
        if rerank:
            raise SettingsError("bench: embeddings have no reranker; leave out rerank")
        images, sentences = _rows("bench", arrays)
        expect_fit_of_rows("bench", chosen, images, sentences)
        return bench_embeddings(chosen, images, sentences, {"versions": versions()})
    return bench_run(_run(model), chosen, rerank=rerank, progress=progress)


def _arrays(caller: str, model: TrainedModel | Embeddings | str | Path) -> Embeddings | None:
    """Two arrays, None for a run or its folder. Raises `DataError` for anything else."""
    expected = f"{caller}: a loaded run, its folder, or a tuple (images, sentences) of two arrays"
    expect(model, (TrainedModel, tuple, *PATH), expected)
    if not isinstance(model, tuple):
        return None
    if len(model) != 2:
        raise DataError(f"{expected} was expected, got a tuple of {len(model)}")
    return model


def _rows(caller: str, arrays: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    return as_array(caller, "images", arrays[0]), as_array(caller, "sentences", arrays[1])


def _expect_first(caller: str, rerank: object) -> None:
    if rerank != "all" and not (isinstance(rerank, int) and rerank >= 0):
        expect(rerank, (NoneType,), f"{caller}: how many to rerank, or 'all',")


def _run(model: TrainedModel | Embeddings | str | Path) -> TrainedModel:
    assert not isinstance(model, tuple)
    return model if isinstance(model, TrainedModel) else load_model(model)


def _of_arrays(
    arrays: Embeddings,
    dataset: Dataset,
    split: str,
    measures: Sequence[AnyMeasure] | None,
    rules: Protocol | None,
    folds: int | None,
) -> Report:
    # before the check of shapes: lists and tensors are welcome
    images, sentences = _rows("evaluate", arrays)
    image_groups, sentence_groups = group_numbers(dataset)
    for rows, expected, kind in (
        (images, len(image_groups), "image"),
        (sentences, len(sentence_groups), "sentence"),
    ):
        # a gallery with a row for each sentence is a common mistake: R@K would count an image five times
        if rows.ndim != 2 or len(rows) != expected:
            raise DataError(
                f"{dataset.source}: split '{split}' has {expected} {kind}s, got an array of shape {rows.shape}; give a "
                "row for each, in the order of the dataset's records"
            )
    # the format chooses the protocol, as it does for a run
    format_name = dataset.source.partition(":")[0]
    rules = rules or protocol_of(format_name)
    results = results_of(dataset, rules, images, sentences)
    return rules.report(
        results,
        measures,
        folds=folds,
        split=split,
        same=dataset.group_kind,
        splits=dataset.how_drawn,
        provenance={
            "dataset": format_name,
            "edition": dataset.edition,
            # two figures are comparable only if this is the same
            # no fingerprint of the images' content: whoever made the arrays may have had other files
            "split_fingerprint": dataset.fingerprint,
            "splits_drawn": dataset.how_drawn,
            "versions": versions(),
        },
    )

"""Prepare a run before its first step: tokenizer, network, classes, images."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8

from limner.data.image_digests import content_fingerprint
from limner.data.records import Dataset, group_numbers, label_matrices
from limner.data.terms import TermsOfUse
from limner.data.tokenizers import PretrainedTokenizer, WordTokenizer
from limner.data.word_vectors import learn_word_vectors, read_word_vectors
from limner.data.words import words
from limner.errors import DataError, SettingsError
from limner.inference.learnt_images import knows_what_it_learnt
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.adapters import peft_library
from limner.models.dual_encoder import DualEncoder
from limner.models.known import weight_terms
from limner.models.registry import build_network
from limner.models.transformer_layers import transformer_layers
from limner.training.objective import Objective
from limner.training.origin import network_content
from limner.training.pairs import TrainingPairs
from limner.training.pictures import Pictures
from limner.training.recipe import TOWER, Recipe
from limner.training.word_table import tower_word_vectors
from limner.types import TokenBatch, Tokenizer


@dataclass
class Prepared:
    """A recipe with its data. The test split is not part of it.

    `train_labels`, and `val_labels` of the pictures and the sentences, exist if a stage learns from labels;
    `val_tokens` has phrases where the network reads them; `start` is the fingerprint of the run that training starts
    from, if any; `terms` those of everything that the weights will have learnt from; `learnt_before` the images of that
    run, as its checkpoint names them, and `learnt_whole` is False if it does not name all of them; `network` the
    digests of what the network was built from.
    """

    recipe: Recipe
    train: Dataset
    val: Dataset
    tokenizer: Tokenizer
    pairs: TrainingPairs
    objective: Objective
    train_pictures: Pictures
    val_pictures: Pictures
    val_tokens: TokenBatch
    val_image_groups: Int64[np.ndarray, " images"]
    val_sentence_groups: Int64[np.ndarray, " sentences"]
    train_labels: UInt8[np.ndarray, "train_images labels"] | None = None
    val_labels: tuple[UInt8[np.ndarray, "images names"], UInt8[np.ndarray, "sentences names"]] | None = None
    start: str | None = None
    terms: tuple[dict[str, Any], ...] = ()
    learnt_before: Mapping[str, torch.Tensor] = field(default_factory=dict)
    learnt_whole: bool = True
    network: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of a run: a resumed run must agree with it, and a checkpoint records it."""
        return {
            # Through JSON, as the state keeps it: tuples and lists would differ in a comparison.
            "recipe": json.loads(self.recipe.model_dump_json()),
            "tokenizer": _digest(self.tokenizer),
            # Only where there is one, so that runs from before can be resumed.
            **({} if self.start is None else {"start": self.start}),
            "network": {part: dict(files) for part, files in self.network.items()},
            "data": {
                "source": self.train.source,
                "train": self.train.fingerprint,
                "val": self.val.fingerprint,
                "train_content": content_fingerprint(self.train_pictures.digests()),
                "val_content": content_fingerprint(self.val_pictures.digests()),
                "train_images": len(self.train),
                "train_sentences": len(self.pairs.sentences),
                "train_sentences_cut": self.pairs.truncated,
                "groups": self.pairs.identities,
                "val_images": len(self.val),
            },
        }


def prepare(recipe: Recipe, train: Dataset, val: Dataset) -> Prepared:
    """Build tokenizer and network for a training and a validation split.

    Raises `SettingsError` and `DataError` for what does not fit together.
    """
    # The loop is handed two splits; this holds even where a caller mixes them up.
    if any(record.split == "test" for record in (*train.records, *val.records)):
        raise DataError(f"{train.source}: training was handed pictures of the test split")
    # The training sentences alone: validation words that training never saw stay unknown, as they will be in use.
    sentences = [sentence for record in train.records for sentence in record.sentences]
    if recipe.start is None and recipe.model.starts_from_run:
        raise SettingsError(
            "the recipe tunes an imported pair, and no run is named; make one with `limner import hf:ORG/NAME START` "
            "and give --from START"
        )
    started = None if recipe.start is None else _started(recipe, recipe.start)
    # Before `TrainingPairs`: whether phrases are read is the network's to say.
    if started is None:
        tokenizer, table = build_tokenizer(recipe, sentences)
        model = _network(recipe, tokenizer, table)
    else:
        tokenizer, model = started.tokenizer, started.model
        _expect_layers(recipe, model)
    length, by_phrase = recipe.model.text.words, "phrases" in model.needs_of_text
    pairs = TrainingPairs.of(train, tokenizer, length, phrases=by_phrase)
    # "images" counts pictures, a number is taken as it is, None means the groups.
    classes = len(train) if recipe.classes == "images" else recipe.classes or pairs.identities
    # behind the network: what of it starts at random depends on the order
    objective = Objective(model, [stage.losses for stage in recipe.stages], classes)
    image_groups, sentence_groups = group_numbers(val)
    if not len(sentence_groups):
        raise DataError(f"{val.source}: the validation split has no sentence")
    needs = frozenset(need for stage in recipe.stages for need in stage.needs)
    by_label = "labels" in needs
    # By group every sentence of the group is relevant, so there a borrowed one is right as well.
    if by_label or (recipe.classes is not None and "sextuples" in needs):
        _expect_own_sentences(train)
    val_sentences = [sentence for record in val.records for sentence in record.sentences]
    return Prepared(
        recipe,
        train,
        val,
        tokenizer,
        pairs,
        objective,
        Pictures([record.image for record in train.records], recipe.images),
        Pictures([record.image for record in val.records], recipe.images),
        # Encoded once: validation reads the same ids each time.
        tokenizer.encode(val_sentences, length, phrases=by_phrase),
        image_groups,
        sentence_groups,
        _train_labels(train) if by_label else None,
        label_matrices(val) if by_label else None,
        None if started is None else started.fingerprint,
        _terms(recipe, train, started),
        {} if started is None else started.learnt,
        started is None or knows_what_it_learnt(started),
        # A number of classes means pseudo-classes, which are made anew at each start.
        network_content(model, weights=isinstance(recipe.classes, int)),
    )


def _terms(recipe: Recipe, train: Dataset, started: TrainedModel | None) -> tuple[dict[str, Any], ...]:
    """The terms of the training set, and of the weights that training starts from, each once."""
    found = [train.terms.model_dump(mode="json")]
    if started is not None:
        # of what it learnt from, too: terms do not end with a second training
        found += started.description.get("terms") or [
            TermsOfUse(name=f"a run of {started.description['recipe']['name']}").model_dump(mode="json")
        ]
    else:
        vectors = recipe.vocabulary.vectors
        backbone = recipe.model.backbone
        named = (
            *(() if backbone is None else (backbone.weights, backbone.auto_model)),
            # not every text encoder can come pretrained
            getattr(recipe.model.text, "model", None),
            getattr(getattr(recipe.model.text, "bert", None), "model", None),
            None if vectors in ("random", "captions") else vectors.removeprefix(TOWER),
        )
        found += [weight_terms(str(name)).model_dump(mode="json") for name in named if name is not None]
    return tuple(one for place, one in enumerate(found) if one not in found[:place])


def _started(recipe: Recipe, run: str) -> TrainedModel:
    """The run that training starts from, on the CPU, ready to learn."""
    found = load_model(run, device="cpu")
    torch.manual_seed(recipe.seed)
    found.model.grow(recipe.model)
    if found.model.settings.identity() != recipe.model.identity():
        raise SettingsError(
            f"setting 'model': the network is that of {run}, which training starts from; leave its settings as they are"
        )
    # A cross-encoder learns above the embedding as it will be, and begins anew.
    found.model.cross_encoder = None
    # As where the network is built: what is drawn next, such as a classifier, depends on the seed alone.
    torch.manual_seed(recipe.seed)
    found.model.train().requires_grad_(True)
    return found


def _network(
    recipe: Recipe, tokenizer: Tokenizer, table: Float[np.ndarray, "vocabulary word_dim"] | None
) -> DualEncoder:
    """The network at its start, which depends on the seed alone; raises `SettingsError` for a layer it has not."""
    # The one place that seeds the network; the loop seeds each step anew.
    torch.manual_seed(recipe.seed)
    model = build_network(recipe.model, tokenizer.size)
    if table is not None:
        with torch.no_grad():
            # Row 0 is the empty position and stays at 0.
            model.text.table.weight[1:] = torch.from_numpy(table)
    _expect_readable(model, tokenizer)
    # An encoder with pieces of its own, such as BERT, takes those of each word of the tokenizer here.
    model.text.read_tokenizer(tokenizer)
    _expect_layers(recipe, model)
    return model


def _expect_layers(recipe: Recipe, model: DualEncoder) -> None:
    """Raise `SettingsError` for a stage that speaks of layers which the network has not."""
    transformers = any(transformer_layers(tower) for tower in (model.backbone, model.text))
    for stage in recipe.stages:
        settings = {
            "checkpointing": stage.checkpointing,
            "lora": stage.lora is not None,
            "optimiser.layer_decay": any(each.layer_decay is not None for each in stage.optimisers),
        }
        for setting in (name for name, is_set in settings.items() if is_set and not transformers):
            raise SettingsError(
                f"setting 'stages.{stage.name}.{setting}': the network has no tower of transformers, whose layers it "
                "is for; leave it out"
            )
        if stage.lora is not None:
            peft_library()  # a stage that needs it may be hours away
        if stage.backbone_from is not None:
            try:
                model.backbone.find_layer(stage.backbone_from)
            except SettingsError as error:
                # With the stage's name, which `find_layer` does not know.
                raise SettingsError(f"setting 'stages.{stage.name}.backbone_from': {error}") from None


def _expect_own_sentences(train: Dataset) -> None:
    """A sentence of its group may be irrelevant to such an image."""
    without = [record for record in train.records if not record.sentences]
    if without:
        raise DataError(
            f"{train.source}: {len(without)} training pictures have no sentence, e.g. {without[0].image.name}; "
            "sextuples by label, or by other classes than the groups, need one of each"
        )


def _train_labels(train: Dataset) -> UInt8[np.ndarray, "images labels"]:
    labels, _ = label_matrices(train)
    # A picture without a label would be irrelevant to itself.
    without = np.flatnonzero(~labels.any(axis=1))
    if len(without):
        raise DataError(
            f"{train.source}: {len(without)} training pictures have no label, e.g. "
            f"{train.records[without[0]].image.name}; a stage that learns from labels needs one of each"
        )
    return labels


def build_tokenizer(
    recipe: Recipe, sentences: Sequence[str]
) -> tuple[Tokenizer, Float[np.ndarray, "vocabulary word_dim"] | None]:
    """The tokenizer of a recipe, and the word vectors that the network's table starts from, if any."""
    chosen, width = recipe.vocabulary, recipe.model.text.table_width
    if (source := recipe.model.text.tokenizer) is not None:
        return PretrainedTokenizer.read(source, special_tokens=True), None
    if chosen.pieces is not None:
        return PretrainedTokenizer.learn(sentences, chosen.pieces), None
    if chosen.tokenizer is not None:
        return PretrainedTokenizer.read(chosen.tokenizer, special_tokens=chosen.special_tokens), None
    if chosen.vectors in ("random", "captions") or width is None:
        tokenizer = WordTokenizer.build(sentences, min_count=chosen.min_count)
        # Words that a pretrained BERT knows as a whole join those of the captions, so that a search may use them.
        tokenizer = tokenizer.with_words(recipe.model.text.further_words())
        # A network with its own vectors takes none.
        if chosen.vectors == "random" or width is None:
            return tokenizer, None
        return tokenizer, _scaled(learn_word_vectors(sentences, tokenizer, dim=width, seed=recipe.seed))
    if chosen.vectors.startswith(TOWER):
        tokenizer = WordTokenizer.build(sentences, min_count=chosen.min_count)
        of_tower = tower_word_vectors(chosen.vectors.removeprefix(TOWER), tokenizer, width)
        return tokenizer, _scaled(of_tower.numpy())
    # Only rows that are needed: GoogleNews has 3 million of 300 numbers, 3.6 GB.
    vectors: Mapping[str, np.ndarray] = read_word_vectors(
        Path(chosen.vectors), {word for sentence in sentences for word in words(sentence)}
    )
    columns = len(next(iter(vectors.values())))
    if columns != width:
        raise SettingsError(
            f"setting 'model.text.word_dim': {width}, but {chosen.vectors} has {columns} columns"
        )
    # Words without a vector are dropped (dual-path, section 3.2).
    tokenizer = WordTokenizer.build(sentences, min_count=chosen.min_count, known=vectors)
    return tokenizer, _scaled(np.stack([vectors[word] for word in tokenizer.entries]))


def _expect_readable(model: DualEncoder, tokenizer: Tokenizer) -> None:
    if "whole words" in model.needs_of_text and not tokenizer.whole_words:
        raise SettingsError(
            "setting 'vocabulary.tokenizer': the network's text encoder reads whole words, which it splits itself; "
            "leave the tokenizer out, or set model.text.bert=null"
        )


def _digest(tokenizer: Tokenizer) -> str:
    """Changes with the tokenizer, whose folder may hold another one when a run is resumed."""
    # 64 bits are enough to notice another tokenizer, and short in a message.
    return hashlib.sha256(json.dumps(tokenizer.to_description()).encode()).hexdigest()[:16]


def _scaled(table: Float[np.ndarray, "vocabulary word_dim"]) -> Float[np.ndarray, "vocabulary word_dim"]:
    """Scale to a standard deviation of 0.1, whatever the vectors' own length."""
    # By one factor for the whole table: the vectors' own proportions stay. The 1e-12 is for a table of zeros.
    return np.asarray(table * (0.1 / max(float(table.std()), 1e-12)), dtype=np.float32)

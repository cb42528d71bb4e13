"""The files of a published run, written to a folder: what a push uploads, and nothing else.

    model.safetensors    the chosen checkpoint: weights, tokenizer and description, without places of this machine
    run.json             names it, so that the folder is a run folder
    config.json          the same description without the words of the vocabulary, for whoever looks at the page
    tokenizer.json       the tokenizer of Hugging Face, where the run has one, for other programs; limner reads its copy
                         in the checkpoint
    README.md            the model card; LICENSE.md the terms of what the weights have learnt from
    .eval_results/       results for the leaderboards of the hub, where a benchmark was named

No state of training, no log, no calibration. A run's model is the same after a round trip: the folder is read back,
and its fingerprint compared, before anything is uploaded.
"""

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from limner.durable import digest_of_values, sealed, write_text
from limner.errors import CheckpointError, SettingsError
from limner.hub.card import CardFacts, card, licence_file, to_yaml
from limner.hub.description import published
from limner.hub.evaluations import eval_results, evaluations_of
from limner.hub.licence import Licence, licence_of, set_of, state_terms
from limner.hub.request import PushRequest
from limner.inference.checkpoint import (
    FORMAT,
    SELECTED_ON,
    TOKENIZER,
    TRAINED_ON,
    read_checkpoint,
    write_checkpoint,
)
from limner.inference.load import load_model
from limner.inference.run_file import checkpoint_path, read_listing
from limner.inference.source import RUN_FILE
from limner.inference.trained import TrainedModel

CHECKPOINT = "model.safetensors"
"""The checkpoint of a published run; the hub looks for this name."""

EVAL_RESULTS = ".eval_results"
"""Folder of results that the hub's leaderboards read."""


@dataclass(frozen=True)
class Published:
    """The files that were written, under what, and which settings of the description were replaced."""

    files: tuple[str, ...]
    licence: Licence
    fingerprint: str
    replaced: tuple[str, ...]
    digests: int
    bank: int
    gated: bool
    card: str


def write_files(run: Path, folder: Path, asked: PushRequest, repository: str | None) -> Published:
    """Write the files of a run's chosen checkpoint, or of that of one stage, to an empty folder.

    Raises `CheckpointError` for a folder without a run and for one whose files would name a place of this machine,
    `SettingsError` for embeddings of training pictures that nobody has allowed.
    """
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run folder; give the folder of a run, not a checkpoint file")
    path = checkpoint_path(run, asked.stage)
    model = load_model(path, device="cpu")
    bank = _bank(model)
    if bank and not asked.bank:
        raise SettingsError(
            f"{run}: its hub correction holds embeddings of {bank} training pictures and sentences, which are part of "
            "the model; --with-bank publishes them (docs/privacy.md)"
        )
    described = state_terms(model.description, asked.terms or {})
    description, replaced = published(described)
    # of what is published: terms may name a file of this machine
    licence = licence_of(description, asked.licence)
    gated = asked.gated or bool(licence.restricted)
    keeps = _keeps_digests(model, asked.digests)
    facts = CardFacts(
        description=description,
        cited=model.description["recipe"],
        fingerprint=model.fingerprint,
        licence=licence,
        evaluations=evaluations_of(run, path.name, model.fingerprint, asked.reports),
        gated=gated,
        digests=sum(len(rows) for rows in model.learnt.values()) if keeps else 0,
        bank=bank,
        parameters=sum(weight.numel() for weight in model.model.parameters()),
        dim=model.dim,
        side=model.images.crop,
        words=model.model.settings.text.words,
        tokens=model.tokenizer.size,
        # a tokenizer that was learnt from the captions carries their pieces; one that came ready does not
        learns_words=_learns_words(model),
        repository=repository,
        finished=bool(read_listing(run).get("finished", True)),
    )
    tokenizer = model.tokenizer.content()
    # the weights are read once more, and no machine need hold them twice
    del model
    gc.collect()
    folder.mkdir(parents=True, exist_ok=True)
    digest = _write_checkpoint(path, folder / CHECKPOINT, description, keeps)
    write_text(folder / RUN_FILE, sealed(_listing(run, path, description, digest)))
    texts = {
        "config.json": json.dumps(_config(description, facts), indent=2, ensure_ascii=False) + "\n",
        "README.md": card(facts),
        "LICENSE.md": licence_file(licence),
    }
    page = None if repository is None else f"https://huggingface.co/{repository}"
    results = eval_results(facts.evaluations, asked.benchmarks, page)
    texts |= {f"{EVAL_RESULTS}/{name}": to_yaml(entries) for name, entries in results.items()}
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_text(folder / name, text)
    if tokenizer is not None:
        (folder / TOKENIZER).write_bytes(tokenizer)
    _expect_nothing_local(
        folder, run, {name: value for name, value in description.items() if name != "tokenizer"}
    )
    _expect_same(folder, facts.fingerprint)
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return Published(
        *(
            tuple(files),
            licence,
            facts.fingerprint,
            tuple(replaced),
            facts.digests,
            bank,
            gated,
            texts["README.md"],
        )
    )


def _bank(model: TrainedModel) -> int:
    """Rows of the hub correction: embeddings of training pictures and sentences that are part of the model."""
    found: Tensor | None = model.model.state_dict().get("hub_correction.count")
    return 0 if found is None else int(found.sum())


def _keeps_digests(model: TrainedModel, asked: bool | None) -> bool:
    if asked is not None:
        return asked
    # everybody has a published set's pictures; of one's own, whoever holds a file would learn that it was among them
    return set_of(model.description) is not None


def _learns_words(model: TrainedModel) -> bool:
    recipe = model.description["recipe"]
    words = model.tokenizer.to_description().get("kind") == "words"
    return words or bool((recipe.get("vocabulary") or {}).get("pieces"))


def _write_checkpoint(path: Path, target: Path, description: dict[str, Any], keeps: bool) -> str:
    tensors, _ = read_checkpoint(path)
    if not keeps:
        tensors = {name: one for name, one in tensors.items() if name not in (TRAINED_ON, SELECTED_ON)}
    # a reader takes the format of what is written, not that of the file it came from
    return write_checkpoint(target, tensors, {**description, "format": FORMAT})


def _listing(run: Path, path: Path, description: dict[str, Any], digest: str) -> dict[str, Any]:
    """The content of `run.json`: of the published checkpoint alone."""
    before = read_listing(run)
    stage = next((dict(one) for one in before["stages"] if one["file"] == path.name), {"name": path.stem})
    found = {
        "recipe": description["recipe"].get("name"),
        "best": CHECKPOINT,
        "selected_on": (description.get("selected") or {}).get("split"),
        "stages": [{**stage, "file": CHECKPOINT}],
        "digests": {CHECKPOINT: digest},
        "recipe_digest": digest_of_values(description["recipe"]),
        "seed": description.get("seed"),
        "data": description.get("data"),
        "origin": description.get("origin"),
        # what is published is not trained on
        "finished": True,
        "terms": description.get("terms"),
        "versions": description.get("versions"),
    }
    return found | ({"select": before["select"]} if "select" in before else {})


def _config(description: dict[str, Any], facts: CardFacts) -> dict[str, Any]:
    tokenizer = {name: value for name, value in description["tokenizer"].items() if name != "words"}
    return {
        "model_type": "limner",
        "library_name": "limner",
        "fingerprint": facts.fingerprint,
        "embedding_dim": facts.dim,
        **{name: value for name, value in description.items() if name not in ("tokenizer", "files")},
        "tokenizer": {**tokenizer, "size": facts.tokens},
    }


def _expect_nothing_local(folder: Path, run: Path, description: dict[str, Any]) -> None:
    """Raise `CheckpointError` for a file that names a folder of this machine, whatever the rules have missed."""
    places = {str(place) for place in (Path.home(), Path.cwd(), run.resolve(), run.resolve().parent)}
    # "/" and "/root" may be pieces of any text
    found = {place for place in places if place.count("/") + place.count("\\") > 1}
    # the tokenizer is somebody else's text, and in the checkpoint as it is here
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for file in folder.rglob("*")
        if file.is_file() and file.name not in (CHECKPOINT, TOKENIZER)
    }
    for name, text in {**texts, CHECKPOINT: json.dumps(description, ensure_ascii=False)}.items():
        if any(place in text for place in found):
            raise CheckpointError(
                f"{name}: would name a folder of this machine; report it as a bug, with the recipe"
            )


def _expect_same(folder: Path, fingerprint: str) -> None:
    try:
        found = load_model(folder, device="cpu").fingerprint
    except CheckpointError as error:
        raise CheckpointError(
            f"what would be published cannot be loaded ({error}); report it as a bug"
        ) from None
    if found != fingerprint:
        raise CheckpointError(
            f"what would be published is another model, {found[:12]} and not {fingerprint[:12]}; report it as a bug"
        )

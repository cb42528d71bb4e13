"""Composed queries of a run: a picture's pseudo words and a text as one sentence, embedded by the text tower.

    RUN/inversion.safetensors   the mapping network (`limner.models.inversion`), what it was trained on, and the
                                fingerprint of the model whose towers it was trained for

The file is written by `limner compose`. It has the form of a checkpoint (`limner.inference.checkpoint`): its digest is
compared when it is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import load_into, read_checkpoint, write_checkpoint
from limner.inference.encoding import SENTENCES, evaluating
from limner.models.dual_encoder import DualEncoder
from limner.models.inversion import STAR, InversionSettings, PictureWords
from limner.types import Tokenizer

FILE: Final = "inversion.safetensors"
FORMAT: Final = 1
"""Version of the file's layout."""

_KIND: Final = "inversion"

_STAND_INS: Final = ("it", "thing", "person", "a", "in")
"""Words that are tried first for the picture's place; the vector that is put there replaces the word's own."""


@dataclass(frozen=True, eq=False)
class Inversion:
    """A trained mapping of pictures to words, for the model whose towers it was trained with.

    - `stand_in`: a word that the tokenizer reads as one token; it marks the picture's places.
    - `image_weight`: weight of the picture's embedding beside that of the composed sentence, in [0, 1].
    - `description`: the file's JSON.
    """

    settings: InversionSettings
    network: PictureWords
    stand_in: str
    image_weight: float
    description: Mapping[str, Any]

    @torch.inference_mode()
    def compose(
        self,
        model: DualEncoder,
        tokenizer: Tokenizer,
        images: Float[np.ndarray, "queries dim"],
        texts: Sequence[str],
    ) -> Float[np.ndarray, "queries dim"]:
        """Unit embeddings of composed queries, float32, from unit embeddings of pictures and a text beside each.

        In fp32 whatever the model's precision, as `TrainedModel.encode_queries`.
        """
        device = next(model.parameters()).device
        token_ids, marked = mark_pictures(model, tokenizer, self.settings, self.stand_in, texts)
        rows = []
        with evaluating(model), evaluating(self.network):
            for start in range(0, len(texts), SENTENCES):
                part = slice(start, start + SENTENCES)
                pictures = torch.from_numpy(np.ascontiguousarray(images[part], np.float32)).to(device)
                words = self.network(pictures)
                sentences = compose_words(model, words, token_ids[part].to(device), marked[part].to(device))
                rows.append(join(model.unit_texts(sentences), pictures, self.image_weight).cpu())
        return torch.cat(rows).numpy() if rows else np.empty((0, model.embedding_dim), np.float32)


def join(
    sentences: Float[Tensor, "batch dim"], pictures: Float[Tensor, "batch dim"], weight: float
) -> Float[Tensor, "batch dim"]:
    """Unit embeddings of a query, of unit embeddings: the sentence's and, by its weight, the picture's."""
    return F.normalize((1 - weight) * sentences + weight * pictures, dim=1)


def compose_words(
    model: DualEncoder,
    words: Float[Tensor, "batch places width"],
    token_ids: Int64[Tensor, "batch words"],
    marked: Bool[Tensor, "batch words"],
) -> Float[Tensor, "batch dim"]:
    """Embeddings, not normalised, of sentences whose marked tokens are pictures; gradients reach `words`."""
    # both in the order of rows, and of places within a row
    return model.encode_texts_with(token_ids, marked, words.flatten(0, 1)).float()


def mark_pictures(
    model: DualEncoder, tokenizer: Tokenizer, settings: InversionSettings, stand_in: str, texts: Sequence[str]
) -> tuple[Int64[Tensor, "queries words"], Bool[Tensor, "queries words"]]:
    """Token ids of the prompt with each text behind it, and the places of the picture.

    Raises `SettingsError` for a text encoder that takes no vectors, and for a prompt too long for the model.
    """
    _ = model.text.token_width
    before, after = settings.prompt.split(STAR)
    sentences = [f"{before}{' '.join([stand_in] * settings.words)}{after} {text}" for text in texts]
    batch = model.tokenize(sentences, tokenizer, words=True)
    assert batch.words is not None
    starts = {len(before) + place * (len(stand_in) + 1) for place in range(settings.words)}
    marked = np.zeros(batch.token_ids.shape, bool)
    for row, words in enumerate(batch.words):
        # by the characters' places and not by the word: the text may hold it, too
        places = [word.tokens.start for word in words if word.start in starts and len(word.tokens) == 1]
        if len(places) != settings.words:
            raise SettingsError(
                f"the prompt {settings.prompt!r} has no place for the picture: '{stand_in}' is not one token in each "
                f"of its {settings.words} places; choose a shorter prompt, or one with blanks around {STAR}"
            )
        marked[row, places] = True
    return torch.from_numpy(batch.token_ids), torch.from_numpy(marked)


def find_stand_in(model: DualEncoder, tokenizer: Tokenizer, settings: InversionSettings) -> str:
    """A word that the tokenizer reads as one token in the prompt. Raises `SettingsError` if it has none."""
    plain = (entry for entry in tokenizer.entries if entry.isascii() and entry.isalpha())
    for word in (*_STAND_INS, *plain):
        try:
            mark_pictures(model, tokenizer, settings, word, [""])
        except SettingsError:
            # the encoder's own reason, if it takes no vectors at all
            _ = model.text.token_width
            continue
        return word
    raise SettingsError(
        f"no word of the model's tokenizer is one token in the prompt {settings.prompt!r}; try --prompt '{STAR}'"
    )


def write_inversion(run: Path, inversion: Inversion) -> Path:
    """Write the file into a run folder, or beside a checkpoint, atomically. Raises `CheckpointError`."""
    file = _place(run)
    write_checkpoint(file, inversion.network.state_dict(), inversion.description)
    return file


def describe(
    settings: InversionSettings, stand_in: str, image_weight: float, model: Mapping[str, Any], trained: Any
) -> dict[str, Any]:
    """The description of a file: `model` is its fingerprint, checkpoint, dim and token width."""
    return {
        "kind": _KIND,
        "inversion_format": FORMAT,
        **model,
        "settings": settings.model_dump(mode="json"),
        "stand_in": stand_in,
        "image_weight": image_weight,
        "trained": trained,
    }


def read_inversion(run: Path) -> Inversion | None:
    """The inversion in a run folder, or beside a checkpoint file, of any model; None if the file does not exist.

    Raises `CheckpointError` in one line for one that is damaged or of a later format.
    """
    file = _place(run)
    if not file.exists():
        return None
    tensors, description = read_checkpoint(file)
    if description.get("kind") != _KIND:
        raise CheckpointError(f"{file}: is no mapping of pictures to words; {_AGAIN}")
    if description.get("inversion_format") != FORMAT:
        raise CheckpointError(
            f"{file}: format {description.get('inversion_format')!r}, this limner reads {FORMAT}; upgrade limner, or "
            f"{_AGAIN}"
        )
    try:
        settings = InversionSettings.parse(description["settings"])
        network = PictureWords(settings, int(description["dim"]), int(description["token_width"]))
        stand_in, weight = str(description["stand_in"]), float(description["image_weight"])
    except (KeyError, TypeError, ValueError, SettingsError) as error:
        raise CheckpointError(f"{file}: damaged, its description does not fit ({error}); {_AGAIN}") from None
    load_into(network, tensors, file)
    return Inversion(settings, network.eval(), stand_in, weight, description)


def load_inversion(run: Path, fingerprint: str) -> Inversion | None:
    """The inversion of the model with this fingerprint; None without a file, and for one of another stage."""
    found = read_inversion(run)
    # words of another tower have no meaning to this one
    return found if found is not None and found.description.get("fingerprint") == fingerprint else None


def expect_inversion(run: Path, fingerprint: str) -> Inversion:
    """The inversion of the model with this fingerprint. Raises `CheckpointError` if the run has none for it."""
    found = read_inversion(run)
    if found is None:
        raise CheckpointError(f"{run}: has no {FILE}; train one with `limner compose`")
    other = str(found.description.get("fingerprint"))
    if other != fingerprint:
        raise CheckpointError(
            f"{_place(run)}: was trained for another model, {found.description.get('checkpoint')} with fingerprint "
            f"{other[:12]} and not {fingerprint[:12]}; {_AGAIN}, or choose its --stage"
        )
    return found


_AGAIN = "train it anew with `limner compose`, or remove it"


def _place(run: Path) -> Path:
    # a run may be given as its folder or as a checkpoint in it, and both must find the same file
    return (run.parent if run.is_file() else run) / FILE

"""A picture in the place of a word, for each kind of tokenizer; other text encoders refuse."""

from pathlib import Path

import numpy as np
import pytest
import torch

from limner.errors import SettingsError
from limner.inference.composing import compose_words, find_stand_in, mark_pictures
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.inversion import InversionSettings, PictureWords
from tests import towers

TEXTS = ["but with a red hat", "without it, a black bag and it", ""]


@pytest.fixture(scope="module", params=["clip", "siglip1", "siglip2", "alt-clip", "chinese-clip", "bert"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    if request.param == "bert":
        return load_model(request.getfixturevalue("late_run"), device="cpu")
    folder = tmp_path_factory.mktemp(request.param)
    makers = {
        "clip": towers.save_clip,
        "siglip1": towers.save_siglip1,
        "siglip2": towers.save_siglip2,
        "alt-clip": towers.save_altclip,
        "chinese-clip": towers.save_chinese_clip,
    }
    (folder / "source").mkdir()
    makers[request.param](folder / "source")
    import_model(str(folder / "source"), folder / "run")
    return load_model(folder / "run", device="cpu")


def settings(words: int = 1) -> InversionSettings:
    return InversionSettings(prompt="red *", words=words)


@pytest.mark.parametrize("words", [1, 2])
def test_the_vector_stands_where_the_word_stood(run: TrainedModel, words: int) -> None:
    """The slow twin exchanges the row of the table itself, for a text that has the word nowhere else."""
    model, chosen = run.model, settings(words)
    stand_in = find_stand_in(model, run.tokenizer, chosen)
    ids, marked = mark_pictures(model, run.tokenizer, chosen, stand_in, ["red red"])
    assert int(marked.sum()) == words
    vectors = torch.randn(1, 1, model.text.token_width).expand(1, words, -1)
    with torch.no_grad():
        found = compose_words(model, vectors, ids, marked)
        token = int(ids[marked][0])
        assert int((ids == token).sum()) == words
        before = model.text.table.weight.clone()
        # transformers' numbers begin at 0
        model.text.table.weight[token - 1] = vectors[0, 0]
        expected = model.encode_texts(ids)
        model.text.table.weight.copy_(before)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_own_vectors_change_nothing(run: TrainedModel) -> None:
    model, chosen = run.model, settings()
    ids, marked = mark_pictures(
        model, run.tokenizer, chosen, find_stand_in(model, run.tokenizer, chosen), TEXTS
    )
    with torch.no_grad():
        own = model.text.table(ids[marked] - 1)[:, None]
        torch.testing.assert_close(
            compose_words(model, own, ids, marked), model.encode_texts(ids), atol=1e-5, rtol=1e-4
        )
        other = compose_words(model, own + torch.randn(own.shape), ids, marked)
    assert bool(((other - model.encode_texts(ids)).abs().amax(1) > 1e-4).all())
    # nothing is left behind
    assert not model.text.table._forward_hooks


def test_each_row_has_its_own_picture(run: TrainedModel) -> None:
    model, chosen = run.model, settings(2)
    ids, marked = mark_pictures(
        model, run.tokenizer, chosen, find_stand_in(model, run.tokenizer, chosen), TEXTS
    )
    vectors = torch.randn(len(TEXTS), 2, model.text.token_width)
    with torch.no_grad():
        together = compose_words(model, vectors, ids, marked)
        alone = [compose_words(model, vectors[[n]], ids[[n]], marked[[n]]) for n in range(len(TEXTS))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_gradients_reach_the_mapping_alone(run: TrainedModel) -> None:
    model, chosen = run.model, settings()
    network = PictureWords(chosen, model.dim, model.text.token_width).eval()
    ids, marked = mark_pictures(
        model, run.tokenizer, chosen, find_stand_in(model, run.tokenizer, chosen), TEXTS
    )
    learning = [one for one in model.parameters() if one.requires_grad]
    for one in learning:
        one.requires_grad_(False)
    found = compose_words(model, network(torch.randn(len(TEXTS), model.dim)), ids, marked)
    gradients = torch.autograd.grad(found.square().sum(), list(network.parameters()))
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients)
    assert all(one.grad is None for one in model.parameters())
    for one in learning:
        one.requires_grad_(True)


def test_other_text_encoders_refuse_in_one_line(toy_run: Path, hgan_run: Path) -> None:
    for folder in (toy_run, hgan_run):
        run = load_model(folder, device="cpu")
        with pytest.raises(SettingsError, match="needs a text tower of transformers, as pretrained pairs"):
            find_stand_in(run.model, run.tokenizer, settings())


@pytest.mark.parametrize("prompt", ["a photo", "* and *", "a photo of*", "**"])
def test_a_prompt_has_one_star(prompt: str) -> None:
    with pytest.raises(SettingsError, match="expected one"):
        InversionSettings.parse({"prompt": prompt})


def test_a_prompt_that_is_longer_than_the_model_reads(run: TrainedModel) -> None:
    long = InversionSettings(prompt="a red bag " * 40 + "*")
    with pytest.raises(SettingsError, match="is one token in the prompt"):
        find_stand_in(run.model, run.tokenizer, long)


def test_the_mapping_has_the_shape_of_words() -> None:
    network = PictureWords(InversionSettings(words=3, hidden=7, layers=1), 5, 4)
    assert network(torch.from_numpy(np.ones((2, 5), np.float32))).shape == (2, 3, 4)

"""What MNiL and the identity-aware network have in common: an LSTM that may read a BERT held fixed."""

from typing import Any

import pytest
import torch

from limner.errors import SettingsError
from limner.models.image import BackboneSettings
from limner.models.lstm_encoder import LSTMEncoder, LSTMEncoderSettings
from limner.models.registry import build_network
from limner.models.text_bert import BertSettings
from limner.models.text_lstm import TextLSTMSettings
from limner.training.recipe import Recipe, StageSettings
from tests.toy import toy_identity_aware, toy_mnil, toy_reranking

BERT = BertSettings(model=None, layers=1, hidden="last", width=8, heads=2)

RECIPES = pytest.mark.parametrize(
    "recipe", [toy_mnil(), toy_identity_aware()], ids=["mnil", "identity-aware"]
)


def _above_bert(recipe: Recipe) -> LSTMEncoderSettings:
    settings = recipe.model.replace(
        text=TextLSTMSettings(words=8, word_dim=8, hidden=18, bert=BERT),
        backbone=BackboneSettings(name="resnet-18", width=0.125),
    )
    assert isinstance(settings, LSTMEncoderSettings)
    return settings


def _network(recipe: Recipe) -> Any:
    torch.manual_seed(0)
    network = build_network(_above_bert(recipe), 30)
    assert isinstance(network, LSTMEncoder)
    return network


@RECIPES
def test_a_bert_is_a_part_of_its_own(recipe: Recipe) -> None:
    model = _network(recipe)
    assert set(model.parts()) == model.settings.parts()
    listed = [id(parameter) for part in model.parts().values() for parameter in part]
    assert len(listed) == len(set(listed))
    assert set(listed) == {id(parameter) for parameter in model.parameters()}
    assert model.kept_words({"bert"}) is model.text.bert
    assert model.kept_words({"text"}) is None


@RECIPES
def test_sentences_whose_words_were_read_before_have_the_same_embedding(recipe: Recipe) -> None:
    model = _network(recipe).eval()
    pooled, numbers = torch.randn(3, 64), torch.randint(1, 30, (3, 8))
    below = model.text.bert(numbers)
    for given in (None, below):
        images, texts, _ = model.embed_pairs(pooled, numbers, words_below=given)
        torch.testing.assert_close(images, model.embed_images(pooled))
        torch.testing.assert_close(texts, model.encode_texts(numbers))
    assert not torch.allclose(model.embed_pairs(pooled, numbers, words_below=2 * below)[1], texts)


@RECIPES
@pytest.mark.parametrize(
    ("changes", "message"),
    [({"frozen": ()}, "add 'bert'"), ({"frozen": ("bert",), "position_shift": True}, "position_shift=false")],
)
def test_a_bert_is_held_fixed_and_its_sentences_stand_at_the_left(
    recipe: Recipe, changes: dict[str, Any], message: str
) -> None:
    stage = StageSettings(name="s", position_shift=False).replace(**changes)
    with pytest.raises(ValueError, match=message):
        _above_bert(recipe).check_stage(stage)


def test_a_cross_encoder_needs_a_table_of_word_vectors() -> None:
    recipe = toy_reranking()
    fixed = tuple(stage.replace(frozen=(*stage.frozen, "bert")) for stage in recipe.stages[:1])
    with pytest.raises(SettingsError, match=r"text\.bert=null"):
        recipe.replace(model=_above_bert(recipe), stages=(*fixed, *recipe.stages[1:]))

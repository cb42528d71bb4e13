"""Word vectors that a pretrained text tower makes."""

from pathlib import Path

import pytest
import torch

from limner.data.records import Dataset
from limner.data.tokenizers import WordTokenizer
from limner.errors import SettingsError
from limner.training.prepare import prepare
from limner.training.recipe import TOWER
from limner.training.word_table import tower_word_vectors
from tests.towers import LENGTH, save_bert_tokenizer
from tests.toy import toy_mnil

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random values, twelve numbers wide."""
    found = tmp_path_factory.mktemp("bert")
    pieces = save_bert_tokenizer(found)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=pieces.get_vocab_size(),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
    )
    transformers.BertModel(config).save_pretrained(found)
    return found


def test_a_words_vector_is_that_of_a_sentence_of_it_alone_less_the_mean_of_all(folder: Path) -> None:
    tokenizer = WordTokenizer.build(["a red bar", "a yellow circle on a red ground"])
    found = tower_word_vectors(str(folder), tokenizer, 12)
    reference = transformers.BertModel.from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for word in tokenizer.entries:
            states = reference(**read(word, return_tensors="pt")).last_hidden_state[0]
            rows.append(states.mean(dim=0) / states.mean(dim=0).norm())
    expected = torch.stack(rows)
    torch.testing.assert_close(found, expected - expected.mean(dim=0), atol=1e-5, rtol=0)


def test_training_begins_with_them(toys: Dataset, folder: Path) -> None:
    recipe = toy_mnil()
    recipe = recipe.replace(vocabulary=recipe.vocabulary.replace(vectors=f"{TOWER}{folder}"))
    prepared = prepare(recipe, toys.split("train"), toys.split("val"))
    assert isinstance(prepared.tokenizer, WordTokenizer)
    vectors = tower_word_vectors(str(folder), prepared.tokenizer, 12)
    table = prepared.objective.model.text.table.weight[1:]
    # one factor for all words
    torch.testing.assert_close(table / table.norm(), vectors / vectors.norm())
    assert table.std().item() == pytest.approx(0.1, rel=0.02)
    assert table.requires_grad


def test_a_tower_of_another_width_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"word_dim.*13.*has 12"):
        tower_word_vectors(str(folder), WordTokenizer.build(["a red bar"]), 13)

"""Two pretrained networks with the same weights and another configuration never share what is kept of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.models.image import BackboneSettings, build_backbone
from limner.models.text_bert import BertSettings, BertWords
from limner.training.feature_cache import cached_views
from limner.training.pictures import Pictures
from limner.training.sentence_features import sentence_features
from tests.toy import toy_recipe
from tests.training.test_origin import pretrained

transformers = pytest.importorskip("transformers")


def change(folder: Path, name: str, key: str, value: object) -> None:
    """Set a value in one of a folder's files."""
    file = folder / name
    file.write_text(
        json.dumps({**json.loads(file.read_text(encoding="utf-8")), key: value}), encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("config.json", "hidden_act", "gelu"), ("preprocessor_config.json", "image_mean", [0.1, 0.5, 0.5])],
)
def test_of_pictures(toys: Dataset, tmp_path: Path, name: str, key: str, value: object) -> None:
    pictures = Pictures([record.image for record in toys.records[:4]], toy_recipe().images)
    settings = BackboneSettings(name="auto", auto_model=str(pretrained(tmp_path / "auto")))

    def views(cache: str) -> np.ndarray:
        backbone = build_backbone(settings)
        kept = cached_views(
            backbone, settings, pictures, 2, seed=0, precision="fp32", folder=tmp_path / cache
        )
        return np.asarray(kept)

    first = views("cache")
    change(tmp_path / "auto", name, key, value)
    other = views("cache")
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(other, views("empty"))
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


def test_of_sentences(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    config = transformers.BertConfig(
        vocab_size=12, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(folder)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "coat", "hat", "a", "in", "man"]
    transformers.BertTokenizer(vocab={piece: n for n, piece in enumerate(pieces)}).save_pretrained(folder)

    def words(cache: str) -> np.ndarray:
        layer = BertWords(BertSettings(model=str(folder)), vocabulary_size=3)
        layer.read_vocabulary(("red", "coat", "man"))
        kept = sentence_features(layer, ((1, 2), (3,)), 5, precision="fp32", folder=tmp_path / cache)
        return kept.rows(np.arange(2), 5)

    first = words("cache")
    change(folder, "config.json", "hidden_act", "relu")
    other = words("cache")
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(other, words("empty"))

"""Text encoders on a sub-word tokenizer, from training to search in another process."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.models.text_bert import BertSettings
from limner.training.loop import train
from limner.training.prepare import prepare
from limner.training.recipe import Recipe, VocabularySettings
from tests.data.subwords import word_pieces
from tests.toy import toy_hgan, toy_recipe, toy_reranking

_CHINESE = {
    "red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "square": "方块", "circle": "圆圈", "bar": "长条",
    "white": "白底", "grey": "灰底", "black": "黑底",
}  # fmt: skip


@pytest.fixture(scope="module")
def chinese(toys: Dataset) -> Dataset:
    """The toys described in Chinese, which has no blanks between words."""
    records = tuple(
        dataclasses.replace(record, sentences=("上的".join(_CHINESE[word] for word in record.group.split()),))
        for record in toys.records
    )
    return dataclasses.replace(toys, records=records)


@pytest.fixture
def folder(chinese: Dataset, tmp_path: Path) -> Path:
    """A tokenizer trained on the Chinese captions."""
    captions = tuple(sentence for record in chinese.records for sentence in record.sentences)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(word_pieces(captions), encoding="utf-8")
    return tmp_path / "tokenizer"


def _on(recipe: Recipe, folder: Path, *, special_tokens: bool = False) -> Recipe:
    return recipe.replace(
        vocabulary=VocabularySettings(tokenizer=str(folder), special_tokens=special_tokens),
        model=recipe.model.replace(text=recipe.model.text.replace(words=12)),
    )


def test_a_text_cnn_on_sub_words_from_training_to_search(
    chinese: Dataset, folder: Path, tmp_path: Path
) -> None:
    recipe = _on(toy_recipe(), folder, special_tokens=True)
    out = train(recipe, chinese.split("train"), chinese.split("val"), tmp_path / "run", cpu=True)
    # a run needs nothing but its own folder
    shutil.rmtree(folder)
    run = limner.load(out, device="cpu", precision="fp32")
    sentences = ["红色上的方块上的白底", "蓝色圆圈", "黄色", "A red square"]
    assert run.known_words("蓝色 圆圈") == list("蓝色圆圈")
    assert run.description["data"]["train_sentences_cut"] == 0
    embedded = run.encode_texts(sentences)
    assert len(np.unique(embedded.round(4), axis=0)) == len(sentences)
    with pytest.raises(DataError, match="the query is empty"):
        run.check_query(" ")

    program = (
        "import sys, json, limner; run = limner.load(sys.argv[1], device='cpu', precision='fp32'); "
        "print(json.dumps([run.fingerprint, run.encode_texts(json.loads(sys.argv[2])).tolist()]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(out), json.dumps(sentences)], capture_output=True, check=True
    )
    fingerprint, again = json.loads(found.stdout)
    assert fingerprint == run.fingerprint
    np.testing.assert_allclose(again, embedded, atol=1e-6)

    pictures = chinese.split("test").records[0].image.parent
    for words in (
        ["index", str(out), str(tmp_path / "store"), str(pictures)],
        ["search", str(tmp_path / "store"), "红色上的方块上的白底"],
    ):
        answer = subprocess.run([sys.executable, "-m", "limner", *words], capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
    assert ".png" in answer.stdout


def test_re_ranking_explains_by_words_of_several_tokens(toys: Dataset, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(word_pieces(("bar",)), encoding="utf-8")
    recipe = _on(toy_reranking(), tmp_path / "tokenizer")
    (first, second, _) = recipe.stages
    recipe = recipe.replace(stages=(first.replace(epochs=1), second.replace(epochs=1)))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    run = limner.load(out, stage=second.name, device="cpu", precision="fp32")
    assert run.reranker is not None
    maps = run.encode_regions([record.image for record in toys.split("test").records[:3]])
    found = run.reranker.rerank("a red bar", maps)
    assert found.words == ("a", "red", "bar")
    assert len(run.tokenize(["a red bar"]).token_ids[0].nonzero()[0]) > 3
    assert found.of_regions is not None
    assert found.of_words is not None
    np.testing.assert_allclose(found.of_regions.sum(axis=(2, 3)), 1, atol=1e-5)
    np.testing.assert_allclose(found.of_words.sum(axis=2), 1, atol=1e-5)


def test_noun_phrases_reach_hgan_on_sub_words(toys: Dataset, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(word_pieces(("bar",)), encoding="utf-8")
    recipe = _on(toy_hgan(), tmp_path / "tokenizer")
    prepared = prepare(recipe, toys.split("train"), toys.split("val"))
    assert prepared.pairs.phrases is not None
    assert max(map(max, prepared.pairs.phrases)) == 2
    assert 0 < prepared.pairs.truncated <= sum(len(sentence) == 12 for sentence in prepared.pairs.sentences)
    assert prepared.identity["data"]["train_sentences_cut"] == prepared.pairs.truncated
    assert prepared.val_tokens.phrases is not None
    text = recipe.model.text.replace(bert=BertSettings(model=None, layers=1, hidden="last", width=8, heads=1))
    with pytest.raises(SettingsError, match=r"setting 'vocabulary\.tokenizer'.* whole words"):
        prepare(recipe.replace(model=recipe.model.replace(text=text)), toys.split("train"), toys.split("val"))


def test_settings_of_words_and_of_a_tokenizer_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="whose place tokenizer and pieces take"):
        VocabularySettings.parse({"tokenizer": "folder", "min_count": 2})
    with pytest.raises(SettingsError, match="whose place tokenizer and pieces take"):
        VocabularySettings.parse({"tokenizer": "folder", "vectors": "captions"})
    with pytest.raises(SettingsError, match=r"set vocabulary\.tokenizer"):
        VocabularySettings.parse({"special_tokens": True})


def test_a_tokenizer_that_changed_is_another_run(toys: Dataset, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    seen = []
    for captions in (("bar",), ("bar", "square")):
        (tmp_path / "tokenizer" / "tokenizer.json").write_text(word_pieces(captions), encoding="utf-8")
        prepared = prepare(_on(toy_recipe(), tmp_path / "tokenizer"), toys.split("train"), toys.split("val"))
        seen.append(prepared.identity["tokenizer"])
    assert seen[0] != seen[1]

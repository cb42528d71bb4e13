"""Words of captions exchanged, on captions of our own."""

import json
from pathlib import Path

import pytest
from PIL import Image

import limner
from benchmarks.lies_flickr8k import lies

CAPTIONS = {
    "1.jpg": ["A man in an orange shirt rides a red horse .", "Somebody rides for an hour ."],
    "2.jpg": ["A black and white dog runs .", "Two girls in gray coats ."],
    "3.jpg": ["A woman and a man in blue ."],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    listed = []
    for name, texts in CAPTIONS.items():
        Image.new("RGB", (40, 40)).save(tmp_path / "images" / name)
        listed.append({"filename": name, "split": "val", "sentences": [{"raw": text} for text in texts]})
    (tmp_path / "dataset_flickr8k.json").write_text(json.dumps({"images": listed}), encoding="utf-8")
    return tmp_path


def test_lies_change_what_they_say_and_nothing_else(folder: Path, toy_run: Path) -> None:
    found: dict[str, set[tuple[str, str]]] = {}
    for seed in range(30):
        pairs = lies(folder, "val", seed)
        for pair in pairs.pairs:
            true, false = pairs.sentences[pair.sentence], pairs.sentences[pair.false_sentence]
            found.setdefault(pair.kind, set()).add((true, false))
    # "black and white" stays, and so does a caption with both words of a pair
    assert found["two colours"] == {
        ("A man in an orange shirt rides a red horse .", "A man in a red shirt rides an orange horse .")
    }
    assert found["who"] == {
        ("A man in an orange shirt rides a red horse .", "A woman in an orange shirt rides a red horse ."),
        ("Two girls in grey coats .", "Two boys in grey coats ."),
    }
    assert ("A woman and a man in blue .", "A woman and a man in grey .") in found["colour"]
    for true, false in found["colour"]:
        apart = set(true.lower().split()) ^ set(false.lower().split())
        assert len(apart - {"a", "an"}) == 2, (true, false)
    assert {"colour", "who"} <= limner.bench(toy_run, pairs).kinds.keys()

"""A checkpoint that was written once opens for ever: one small run a format, in tests/inference/formats.

Each is a narrow identity-aware network with a cross-encoder, trained on toys, and its embeddings of one sentence and
one image. Its tokenizer.json and the images that it has learnt from are among its tensors.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import limner
from limner.errors import CheckpointError
from limner.inference.checkpoint import (
    FORMAT,
    SELECTED_ON,
    TOKENIZER,
    TRAINED_ON,
    read_checkpoint,
    write_checkpoint,
)

RUNS = Path(__file__).parent / "formats"
SENTENCE = "a red square on white"


def test_each_format_has_a_run() -> None:
    # formats before 4 were never released
    assert sorted(path.name for path in RUNS.iterdir()) == [f"format-{n}" for n in range(4, FORMAT + 1)]


@pytest.mark.parametrize("run", sorted(RUNS.iterdir()), ids=lambda path: path.name)
def test_it_gives_what_it_gave(run: Path) -> None:
    model = limner.load(run, device="cpu", precision="fp32")
    expected = json.loads((run / "expected.json").read_text(encoding="utf-8"))
    image = np.tile(np.arange(36, dtype=np.uint8)[:, None, None] * 7, (1, 36, 3))
    # another processor adds in another order
    np.testing.assert_allclose(model.encode_texts(SENTENCE)[0], expected["text"], atol=1e-4)
    np.testing.assert_allclose(model.encode_images(image)[0], expected["image"], atol=1e-4)
    assert model.reranker is not None
    regions = model.reranker.region_features(model.prepare_image(image)[None])
    found = model.reranker.rerank(SENTENCE, regions)
    assert found.logits[0] == pytest.approx(expected["logit"], abs=1e-2)  # regions are kept in half precision


def test_another_tokenizer_than_the_description_says_is_refused(tmp_path: Path) -> None:
    run = shutil.copytree(RUNS / "format-4", tmp_path / "run")
    file = run / "stage-2.safetensors"
    tensors, description = read_checkpoint(file)
    tensors[TOKENIZER] = torch.cat([tensors[TOKENIZER], torch.tensor([32], dtype=torch.uint8)])
    write_checkpoint(file, tensors, description)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is damaged"):
        limner.load(run)
    del tensors[TOKENIZER]
    write_checkpoint(file, tensors, description)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        limner.load(run)


def test_format_4_names_the_images_that_were_learnt_from() -> None:
    model = limner.load(RUNS / "format-4", device="cpu", precision="fp32")
    assert (len(model.learnt[TRAINED_ON]), len(model.learnt[SELECTED_ON])) == (7, 2)


@pytest.mark.parametrize("version", [1, FORMAT - 1, FORMAT + 1])
def test_another_format_has_one_clear_line(tmp_path: Path, version: int) -> None:
    run = shutil.copytree(RUNS / f"format-{FORMAT}", tmp_path / "run")
    file = run / json.loads((run / "run.json").read_text(encoding="utf-8"))["best"]
    tensors, description = read_checkpoint(file)
    write_checkpoint(file, tensors, {**description, "format": version})
    with pytest.raises(CheckpointError, match=rf"checkpoint format {version}, this limner reads {FORMAT}"):
        limner.load(run)

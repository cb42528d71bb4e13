"""The file of `limner compose`: written, read, and refused where it is damaged or another model's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.composing import (
    FILE,
    Inversion,
    describe,
    expect_inversion,
    load_inversion,
    read_inversion,
    write_inversion,
)
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.models.inversion import InversionSettings, PictureWords

TEXTS = ["but red", "on white ground"]


@pytest.fixture(scope="module")
def run(late_run: Path) -> TrainedModel:
    return load_model(late_run, device="cpu", precision="fp32")


def inversion(run: TrainedModel, fingerprint: str | None = None, **settings: Any) -> Inversion:
    chosen = InversionSettings(prompt="a *", hidden=8, layers=1, **settings)
    torch.manual_seed(0)
    width = run.model.text.token_width
    model = {
        "fingerprint": fingerprint or run.fingerprint,
        "checkpoint": run.path.name,
        "dim": run.dim,
        "token_width": width,
    }
    description = describe(chosen, "a", 0.3, model, {"seed": 0})
    return Inversion(chosen, PictureWords(chosen, run.dim, width).eval(), "a", 0.3, description)


def pictures(run: TrainedModel, count: int = len(TEXTS)) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(count, run.dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_what_is_read_composes_as_what_was_written(run: TrainedModel, tmp_path: Path) -> None:
    made = inversion(run)
    assert write_inversion(tmp_path, made) == tmp_path / FILE
    read = expect_inversion(tmp_path, run.fingerprint)
    images = pictures(run)
    found = read.compose(run.model, run.tokenizer, images, TEXTS)
    np.testing.assert_array_equal(found, made.compose(run.model, run.tokenizer, images, TEXTS))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    # each query by itself, and another picture or text is another query
    alone = [read.compose(run.model, run.tokenizer, images[[n]], [TEXTS[n]]) for n in range(2)]
    np.testing.assert_allclose(found, np.concatenate(alone), atol=1e-5)
    assert np.abs(found - read.compose(run.model, run.tokenizer, images[::-1], TEXTS)).max() > 1e-3
    assert read.compose(run.model, run.tokenizer, images[:0], []).shape == (0, run.dim)


def test_the_pictures_weight_alone_is_the_picture(run: TrainedModel) -> None:
    made = inversion(run)
    whole = Inversion(made.settings, made.network, made.stand_in, 1.0, {})
    np.testing.assert_allclose(
        whole.compose(run.model, run.tokenizer, pictures(run), TEXTS), pictures(run), atol=1e-6
    )


def test_a_run_without_one(run: TrainedModel, tmp_path: Path) -> None:
    assert read_inversion(tmp_path) is None
    assert load_inversion(tmp_path, run.fingerprint) is None
    with pytest.raises(CheckpointError, match="train one with `limner compose`"):
        expect_inversion(tmp_path, run.fingerprint)


def test_that_of_other_weights_is_refused(run: TrainedModel, tmp_path: Path) -> None:
    write_inversion(tmp_path, inversion(run, "f" * 64))
    assert load_inversion(tmp_path, run.fingerprint) is None
    with pytest.raises(
        CheckpointError, match=r"was trained for another model, stage-2\.safetensors with fingerprint f"
    ):
        expect_inversion(tmp_path, run.fingerprint)


def test_a_damaged_file_is_refused(run: TrainedModel, tmp_path: Path) -> None:
    file = write_inversion(tmp_path, inversion(run))
    whole = file.read_bytes()
    for place in (20, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError):
            read_inversion(tmp_path)
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError):
        read_inversion(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "is no mapping of pictures to words"),
        ({"inversion_format": 2}, "format 2, this limner reads 1; upgrade limner"),
        ({"settings": {"prompt": "a"}}, "its description does not fit"),
        ({"dim": "x"}, "its description does not fit"),
        ({"dim": 3}, "has shape"),
    ],
)
def test_another_description_is_refused(
    run: TrainedModel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = write_inversion(tmp_path, inversion(run))
    tensors, description = read_checkpoint(file)
    write_checkpoint(file, tensors, {**description, **changes})
    with pytest.raises(CheckpointError, match=message):
        read_inversion(tmp_path)


def test_it_is_no_checkpoint_of_a_model(run: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not the checkpoint of a model"):
        load_model(write_inversion(tmp_path, inversion(run)))


def test_a_file_of_format_1_opens_for_ever() -> None:
    found = read_inversion(Path(__file__).parent / "inversions" / "format-1")
    assert found is not None
    assert (found.stand_in, found.image_weight, found.settings.prompt) == ("it", 0.5, "a *")
    expected = torch.tensor([[[0.215559, 0.208698, -0.467319]]])
    with torch.no_grad():
        torch.testing.assert_close(found.network(torch.ones(1, 4)), expected, atol=1e-5, rtol=0)

"""An exported model that was written once opens for ever: one a format, in tests/export/formats.

Each is the run of tests/inference/formats of the same day, and gives what that run gave.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from limner.export.exported import FORMAT, load_export

pytest.importorskip("onnxruntime")

EXPORTS = Path(__file__).parent / "formats"
SENTENCE = "a red square on white"


def test_each_format_has_an_export() -> None:
    assert sorted(path.name for path in EXPORTS.iterdir()) == [f"format-{n}" for n in range(1, FORMAT + 1)]


@pytest.mark.parametrize("export", sorted(EXPORTS.iterdir()), ids=lambda path: path.name)
def test_it_gives_what_it_gave(export: Path) -> None:
    model = load_export(export)
    model.expect_whole()
    expected = json.loads((export / "expected.json").read_text(encoding="utf-8"))
    image = np.tile(np.arange(36, dtype=np.uint8)[:, None, None] * 7, (1, 36, 3))
    pixels = model.prepare_image(image)[None]
    # another processor adds in another order
    np.testing.assert_allclose(model.encode_texts(SENTENCE)[0], expected["text"], atol=1e-4)
    np.testing.assert_allclose(model.encode_pixels(pixels)[0], expected["image"], atol=1e-4)
    assert model.reranker is not None
    found = model.reranker.rerank(SENTENCE, model.reranker.region_features(pixels))
    assert found.logits[0] == pytest.approx(expected["logit"], abs=1e-2)  # regions are kept in half precision

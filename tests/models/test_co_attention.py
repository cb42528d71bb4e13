import pytest
import torch
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.co_attention import CoAttention, CoAttentionSettings
from tests.reference import co_attention as twin

BATCH, WORDS, REGIONS, WORD_DIM, REGION_DIM = 4, 5, 6, 7, 3


def tiny(**changes: object) -> CoAttention:
    torch.manual_seed(0)
    settings = CoAttentionSettings(steps=3, spatial_dim=4, semantic_dim=5, dim=6).replace(**changes)
    return CoAttention(settings, REGION_DIM, WORD_DIM).double()


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    regions = torch.randn(BATCH, REGIONS, REGION_DIM, dtype=torch.float64)
    words = torch.randn(BATCH, WORDS, WORD_DIM, dtype=torch.float64)
    present = torch.arange(WORDS) < torch.tensor([[5], [3], [1], [4]])
    return regions, words, present


def _of(layer: nn.Linear) -> tuple[list[list[float]], list[float]]:
    return layer.weight.tolist(), layer.bias.tolist()


def _layers(model: CoAttention, x: list[float]) -> list[float]:
    for layer in model.layers:
        if isinstance(layer, nn.Linear):
            weight, bias = _of(layer)
            x = twin.relu(twin.plus(twin.times(weight, x), bias))
    return x


def _joint(model: CoAttention, regions: list[list[float]], words: list[list[float]]) -> list[list[float]]:
    (w_h, b_h), (w_p, b_p) = _of(model.word_layer), _of(model.spatial_score)
    w_i = model.region_layer.weight.tolist()
    found = []
    for h in words:
        attention = twin.spatial_attention(regions, h, w_i, w_h, b_h, w_p[0], b_p[0])
        found.append(twin.weighted(attention, regions) + h)
    return found


def test_equals_loops_over_the_equations() -> None:
    model = tiny()
    regions, words, present = inputs()
    match = model(regions, words, present)
    (w_x, b_x), (w_e, b_e) = _of(model.semantic_words), _of(model.semantic_score)
    w_c = model.semantic_state.weight.tolist()
    w_out, b_out = _of(model.confidence)
    cell = model.decoder
    for row in range(BATCH):
        length = int(present[row].sum())
        xs = _joint(model, regions[row].tolist(), words[row, :length].tolist())
        state, memory = [0.0] * 6, [0.0] * 6
        for step in range(3):
            attention = twin.semantic_attention(xs, state, w_x, b_x, w_c, w_e[0], b_e[0])
            assert match.of_words is not None
            assert match.of_words[row, step, :length].tolist() == pytest.approx(attention, rel=1e-5)
            assert not match.of_words[row, step, length:].any()
            state, memory = twin.lstm_step(
                _layers(model, twin.weighted(attention, xs)),
                state,
                memory,
                cell.weight_ih.tolist(),
                cell.weight_hh.tolist(),
                cell.bias_ih.tolist(),
                cell.bias_hh.tolist(),
            )
        expected = twin.times(w_out, state)[0] + b_out[0]
        assert match.logits[row].item() == pytest.approx(expected, rel=1e-5)


def test_spatial_attention_equals_its_loops() -> None:
    model = tiny()
    regions, words, present = inputs()
    found = model(regions, words, present).of_regions
    assert found is not None
    (w_h, b_h), (w_p, b_p) = _of(model.word_layer), _of(model.spatial_score)
    w_i = model.region_layer.weight.tolist()
    for row in range(BATCH):
        for t in range(WORDS):
            h = words[row, t].tolist()
            expected = twin.spatial_attention(regions[row].tolist(), h, w_i, w_h, b_h, w_p[0], b_p[0])
            assert found[row, t].tolist() == pytest.approx(expected, rel=1e-5)


def test_without_semantic_attention_the_words_are_averaged() -> None:
    model = tiny(semantic=False)
    regions, words, present = inputs()
    match = model(regions, words, present)
    assert match.of_words is None
    w_out, b_out = _of(model.confidence)
    for row in range(BATCH):
        length = int(present[row].sum())
        xs = _joint(model, regions[row].tolist(), words[row, :length].tolist())
        feature = _layers(model, twin.weighted([1 / length] * length, xs))
        assert match.logits[row].item() == pytest.approx(twin.times(w_out, feature)[0] + b_out[0], rel=1e-5)


def test_without_both_the_mean_region_meets_the_last_word() -> None:
    model = tiny(semantic=False, spatial=False)
    regions, words, present = inputs()
    match = model(regions, words, present)
    assert match.of_words is None
    assert match.of_regions is None
    w_out, b_out = _of(model.confidence)
    for row in range(BATCH):
        last = int(present[row].sum()) - 1
        mean = twin.weighted([1 / REGIONS] * REGIONS, regions[row].tolist())
        feature = _layers(model, mean + words[row, last].tolist())
        assert match.logits[row].item() == pytest.approx(twin.times(w_out, feature)[0] + b_out[0], rel=1e-5)


def test_what_stands_behind_a_sentence_and_the_order_of_regions_change_nothing() -> None:
    model = tiny()
    regions, words, present = inputs()
    before = model(regions, words, present).logits
    words = torch.where(present[:, :, None], words, 9.0)
    torch.testing.assert_close(model(regions, words, present).logits, before)
    torch.testing.assert_close(model(regions[:, torch.randperm(REGIONS)], words, present).logits, before)


def test_permuting_the_batch_permutes_the_matches() -> None:
    model = tiny()
    regions, words, present = inputs()
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(
        model(regions[order], words[order], present[order]).logits,
        model(regions, words, present).logits[order],
    )


@pytest.mark.parametrize("changes", [{}, {"semantic": False}, {"semantic": False, "spatial": False}], ids=str)
def test_gradients_reach_everything(changes: dict[str, object]) -> None:
    model = tiny(**changes)
    regions, words, present = inputs()
    regions.requires_grad_()
    words.requires_grad_()
    logits = model(regions, words, present).logits
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
    torch.autograd.backward(loss)
    assert regions.grad is not None
    assert regions.grad.any()
    assert words.grad is not None
    assert words.grad.any()
    for name, parameter in model.named_parameters():
        # a softmax does not see what is added to all of its scores
        if name not in {"spatial_score.bias", "semantic_score.bias"}:
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


def test_semantic_attention_is_not_offered_without_spatial() -> None:
    with pytest.raises(SettingsError, match="set both"):
        CoAttentionSettings.parse({"spatial": False})


def test_logits_do_not_tie_under_autocast() -> None:
    model = tiny(dim=128).float()
    regions, words, present = inputs()
    many = [part.repeat(200, 1, 1) for part in (regions.float(), words.float())]
    many[0] += 0.3 * torch.randn_like(many[0])
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(*many, present.repeat(200, 1)).logits
    assert logits.dtype == torch.float32
    assert len(logits.unique()) > 0.9 * len(logits)

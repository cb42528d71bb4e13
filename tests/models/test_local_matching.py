import pytest
import torch
from torch import Tensor

from limner.models.local_matching import LocalMatching, LocalMatchingSettings
from tests.reference import gumbel_attention as twin

IMAGES, SENTENCES, REGIONS, WORDS, DIM = 3, 4, 5, 6, 7
LENGTHS = (6, 3, 1, 4)


def level(**changes: object) -> LocalMatching:
    torch.manual_seed(0)
    settings = LocalMatchingSettings(hidden=8, k_items=2, k_regions=3).replace(**changes)
    return LocalMatching(settings, DIM).eval()


def parts(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    present = torch.arange(WORDS) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(IMAGES, REGIONS, DIM), torch.randn(SENTENCES, WORDS, DIM), present


def similarities(model: LocalMatching, regions: Tensor, words: Tensor, present: Tensor) -> Tensor:
    match = model(model.project_regions(regions), model.project_items(words, present))
    found: Tensor = match.similarity
    return found


def _perceptrons(model: LocalMatching) -> tuple[twin.Perceptron, twin.Perceptron]:
    """MLP(v, t) of Eq. 2, which reads [v, t], and MLP(v + t^f) of Eq. 8."""
    first = torch.cat([model.score_of_region.weight, model.score_of_item.weight], dim=1).tolist()
    bias, second = model.score_of_region.bias.tolist(), model.score.weight[0].tolist()
    read = model.relevance_of_sum.weight.tolist(), model.relevance_of_sum.bias.tolist()
    last = model.relevance.weight[0].tolist(), model.relevance.bias.item()
    return (
        lambda pair: twin.perceptron(pair, first, bias, second, model.score.bias.item()),
        lambda summed: twin.perceptron(summed, *read, *last),
    )


@pytest.mark.parametrize("attention", ["gumbel", "soft"])
@pytest.mark.parametrize("direction", ["both", "image_to_text", "text_to_image"])
@pytest.mark.parametrize("selects", ["regions", "words"])
def test_equals_loops_over_the_equations(selects: str, direction: str, attention: str) -> None:
    model = level(attention=attention, direction=direction, selects=selects)
    regions, words, present = parts()
    got = similarities(model, regions, words, present)
    k1, k2 = (None, None) if attention == "soft" else (2, 3)
    for image in range(IMAGES):
        for sentence, length in enumerate(LENGTHS):
            v, t = regions[image].tolist(), words[sentence, :length].tolist()
            expected = twin.similarity(selects, direction, v, t, _perceptrons(model), k1, k2)
            assert got[image, sentence].item() == pytest.approx(expected, rel=1e-5)


def test_which_side_selects_makes_no_difference_to_soft_attention_of_both() -> None:
    regions, words, present = parts()
    one, other = (
        similarities(level(attention="soft", selects=selects), regions, words, present)
        for selects in ("regions", "words")
    )
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("selects", ["regions", "words"])
def test_one_direction_has_the_weights_of_the_side_that_selects(selects: str) -> None:
    regions, words, present = parts()
    other = "words" if selects == "regions" else "regions"
    for direction, side in (("image_to_text", selects), ("text_to_image", other)):
        model = level(direction=direction, selects=selects)
        match = model(model.project_regions(regions), model.project_items(words, present))
        assert (match.of_items is not None, match.of_regions is not None) == (
            side == "regions",
            side == "words",
        )


def test_a_pair_alone_scores_as_among_all() -> None:
    model = level()
    regions, words, present = parts()
    whole = similarities(model, regions, words, present)
    for image in range(IMAGES):
        for sentence in range(SENTENCES):
            alone = similarities(
                model,
                regions[image : image + 1],
                words[sentence : sentence + 1],
                present[sentence : sentence + 1],
            )
            torch.testing.assert_close(alone[0, 0], whole[image, sentence])


def test_empty_positions_and_the_order_of_parts_change_nothing() -> None:
    model = level()
    regions, words, present = parts()
    before = similarities(model, regions, words, present)
    noisy = torch.where(present[:, :, None], words, torch.randn_like(words))
    torch.testing.assert_close(similarities(model, regions, noisy, present), before)
    order, places = torch.randperm(REGIONS), torch.randperm(WORDS)
    again = similarities(model, regions[:, order], words[:, places], present[:, places])
    torch.testing.assert_close(again, before)


def test_a_sentence_without_any_item_has_similarity_0_and_no_gradient() -> None:
    model = level().train()
    regions, words, _ = parts()
    present = torch.zeros(SENTENCES, WORDS, dtype=torch.bool)
    words.requires_grad_()
    found = similarities(model, regions, words, present)
    assert not found.any()
    (gradient,) = torch.autograd.grad(found.sum(), words)
    assert not gradient.any()


@pytest.mark.parametrize("direction", ["image_to_text", "text_to_image"])
def test_gradients_reach_both_sides_through_the_selection(direction: str) -> None:
    model = level(direction=direction).train()
    regions, words, present = parts()
    regions.requires_grad_()
    words.requires_grad_()
    halves = model.project_regions(regions), model.project_items(words, present)
    match = model(*halves, torch.Generator().manual_seed(0))
    match.similarity.sum().backward()
    assert regions.grad is not None
    assert words.grad is not None
    assert (regions.grad.abs().sum(dim=2) > 0).all()
    assert (words.grad.abs().sum(dim=2) > 0)[present].all()
    assert not words.grad[~present].any()
    assert model.score.weight.grad is not None
    assert model.score.weight.grad.any()


@pytest.mark.parametrize(("selects", "of_region", "of_word"), [("regions", 2, 3), ("words", 3, 2)])
def test_attention_is_over_what_was_selected(selects: str, of_region: int, of_word: int) -> None:
    model = level(selects=selects)
    regions, words, present = parts()
    match = model(model.project_regions(regions), model.project_items(words, present))
    assert match.of_items.sum(dim=3).allclose(torch.ones(()))
    assert match.of_regions.sum(dim=3)[present[None].expand(IMAGES, -1, -1)].allclose(torch.ones(()))
    for sentence, length in enumerate(LENGTHS):
        assert ((match.of_items[:, sentence] > 0).sum(dim=2) == min(of_region, length)).all()
        assert ((match.of_regions[:, sentence, :length] > 0).sum(dim=2) == of_word).all()


def test_noise_is_drawn_in_training_alone_and_from_the_generator() -> None:
    model = level()
    regions, words, present = parts()
    halves = model.project_regions(regions), model.project_items(words, present)
    model.train()
    one, same, other = (model(*halves, torch.Generator().manual_seed(seed)).similarity for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    model.eval()
    assert torch.equal(model(*halves).similarity, model(*halves).similarity)


def test_where_noise_is_added_changes_training_alone() -> None:
    regions, words, present = parts()
    found = []
    for noise_on in ("normalised", "scores"):
        model = level(noise_on=noise_on)
        # large scores, which the norm takes back
        torch.nn.init.normal_(model.score.weight, std=5.0)
        halves = model.project_regions(regions), model.project_items(words, present)
        at_test = model(*halves).similarity
        in_training = model.train()(*halves, torch.Generator().manual_seed(0)).similarity
        found.append((at_test, in_training))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert not torch.allclose(found[0][1], found[1][1])


def test_the_temperature_goes_to_its_last_by_equal_factors() -> None:
    model = level(temperature=2.0, last_temperature=0.5)
    found = []
    for done in (0.0, 0.5, 1.0):
        model.anneal(done)
        found.append(model.temperature)
    assert found == pytest.approx([2.0, 1.0, 0.5])
    constant = level(temperature=0.7)
    constant.anneal(0.5)
    assert constant.temperature == 0.7


def test_the_temperature_changes_the_gradient_and_not_the_similarity() -> None:
    regions, words, present = parts()
    found: list[Tensor] = []
    gradients: list[Tensor] = []
    for temperature in (0.5, 2.0):
        model = level(temperature=temperature).train()
        own = regions.clone().requires_grad_()
        match = model(
            model.project_regions(own), model.project_items(words, present), torch.Generator().manual_seed(0)
        )
        found.append(match.similarity)
        gradients += torch.autograd.grad(match.similarity.sum(), own)
    torch.testing.assert_close(*found)
    assert not torch.allclose(gradients[0], gradients[1])


def test_the_gradient_is_that_of_the_temperature_that_was_reached() -> None:
    regions, words, present = parts()
    gradients: list[Tensor] = []
    for settings, done in (({"temperature": 2.0, "last_temperature": 0.5}, 1.0), ({"temperature": 0.5}, 0.0)):
        model, own = level(**settings).train(), regions.clone().requires_grad_()
        model.anneal(done)
        match = model(
            model.project_regions(own), model.project_items(words, present), torch.Generator().manual_seed(0)
        )
        gradients += torch.autograd.grad(match.similarity.sum(), own)
    torch.testing.assert_close(*gradients)


def _written_out(model: LocalMatching, v: Tensor, t: Tensor, noise: Tensor, side: str, k: int) -> Tensor:
    """Eq. 2 and Eq. 5 to 8 of one pair, with the straight-through selection, on [v, t] and v + t^f as they stand."""
    pairs = torch.cat([v[:, None].expand(-1, len(t), -1), t[None].expand(len(v), -1, -1)], dim=2)
    first = torch.cat([model.score_of_region.weight, model.score_of_item.weight], dim=1)
    gamma = model.score(torch.relu(pairs @ first.T + model.score_of_region.bias)).squeeze(2)
    own, others = v, t
    if side == "words":
        gamma, own, others = gamma.T, t, v
    normalised = model.settings.noise_on == "normalised"
    keys = (torch.nn.functional.normalize(gamma, dim=1) if normalised else gamma) + noise
    hard = torch.zeros_like(keys).scatter(1, keys.topk(k, dim=1).indices, 1.0)
    soft = keys.softmax(dim=1)
    chosen = hard + soft - soft.detach()
    weights = gamma.masked_fill(hard == 0, -torch.inf).softmax(dim=1)
    fused = own + (weights * chosen) @ others
    read: Tensor = model.relevance(torch.relu(model.relevance_of_sum(fused)))
    return torch.sigmoid(read).mean()


@pytest.mark.parametrize("noise_on", ["normalised", "scores"])
@pytest.mark.parametrize(
    ("selects", "direction", "side", "k"),
    [
        ("regions", "image_to_text", "regions", 2),
        ("regions", "text_to_image", "words", 3),
        ("words", "image_to_text", "words", 2),
        ("words", "text_to_image", "regions", 3),
    ],
)
def test_gradients_equal_those_of_the_equations_written_out(
    selects: str, direction: str, side: str, k: int, noise_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = level(selects=selects, direction=direction, noise_on=noise_on).double().train()
    torch.nn.init.normal_(model.relevance_of_sum.bias)
    torch.nn.init.normal_(model.score_of_region.bias)
    regions, words = torch.randn(1, REGIONS, DIM).double(), torch.randn(1, WORDS, DIM).double()
    present = torch.ones(1, WORDS, dtype=torch.bool)
    shape = (REGIONS, WORDS) if side == "regions" else (WORDS, REGIONS)
    noise = torch.randn(shape).double()
    monkeypatch.setattr(
        "limner.models.local_matching.gumbel_noise", lambda like, generator: noise.view(like.shape)
    )
    monkeypatch.setattr(Tensor, "float", lambda tensor: tensor)  # compared in float64
    match = model(model.project_regions(regions), model.project_items(words, present))
    expected = _written_out(model, regions[0], words[0], noise, side, k)
    torch.testing.assert_close(match.similarity[0, 0], expected)
    parameters = list(model.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(match.similarity[0, 0], parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)

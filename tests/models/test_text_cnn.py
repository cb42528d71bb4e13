import inspect
from collections.abc import Mapping
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from limner.documented import field_docstrings
from limner.models.dual_path import DualPathSettings
from limner.models.text_cnn import TextBlock, TextCNN, TextCNNSettings, WordConv, join_neighbours
from limner.recipes import RECIPES, get_recipe
from tests.reference.text_path import plain_blocks


def _small(**changes: object) -> TextCNN:
    torch.manual_seed(0)
    return TextCNN(TextCNNSettings.parse({"word_dim": 20, "width": 1 / 16, **changes}), 50)


@pytest.mark.parametrize("words", [8, 9, 1])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 2])
def test_equals_a_convolution_padded_on_the_left(
    words: int, stride: Literal[1, 2], taps: Literal[1, 2]
) -> None:
    torch.manual_seed(0)
    conv = WordConv(3, 5, taps).double()
    x = torch.randn(2, words, 3, dtype=torch.float64, requires_grad=True)
    read = x[:, ::stride] if taps == 1 else join_neighbours(x, stride)
    plain = F.conv1d(F.pad(x.transpose(1, 2), (taps - 1, 0)), conv.weight, stride=stride).transpose(1, 2)
    torch.testing.assert_close(conv(read), plain)
    towards = torch.randn_like(plain)
    ours = torch.autograd.grad(conv(read), (x, conv.weight), towards)
    theirs = torch.autograd.grad(plain, (x, conv.weight), towards)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


def test_a_value_that_is_not_finite_is_seen() -> None:
    """It reaches the feature: a run that breaks is stopped, not covered up."""
    x = torch.randn(3, 4, 10)
    x[1, 2, 4] = float("nan")
    assert TextBlock(10, 4, 16, 2)(x).isnan().any()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("training", [True, False])
def test_a_block_changes_neither_its_input_nor_what_the_backward_pass_reads(
    stride: Literal[1, 2], training: bool
) -> None:
    """Sum and ReLUs overwrite the norms' outputs, and nothing else."""
    torch.manual_seed(0)
    block = TextBlock(16, 4, 16, stride).double().train(training)
    x = torch.randn(3, 6, 16, dtype=torch.float64, requires_grad=True)
    before = x.detach().clone()
    out = block(x)
    assert torch.equal(x, before)
    y = block.bn1(block.conv1(x)).relu()
    y = block.bn2(block.conv2(join_neighbours(y, stride))).relu()
    plain = (block.bn3(block.conv3(y)) + block.shortcut(x[:, ::stride])).relu()
    assert torch.equal(out, plain)
    inputs = [x, *block.parameters()]
    towards = torch.randn_like(out)
    for ours, theirs in zip(
        torch.autograd.grad(out, inputs, towards), torch.autograd.grad(plain, inputs, towards), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_gradients_are_those_of_double_precision() -> None:
    """As near as sixteen blocks allow, each of which divides by deviations of what the one before it has rounded."""
    encoder = _small()
    wide = TextCNN(encoder.settings, 50).double()
    wide.load_state_dict(encoder.state_dict())
    numbers = torch.randint(1, 51, (64, 32))
    ours, theirs = encoder(numbers), wide(numbers)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)
    torch.autograd.backward(ours.square().sum())
    torch.autograd.backward(theirs.square().sum())
    for (name, our), their in zip(encoder.named_parameters(), wide.parameters(), strict=True):
        assert our.grad is not None
        assert their.grad is not None
        # not nearer: a ReLU in a million falls to the other side, and a whole channel's gradient with it
        assert F.cosine_similarity(our.grad.double().flatten(), their.grad.flatten(), dim=0) > 0.98, name


@pytest.mark.parametrize("text_blocks", ["paper", "released"])
def test_matrix_products_equal_convolutions(text_blocks: str) -> None:
    encoder = _small(text_blocks=text_blocks).double()
    plain = plain_blocks(encoder).double()
    x = torch.randn(3, 32, 20, dtype=torch.float64)
    torch.testing.assert_close(encoder.blocks(x), plain(x.transpose(1, 2)).transpose(1, 2))
    encoder.blocks(x).sum().backward()
    plain(x.transpose(1, 2)).sum().backward()
    for ours, theirs in zip(encoder.blocks.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    ("changes", "counts", "lengths"),
    [
        ({}, [3, 4, 6, 3], [32, 16, 8, 4]),
        ({"layout": "resnet-152"}, [3, 8, 36, 3], [32, 16, 8, 4]),
        ({"text_blocks": "released"}, [3, 4, 6, 1], [32, 16, 8, 8]),
    ],
)
def test_stages_are_those_of_the_paper(
    changes: dict[str, str], counts: list[int], lengths: list[int]
) -> None:
    encoder = _small(**changes)
    x = torch.randn(2, 32, 20)
    found: dict[tuple[int, int], int] = {}
    for block in encoder.blocks:
        x = block(x)
        found[(x.shape[2], x.shape[1])] = found.get((x.shape[2], x.shape[1]), 0) + 1
    assert list(found.values()) == counts
    assert [length for _, length in found] == lengths


def test_widths_at_full_size() -> None:
    with torch.device("meta"):
        encoder = TextCNN(TextCNNSettings(), 100)
        released = TextCNN(TextCNNSettings(text_blocks="released"), 100)
    assert encoder.channels == released.channels == 2048
    blocks = [block for block in released.blocks if isinstance(block, TextBlock)]
    middles = [block.conv1.weight.shape[0] for block in blocks]
    assert middles == [128, 64, 64, 512, 128, 128, 128, 1024, 256, 256, 256, 256, 256, 2048]
    ours = [block.conv1.weight.shape[0] for block in encoder.blocks if isinstance(block, TextBlock)]
    assert ours == [64] * 3 + [128] * 4 + [256] * 6 + [512] * 3


def test_padding_is_a_zero_vector_that_never_learns() -> None:
    encoder = _small()
    numbers = torch.tensor([[1, 2, 3] + [0] * 29])
    encoder(numbers.expand(4, -1)).sum().backward()
    assert encoder.table.weight.grad is not None
    assert encoder.table.weight[0].abs().sum() == 0
    assert encoder.table.weight.grad[0].abs().sum() == 0
    assert encoder.table.weight.grad[1:4].abs().sum() > 0


def test_word_dropout_only_while_training() -> None:
    encoder = _small(word_dropout=0.5)
    numbers = torch.randint(1, 50, (4, 32))
    assert not torch.equal(encoder(numbers), encoder(numbers))
    encoder.eval()
    assert torch.equal(encoder(numbers), encoder(numbers))


@pytest.mark.parametrize(("vocabulary", "word_dim"), [(40, 20), (500, 20), (500, 300), (20_074, 300)])
def test_random_words_start_as_glorot_has_it(vocabulary: int, word_dim: int) -> None:
    def table(**changes: object) -> torch.Tensor:
        torch.manual_seed(0)
        chosen = TextCNNSettings.parse({"word_dim": word_dim, "width": 1 / 16, **changes})
        return TextCNN(chosen, vocabulary).table.weight.detach()

    glorot = table()
    twin = torch.empty(vocabulary, word_dim)
    nn.init.xavier_normal_(twin)
    assert glorot[1:].std().item() == pytest.approx(twin.std().item(), rel=0.1)
    assert glorot[1:].std().item() == pytest.approx((2 / (vocabulary + word_dim)) ** 0.5, rel=0.1)
    assert not glorot[0].any()
    # of the same draws
    torch.testing.assert_close(
        table(word_deviation=0.1), glorot * (0.1 / (2 / (vocabulary + word_dim)) ** 0.5)
    )


def test_the_start_of_the_words_changes_nothing_else() -> None:
    one, other = _small().state_dict(), _small(word_deviation=0.1).state_dict()
    assert {name for name in one if not torch.equal(one[name], other[name])} == {"table.weight"}
    assert TextCNNSettings().identity() == TextCNNSettings(word_deviation=0.1).identity()


def test_released_form_normalises_word_vectors() -> None:
    assert isinstance(_small(text_blocks="released").word_norm, nn.BatchNorm1d)
    assert isinstance(_small().word_norm, nn.Identity)


@pytest.mark.parametrize("text_blocks", ["paper", "released"])
@pytest.mark.parametrize("width", [1 / 8, 0.3])
def test_start_as_bag_of_words_sums_the_words(text_blocks: str, width: float) -> None:
    """A sentence is nearest to its own words in another order, which from He's start it is not."""

    def found(start: str) -> float:
        encoder = _small(text_blocks=text_blocks, start=start, width=width, word_dim=40)
        order = torch.stack([torch.randperm(25) for _ in range(256)])
        numbers = torch.zeros(512, 32, dtype=torch.int64)
        numbers[:, :25] = torch.randint(1, 51, (256, 25)).repeat(2, 1)
        numbers[256:, :25] = numbers[256:, :25].gather(1, order)
        with torch.no_grad():
            features = encoder(numbers)
        first, second = nn.functional.normalize(features - features.mean(dim=0), dim=1).chunk(2)
        return ((first @ second.T).argmax(dim=1) == torch.arange(256)).float().mean().item()

    assert found("bag-of-words") > 0.9
    assert found("random") < 0.5


@pytest.mark.parametrize(("text_blocks", "seen"), [("paper", 25), ("released", 29)])
def test_start_as_bag_of_words_leaves_every_word_a_say(text_blocks: str, seen: int) -> None:
    """Strides drop no word of the places that the filters see: changing any changes the feature about as much."""
    encoder = _small(start="bag-of-words", text_blocks=text_blocks, width=1 / 8, word_dim=40)
    base = torch.randint(1, 51, (64, 32))
    changed = []
    for place in range(seen):
        numbers = base.clone()
        numbers[:, place] = numbers[:, place] % 50 + 1
        with torch.no_grad():
            changed.append((encoder(numbers) - encoder(base)).norm(dim=1).mean().item())
    assert min(changed) > 0.5 * max(changed)


@pytest.mark.parametrize(("text_blocks", "seen"), [("paper", 25), ("released", 29)])
def test_the_filters_see_the_first_places_of_a_row(text_blocks: str, seen: int) -> None:
    """With the padding on the left, each halving drops the last place, so that the end of a full row has no say."""
    encoder = _small(text_blocks=text_blocks).eval()
    base = torch.randint(1, 51, (4, 32))
    for place in range(32):
        numbers = base.clone()
        numbers[:, place] = numbers[:, place] % 50 + 1
        with torch.no_grad():
            same = torch.equal(encoder(numbers), encoder(base))
        assert same == (place >= seen), place


def _unread(text_blocks: str, words: int, count: int) -> float:
    """The share of a sentence's words that are never read, with every place for its first word as likely.

    As `lay_out` has it: from 0 to the places that are left.
    """
    encoder = _small(text_blocks=text_blocks, words=words).eval()
    left = words - count
    rows = torch.stack(
        [F.pad(torch.arange(1, count + 1), (place, left - place)) for place in range(left + 1)]
    )
    hidden = 0
    with torch.no_grad():
        whole = encoder(rows)
        for word in range(1, count + 1):
            changed = encoder(torch.where(rows == word, 50, rows))
            hidden += int((changed == whole).all(dim=1).sum())
    return hidden / int(rows.count_nonzero())


@pytest.mark.parametrize(("text_blocks", "share"), [("paper", 0.122), ("released", 0.026)])
def test_words_that_the_position_shift_takes_out_of_sight(text_blocks: str, share: float) -> None:
    assert _unread(text_blocks, 32, 10) == pytest.approx(share, abs=0.0005)
    described = " ".join(field_docstrings(TextCNNSettings)["text_blocks"].split())
    assert "12 % or 2.6 % of the words" in described


@pytest.mark.parametrize(
    ("recipe", "words", "shares"),
    [
        ("dual-path", 32, {10: "12 % of the words of a sentence of ten"}),
        ("dual-path-flickr8k", 32, {10: "12 % of the words of a sentence of ten"}),
        ("dual-path-cuhk-pedes", 56, {23: "3.6 % of the words of a sentence of 23", 10: "6 % of one of ten"}),
        ("dual-path-people", 40, {23: "6.8 % of the words of a sentence of 23", 10: "9 % of one of ten"}),
    ],
)
def test_recipes_say_the_share_of_words_that_is_never_read(
    recipe: str, words: int, shares: Mapping[int, str]
) -> None:
    built = get_recipe(recipe)
    assert isinstance(built.model, DualPathSettings)
    assert (built.model.text.words, built.model.text.text_blocks) == (words, "paper")
    assert all(stage.position_shift for stage in built.stages)
    said = " ".join((inspect.getdoc(RECIPES[recipe].load()) or "").split())
    for count, told in shares.items():
        assert told in said
        percent = float(told.split(" %")[0])
        digits = 1 if "." in told.split(" %")[0] else 0
        assert round(100 * _unread("paper", words, count), digits) == percent


def test_still_start_leaves_the_shortcuts_alone() -> None:
    """With the branches at zero a block that keeps its width passes on what it gets."""
    encoder = _small(start="still")
    x = encoder.blocks[0](torch.randn(2, 32, 20))
    assert torch.equal(encoder.blocks[1](x), x)

"""The regions of HGAN's branches, and what of the levels' settings is part of a model."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.models.hgan import HGAN, HGANSettings
from limner.models.image import BackboneSettings
from limner.models.levels import LEVELS, LevelsSettings, RegionBranch, RegionSettings, WordsAndPhrases
from limner.models.local_matching import LocalMatchingSettings
from limner.models.text_hgan import HierarchicalTextSettings, SentenceParts
from tests.reference import region_branch as twin
from tests.reference.self_attention import attended

NUMBERS = torch.tensor([[3, 1, 4, 1, 5, 0], [2, 6, 0, 0, 0, 0]])
PHRASES = torch.tensor([[1, 1, 0, 2, 2, 0], [0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("kernel", "stride", "grid"),
    [
        ((2, 2), (2, 2), (8, 4)),
        ((4, 4), (2, 2), (7, 3)),
        ((4, 4), (3, 2), (5, 3)),
        ((4, 4), (4, 4), (4, 2)),
        ((4, 8), (2, 2), (7, 1)),
        ((4, 8), (3, 2), (5, 1)),
    ],
)
def test_the_windows_of_table_4(
    kernel: tuple[int, int], stride: tuple[int, int], grid: tuple[int, int]
) -> None:
    settings = RegionSettings(kernel=kernel, stride=stride)
    assert settings.grid == grid
    assert RegionBranch(settings, 4, 3)(torch.randn(2, 4, 24, 12)).shape == (2, grid[0] * grid[1], 3)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    convolution=st.sampled_from([1, 3]),
    training=st.booleans(),
    given_map=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_regions_equal_the_slow_twin(
    seed: int,
    convolution: int,
    training: bool,
    given_map: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
) -> None:
    """At test by the norm's running statistics, which are not those of the start, in training by the batch's."""
    torch.manual_seed(seed)
    own = RegionSettings(map_size=(4, 3), kernel=kernel, stride=stride, convolution=convolution)
    branch = RegionBranch(own, 3, 4).double().train(training)
    norm = branch.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    for start in (norm.weight, norm.bias, norm.running_mean, branch.convolution.weight):
        torch.nn.init.normal_(start)
    torch.nn.init.uniform_(norm.running_var, 0.1, 4.0)
    statistics = None if training else (norm.running_mean.tolist(), norm.running_var.tolist())
    maps = torch.randn(2, 3, *given_map, dtype=torch.float64)
    assert branch.reduce.bias is not None
    expected = twin.regions(
        maps.tolist(),
        (4, 3),
        kernel,
        stride,
        branch.convolution.weight.tolist(),
        (norm.weight.tolist(), norm.bias.tolist(), statistics),
        (branch.reduce.weight[:, :, 0, 0].tolist(), branch.reduce.bias.tolist()),
    )
    torch.testing.assert_close(branch(maps), torch.tensor(expected, dtype=torch.float64))


def test_what_acts_in_training_alone_is_no_part_of_what_a_model_is() -> None:
    normalised, scores = (LocalMatchingSettings(noise_on=name) for name in ("normalised", "scores"))
    assert HGANSettings(local=normalised).identity() == HGANSettings(local=scores).identity()
    assert LevelsSettings(local=normalised).identity() == LevelsSettings(local=scores).identity()
    # as before these settings were there
    local = HGANSettings().identity()["local"]
    assert not {"noise_on", "selects"} & local.keys()
    assert local["k_items"] == 4


def test_which_side_selects_is_part_of_what_a_model_is() -> None:
    words = LocalMatchingSettings(selects="words")
    assert HGANSettings(local=words).identity() != HGANSettings().identity()
    assert LevelsSettings(local=words).identity() != LevelsSettings().identity()


def test_words_and_phrases_above_a_tower_equal_self_attention_of_each_sentence_alone() -> None:
    torch.manual_seed(0)
    model = WordsAndPhrases(LevelsSettings(dim=8, heads=2), 5).eval()
    feature, states = torch.randn(2, 5), torch.randn(2, 6, 5)
    parts = model(feature, states, NUMBERS, PHRASES)
    assert torch.equal(parts.feature, feature)
    assert parts.words_present.sum(dim=1).tolist() == [5, 2]
    assert parts.phrases_present.tolist() == [[True, True], [False, False]]
    assert not parts.words[~parts.words_present].any()
    assert not parts.phrases[~parts.phrases_present].any()
    for row, length in enumerate((5, 2)):
        words = attended(model.word_attention, model.entry(states[row, :length]))
        torch.testing.assert_close(parts.words[row, :length], words, atol=1e-5, rtol=1e-4)
    entered = model.entry(states[0])
    means = torch.stack([entered[:2].mean(dim=0), entered[3:5].mean(dim=0)])
    expected = attended(model.phrase_attention, means)
    torch.testing.assert_close(parts.phrases[0], expected, atol=1e-5, rtol=1e-4)


def _network() -> HGAN:
    torch.manual_seed(0)
    return HGAN(
        HGANSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.125, last_stride=1),
            text=HierarchicalTextSettings(bert=None, word_dim=6, dim=8, heads=2, hidden=5),
            dim=7,
            regions=RegionSettings(map_size=(4, 3), kernel=(2, 2), stride=(1, 1), convolution=1),
            local=LocalMatchingSettings(hidden=8, temperature=2.0, last_temperature=0.5),
        ),
        6,
    ).eval()


def test_each_level_has_a_branch_and_perceptrons_of_its_own() -> None:
    model = _network()
    feature_map = torch.randn(3, model.backbone.map_channels, 4, 3)
    parts = model.sentence_parts(NUMBERS, PHRASES)
    of_level = {"word": (parts.words, parts.words_present), "phrase": (parts.phrases, parts.phrases_present)}
    found = model.match_parts(feature_map, parts)
    assert list(found) == list(of_level)
    for level, items in of_level.items():
        local = model._local(level)  # type: ignore[arg-type]
        alone = local(local.project_regions(model.branches[level](feature_map)), local.project_items(*items))
        torch.testing.assert_close(found[level].similarity, alone.similarity)
        assert found[level].counted.tolist() == items[1].any(dim=1).tolist()


def test_noise_of_both_levels_is_drawn_from_the_generator() -> None:
    model = _network().train()
    parts: SentenceParts = model.sentence_parts(NUMBERS, PHRASES)
    pictures = model.project_pictures(model.cut(torch.randn(3, model.backbone.map_channels, 4, 3)))
    sentences = model.project_sentences(parts)
    one, other = (model.match(pictures, sentences, torch.Generator().manual_seed(seed)) for seed in (0, 0))
    for level in LEVELS:
        assert torch.equal(one[level].similarity, other[level].similarity)


def test_the_temperature_of_both_levels_is_annealed() -> None:
    model = _network()
    model.anneal(0.5)
    assert [model._local(level).temperature for level in LEVELS] == pytest.approx([1.0, 1.0])

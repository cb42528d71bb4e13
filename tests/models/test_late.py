"""MaxSim against its slow twin, and the pass of each tower that it shares with the embedding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limner.errors import SettingsError
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.losses import SDM, MaxSim
from limner.models import late as module
from limner.models.late import LateInteraction, LateSettings, grid_of, maxsim, maxsim_of_pairs
from limner.models.levels import LevelsSettings
from limner.models.pretrained import Pretrained, PretrainedSettings
from limner.models.registry import build_network
from limner.models.transformer_layers import set_checkpointing
from limner.settings import Settings
from limner.training.recipe import VocabularySettings
from tests import towers
from tests.reference.losses import maxsim as slow_maxsim
from tests.toy import toy_late


def drawn(
    seed: int, images: int, regions: int, sentences: int, words: int, dim: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors in float64 and which words there are; the first sentence has none."""
    random = torch.Generator().manual_seed(seed)
    seen = torch.randn(images, regions, dim, generator=random, dtype=torch.float64)
    said = torch.randn(sentences, words, dim, generator=random, dtype=torch.float64)
    present = torch.rand(sentences, words, generator=random) < 0.6
    present[0] = False
    return F.normalize(seen, dim=2), F.normalize(said, dim=2), present


def twin(seen: Tensor, said: Tensor, present: Tensor) -> Tensor:
    return torch.tensor(
        [
            [
                slow_maxsim(picture.tolist(), words[there].tolist())
                for words, there in zip(said, present, strict=True)
            ]
            for picture in seen
        ],
        dtype=torch.float64,
    )


SHAPES = {
    "seed": st.integers(0, 10_000),
    "images": st.integers(1, 5),
    "regions": st.integers(1, 6),
    "sentences": st.integers(1, 5),
    "words": st.integers(1, 6),
}


@settings(max_examples=40)
@given(**SHAPES)
def test_equals_the_slow_twin(seed: int, images: int, regions: int, sentences: int, words: int) -> None:
    seen, said, present = drawn(seed, images, regions, sentences, words)
    found = maxsim(seen, said, present)
    torch.testing.assert_close(found, twin(seen, said, present))
    rows, columns = torch.meshgrid(torch.arange(images), torch.arange(sentences), indexing="ij")
    of_pairs = maxsim_of_pairs(seen[rows.flatten()], said[columns.flatten()], present[columns.flatten()])
    torch.testing.assert_close(of_pairs, found.flatten())


@settings(max_examples=20)
@given(**SHAPES)
def test_the_order_of_regions_and_words_and_padding_change_nothing(
    seed: int, images: int, regions: int, sentences: int, words: int
) -> None:
    seen, said, present = drawn(seed, images, regions, sentences, words)
    expected = maxsim(seen, said, present)
    order, places = torch.randperm(regions), torch.randperm(words)
    torch.testing.assert_close(maxsim(seen[:, order], said[:, places], present[:, places]), expected)
    # whatever stands at empty positions, and however many there are
    said = torch.where(present[:, :, None], said, 7.0)
    padded = F.pad(said, (0, 0, 0, 3), value=-5.0)
    torch.testing.assert_close(maxsim(seen, padded, F.pad(present, (0, 3))), expected)


def test_blocks_of_images_are_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, said, present = drawn(0, 7, 3, 4, 5)
    expected = maxsim(seen, said, present)
    monkeypatch.setattr(module, "_COSINES", 2 * 3 * 4 * 5)
    torch.testing.assert_close(maxsim(seen, said, present), expected)


def test_gradients_are_those_of_the_twin_and_no_nan_of_an_empty_sentence() -> None:
    seen, said, present = drawn(3, 3, 4, 3, 3)
    weights = torch.randn(3, 3, dtype=torch.float64)

    def total(regions: Tensor, words: Tensor) -> Tensor:
        return (maxsim(F.normalize(regions, dim=2), F.normalize(words, dim=2), present) * weights).sum()

    arguments = seen.requires_grad_(), said.requires_grad_()
    assert torch.autograd.gradcheck(total, arguments)
    torch.autograd.backward(total(*arguments))
    for rows in arguments:
        assert rows.grad is not None
        assert torch.isfinite(rows.grad).all()
    assert said.grad is not None
    assert not said.grad[~present].any()


def test_autocast_and_half_precision_move_it_by_rounding_alone() -> None:
    seen, said, present = drawn(1, 6, 32, 5, 20, dim=128)
    expected = maxsim(seen, said, present)
    with torch.autocast("cpu", torch.bfloat16):
        found = maxsim(seen.float(), said.float(), present)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    half = maxsim(seen.half(), said.half(), present)
    assert (half.double() - expected).abs().max() < 1e-2


@given(rows=st.integers(1, 60), columns=st.integers(1, 60), most=st.integers(1, 64))
def test_a_grid_is_no_larger_than_asked_and_wastes_little(rows: int, columns: int, most: int) -> None:
    grid = grid_of(rows, columns, most)
    assert grid[0] * grid[1] <= most
    assert 1 <= grid[0] <= rows
    assert 1 <= grid[1] <= columns
    assert grid[0] * grid[1] >= min(rows * columns, most / 2)


def test_regions_are_unit_vectors_of_means_of_the_map() -> None:
    layers = LateInteraction(LateSettings(dim=5, regions=4), 6, 3)
    feature_map = torch.randn(2, 6, 4, 8)
    found = layers.regions(feature_map)
    assert found.shape == (2, 1, 4, 5)
    mean = feature_map[:, :, :, :2].mean(dim=(2, 3))
    torch.testing.assert_close(found[:, 0, 0], F.normalize(layers.of_regions(mean), dim=1))
    # 0 has no direction, and no NaN
    assert not layers.words(torch.zeros(1, 2, 3)).any()


def test_none_changes_nothing_and_late_layers_are_drawn_last() -> None:
    recipe = toy_late()
    assert isinstance(recipe.model, PretrainedSettings)
    torch.manual_seed(0)
    with_late = build_network(recipe.model, 40)
    torch.manual_seed(0)
    without = build_network(recipe.model.replace(late=None), 40)
    after = torch.rand(1)
    torch.manual_seed(0)
    build_network(PretrainedSettings.parse({**recipe.model.model_dump(), "late": None}), 40)
    assert torch.equal(torch.rand(1), after)
    theirs = with_late.state_dict()
    assert {name for name in theirs if name not in without.state_dict()} == {
        "late.of_regions.weight",
        "late.of_words.weight",
    }
    assert all(torch.equal(value, theirs[name]) for name, value in without.state_dict().items())
    # the fingerprint is made of these, and a checkpoint of before has no such key
    assert "late" not in without.settings.identity()
    assert "late" in with_late.settings.identity()
    assert "late" not in without.parts()
    assert with_late.parts().keys() == with_late.settings.parts()
    assert [*with_late.parts()["late"]] == [*with_late.late.parameters()]  # type: ignore[union-attr]
    assert (without.reranked_by, with_late.reranked_by) == (None, "late")


def counted(network: Pretrained, calls: list[str]) -> None:
    for name, tower in (("image", network.backbone), ("text", network.text)):
        plain: Any = tower._run

        def run(*given: Any, plain: Callable[..., Any] = plain, name: str = name, **options: Any) -> Any:
            calls.append(name)
            return plain(*given, **options)

        setattr(tower, plain.__name__, run)


@pytest.mark.parametrize(
    ("kind", "checkpointing"),
    [
        *(("clip", True), ("siglip", True)),
        *((kind, False) for kind in ("clip", "siglip", "siglip2", "altclip", "chinese_clip")),
    ],
)
def test_embeddings_and_tokens_come_from_one_pass_of_each_tower(
    tmp_path: Path, kind: str, checkpointing: bool
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "source").mkdir()
    getattr(towers, f"save_{kind}")(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "run")
    network = load_model(tmp_path / "run", device="cpu").model
    assert isinstance(network, Pretrained)
    network.grow(network.settings.replace(late=LateSettings(dim=6, regions=3)))
    assert network.late is not None
    set_checkpointing(network, checkpointing)
    # layers are checkpointed in training mode alone; two of the text towers have dropout there
    network.train(checkpointing)
    images = torch.randint(256, (3, 3, towers.SIDE, towers.SIDE), dtype=torch.uint8)
    token_ids = torch.zeros(3, 8, dtype=torch.long)
    token_ids[0, :5], token_ids[1, :8] = torch.arange(20, 25), torch.arange(30, 38)
    expected = network.embed_pairs(images, token_ids)
    regions = network.late.regions(network.backbone.forward_map(images)).flatten(1, 2)
    words = network.late.words(network.text.token_features(token_ids))
    calls: list[str] = []
    counted(network, calls)
    found = network.embed_pairs(images, token_ids, local=True)
    assert sorted(calls) == ["image", "text"]
    for one, other in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other)
    match = found[2]["late"]
    torch.testing.assert_close(match.similarity, maxsim(regions, words, token_ids != 0))
    assert match.counted.tolist() == [True, True, False]
    assert not match.similarity[:, 2].any()
    torch.autograd.backward(match.similarity.sum())
    for tower in (network.backbone, network.text):
        gradients = [parameter.grad for parameter in tower.parameters() if parameter.grad is not None]
        assert gradients
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_sentences_of_like_length_together_keep_their_places() -> None:
    recipe = toy_late()
    network = build_network(recipe.model, 40)
    assert isinstance(network, Pretrained)
    network.eval()
    token_ids = torch.zeros(70, 16, dtype=torch.long)
    for row in range(70):
        token_ids[row, : row % 16] = torch.randint(1, 40, (row % 16,))
    features, states = network.text.read(token_ids)
    torch.testing.assert_close(features, network.text(token_ids))
    alone = torch.cat([network.text.token_features(row[None]) for row in token_ids])
    torch.testing.assert_close(states, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [("backbone",), ("words", "text"), ("backbone", "words", "text")])
@pytest.mark.parametrize("model", [{"late": LateSettings()}, {"late": None, "levels": LevelsSettings()}])
def test_towers_of_a_pair_are_not_cached_where_parts_are_compared(
    frozen: tuple[str, ...], model: dict[str, Settings | None]
) -> None:
    """A CNN's maps and a BERT's states are; a pair pools by itself, from neither."""
    recipe = toy_late()
    needs = SDM() if model["late"] is None else MaxSim()
    stage = recipe.stages[1].replace(frozen=frozen, views=2, losses=(needs,))
    assert recipe.replace(stages=(stage,), model=recipe.model.replace(**model))
    pair = PretrainedSettings(**model)
    side = "image" if "backbone" in frozen else "text"
    plain = recipe.replace(vocabulary=VocabularySettings())
    with pytest.raises(SettingsError, match=f"not cached of the {side} tower.*views to 0"):
        plain.replace(model=pair, stages=(stage,))
    assert plain.replace(model=pair, stages=(stage.replace(views=0),))


def test_cached_tokens_stand_where_they_are_read() -> None:
    recipe = toy_late()
    stage = recipe.stages[1].replace(frozen=("words", "text"), views=2, position_shift=True)
    with pytest.raises(SettingsError, match="set position_shift=false, or views to 0"):
        recipe.replace(stages=(stage,))

import pytest
import torch

from limner.errors import SettingsError
from limner.models.hgan import HGAN, HGANSettings
from limner.models.image import BackboneSettings
from limner.models.levels import RegionSettings
from limner.models.local_matching import LocalMatchingSettings
from limner.models.text_hgan import HierarchicalTextSettings

NUMBERS = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 0, 0, 0]])
PHRASES = torch.tensor([[1, 1, 0, 2, 2], [1, 1, 0, 0, 0]])


def tiny(**changes: object) -> HGAN:
    torch.manual_seed(0)
    settings = HGANSettings(
        backbone=BackboneSettings(name="resnet-18", width=0.125, last_stride=1),
        text=HierarchicalTextSettings(bert=None, word_dim=6, dim=8, heads=2, hidden=5),
        dim=7,
        local=LocalMatchingSettings(hidden=8),
    )
    return HGAN(settings.replace(**changes), 6).eval()


def pixels(count: int = 2) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (count, 3, 64, 32), dtype=torch.uint8)


def test_all_levels_of_some_pairs() -> None:
    model = tiny()
    pictures = model.read_pictures(pixels(3))
    embedding, parts = model.read_sentences(NUMBERS, PHRASES)
    assert pictures.embedding.shape == (3, 7)
    assert embedding.shape == (2, 7)
    torch.testing.assert_close(pictures.embedding, model.embed_images(model.pool_images(pixels(3))))
    torch.testing.assert_close(embedding, model.encode_texts(NUMBERS))
    matches = model.match(model.project_pictures(pictures.regions), model.project_sentences(parts))
    assert list(matches) == ["word", "phrase"]
    for match in matches.values():
        assert match.similarity.shape == (3, 2)
        assert ((match.similarity > 0) & (match.similarity < 1)).all()


def test_a_batch_is_matched_by_its_own_words_and_phrases() -> None:
    model = tiny()
    images, texts, local = model.embed_pairs(pixels(2), NUMBERS, PHRASES, local=True)
    alone = model.match_parts(model.backbone.read_map(pixels(2)), model.sentence_parts(NUMBERS, PHRASES))
    assert list(local) == ["word", "phrase"]
    for level, match in local.items():
        assert match.counted.all()
        torch.testing.assert_close(match.similarity, alone[level].similarity)
    torch.testing.assert_close(images, model.embed_images(model.pool_images(pixels(2))))
    torch.testing.assert_close(texts, model.encode_texts(NUMBERS))
    # without phrases none is counted
    assert not model.embed_pairs(pixels(2), NUMBERS, local=True)[2]["phrase"].counted.any()


def test_a_level_that_is_left_out_has_no_parameters() -> None:
    model = tiny(levels=("word",))
    assert not [name for name, _ in model.named_parameters() if "phrase" in name and "text" not in name]
    assert list(
        model.match(
            *(
                model.project_pictures(model.read_pictures(pixels()).regions),
                model.project_sentences(model.read_sentences(NUMBERS, PHRASES)[1]),
            )
        )
    ) == ["word"]


def test_cached_maps_give_what_pixels_give() -> None:
    model = tiny()
    maps = model.backbone.read_map(pixels())
    again = model.read_pictures(maps.permute(0, 2, 3, 1))
    whole = model.read_pictures(pixels())
    torch.testing.assert_close(again.embedding, whole.embedding)
    for level, regions in whole.regions.items():
        torch.testing.assert_close(again.regions[level], regions)


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="do not fit"):
        RegionSettings.parse({"map_size": [4, 4], "kernel": [5, 1]})
    with pytest.raises(SettingsError, match="are 0"):
        HGANSettings.parse({"scores": {"sentence": 0}, "levels": []})
    with pytest.raises(SettingsError, match="names one twice"):
        HGANSettings.parse({"levels": ["word", "word"]})

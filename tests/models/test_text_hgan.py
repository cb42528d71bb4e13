import pytest
import torch

from limner.errors import SettingsError
from limner.models.text_hgan import HierarchicalText, HierarchicalTextSettings
from tests.reference.self_attention import attended

NUMBERS = torch.tensor([[3, 1, 4, 1, 5, 0, 0], [2, 6, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
PHRASES = torch.tensor([[1, 1, 0, 2, 2, 0, 0], [0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]])


def text_path() -> HierarchicalText:
    torch.manual_seed(0)
    settings = HierarchicalTextSettings(bert=None, word_dim=6, dim=8, heads=2, hidden=5)
    return HierarchicalText(settings, 6).eval()


def test_equals_self_attention_and_lstm_of_each_sentence_alone() -> None:
    model = text_path()
    parts = model.encode(NUMBERS, PHRASES)
    assert model.vectors is not None
    for row, length in enumerate((5, 2, 1)):
        entered = model.entry(model.vectors(NUMBERS[row, :length]))
        words = attended(model.word_attention, entered)
        torch.testing.assert_close(parts.words[row, :length], words, atol=1e-5, rtol=1e-4)
        assert not parts.words[row, length:].any()
        there, back = model.forwards(words)[0][-1], model.backwards(words.flip(0))[0][-1]
        feature = torch.cat([there, back])
        torch.testing.assert_close(parts.feature[row], feature, atol=1e-5, rtol=1e-4)
    phrases = torch.stack(
        [entered.mean(dim=0) for entered in model.entry(model.vectors(NUMBERS[0, :5])).split([2, 1, 2])]
    )
    expected = attended(model.phrase_attention, phrases[[0, 2]])
    torch.testing.assert_close(parts.phrases[0], expected, atol=1e-5, rtol=1e-4)


def test_which_words_and_phrases_there_are() -> None:
    parts = text_path().encode(NUMBERS, PHRASES)
    assert parts.words_present.sum(dim=1).tolist() == [5, 2, 1]
    assert parts.phrases_present.tolist() == [[True, True], [False, False], [False, False]]
    assert not parts.phrases[1:].any()
    assert torch.isfinite(parts.phrases).all()


def test_the_feature_is_the_same_alone() -> None:
    model = text_path()
    torch.testing.assert_close(model(NUMBERS), model.encode(NUMBERS, PHRASES).feature)
    torch.testing.assert_close(model(NUMBERS[1:2]), model(NUMBERS)[1:2], atol=1e-5, rtol=1e-4)


def test_sentences_without_any_phrase() -> None:
    parts = text_path().encode(NUMBERS, torch.zeros_like(NUMBERS))
    assert parts.phrases.shape == (3, 0, 8)


def test_gradients_of_phrases_stop_at_their_words() -> None:
    model = text_path().train()
    model.word_attention.eval()
    model.phrase_attention.eval()
    assert model.vectors is not None
    found = model.encode(NUMBERS, PHRASES).phrases.square().sum()
    (gradient,) = torch.autograd.grad(found, model.vectors.weight)
    assert gradient[[3, 1, 5]].any(dim=1).all()
    assert not gradient[[2, 4, 6]].any()


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    with pytest.raises(SettingsError, match="heads=3"):
        HierarchicalTextSettings.parse({"dim": 8, "heads": 3})

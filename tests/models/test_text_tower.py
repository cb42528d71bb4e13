"""The states of several layers in a text tower's features."""

import pytest
import torch
from torch import Tensor

from limner.errors import SettingsError
from limner.models.text_tower import TextTower, TextTowerSettings
from limner.types import PADDING

WORDS = 12


def tower(**settings: object) -> TextTower:
    torch.manual_seed(0)
    chosen = TextTowerSettings.parse(
        {"words": WORDS, "feature": "mean", "width": 16, "layers": 3, "heads": 2, **settings}
    )
    return TextTower(chosen, 30).eval()


def sentences() -> Tensor:
    ids = torch.full((5, WORDS), PADDING)
    drawn = torch.Generator().manual_seed(1)
    for row, length in enumerate((1, 12, 5, 3, 7)):
        ids[row, :length] = torch.randint(1, 31, (length,), generator=drawn)
    return ids


@pytest.mark.parametrize("states", [(-1,), (3,), (0,), (2, -1), (-1, 0, 1, 2), (1, 1)])
@torch.no_grad()
def test_a_feature_is_the_mean_of_the_tokens_states_of_each_layer(states: tuple[int, ...]) -> None:
    """Sentence by sentence without padding, in loops."""
    built, ids = tower(states=states), sentences()
    found, of_tokens = built.read(ids)
    assert built.channels == found.shape[1] == of_tokens.shape[2] == 16 * len(states)
    torch.testing.assert_close(found, built(ids))
    torch.testing.assert_close(of_tokens, built.token_features(ids))
    for row, sentence in enumerate(ids):
        alone = sentence[sentence != PADDING] - 1
        hidden = built.tower(input_ids=alone[None], output_hidden_states=True).hidden_states
        expected = [hidden[layer][0].sum(0) / len(alone) for layer in states]
        torch.testing.assert_close(found[row], torch.cat(expected), atol=1e-5, rtol=1e-5)
        for place in range(len(alone)):
            token = torch.cat([hidden[layer][0, place] for layer in states])
            torch.testing.assert_close(of_tokens[row, place], token, atol=1e-5, rtol=1e-5)
        assert not of_tokens[row, len(alone) :].any()


@torch.no_grad()
def test_the_first_tokens_states_of_several_layers() -> None:
    built, ids = tower(states=(1, -1), feature="first"), sentences()
    torch.testing.assert_close(built(ids), built.token_features(ids)[:, 0])


def test_states_outside_of_the_tower_are_refused() -> None:
    for layer in (4, -5):
        with pytest.raises(SettingsError, match=r"states.*the tower has 3 layers; take -4 to 3"):
            tower(states=(layer,))
    with pytest.raises(SettingsError, match="states needs feature"):
        TextTowerSettings.parse({"model": "somewhere", "states": [1, -1]})
    with pytest.raises(SettingsError, match="states"):
        tower(states=())


def test_the_last_layer_alone_keeps_the_fingerprint_of_before() -> None:
    assert "states" not in TextTowerSettings(feature="mean").identity()
    assert TextTowerSettings(feature="mean", states=(4, -1)).identity()["states"] == [4, -1]

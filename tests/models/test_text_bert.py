import json
import sys
from pathlib import Path

import pytest
import torch

from limner.errors import CheckpointError, SettingsError
from limner.models.text_bert import PIECES, BertSettings, BertWords, whole_words

transformers = pytest.importorskip("transformers")

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "red",
    "coat",
    "rain",
    "##coat",
    "##s",
    "a",
    "-",
    "1",
]
WORDS = ("coat", "raincoats", "red", "zebra")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of four layers with random values and a tokenizer of thirteen pieces."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=8,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    pieces = {piece: number for number, piece in enumerate(VOCABULARY)}
    transformers.BertTokenizer(vocab=pieces).save_pretrained(folder)
    return folder


def bert_words(folder: Path | None, **changes: object) -> BertWords:
    torch.manual_seed(0)
    settings = BertSettings(model=None if folder is None else str(folder), width=8, heads=2)
    encoder = BertWords(settings.replace(**changes), len(WORDS)).eval()
    encoder.read_vocabulary(WORDS)
    return encoder


@pytest.mark.parametrize("hidden", ["last", "second-to-last", "last-four"])
def test_equals_transformers_with_the_mean_over_the_pieces_of_a_word(saved: Path, hidden: str) -> None:
    encoder = bert_words(saved, hidden=hidden)
    reference = transformers.BertModel.from_pretrained(saved).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    with torch.no_grad():
        inputs = tokenizer("red raincoats zebra coat", return_tensors="pt")
        states = reference(**inputs, output_hidden_states=True).hidden_states
        chosen = {"last": states[-1], "second-to-last": states[-2], "last-four": torch.cat(states[-4:], 2)}
        expected = chosen[hidden][0]
        found = encoder(torch.tensor([[3, 2, 4, 1, 0, 0], [3, 0, 0, 0, 0, 0]]))
    assert inputs["input_ids"][0].tolist() == [
        *(2, 5, 7, 8, 9, 1, 6, 3),
    ]  # [CLS] red rain ##coat ##s [UNK] coat [SEP]
    assert found.shape == (2, 6, encoder.channels)
    for word, pieces in enumerate((slice(1, 2), slice(2, 5), slice(5, 6), slice(6, 7))):
        torch.testing.assert_close(found[0, word], expected[pieces].mean(dim=0), atol=1e-5, rtol=1e-4)
    assert not found[0, 4:].any()


def test_what_stands_in_other_rows_changes_nothing(saved: Path) -> None:
    encoder = bert_words(saved)
    with torch.no_grad():
        alone = encoder(torch.tensor([[3, 1, 0, 0]]))
        among = encoder(torch.tensor([[2, 2, 2, 3], [3, 1, 0, 0], [0, 0, 0, 0]]))
    torch.testing.assert_close(among[1], alone[0], atol=1e-5, rtol=1e-4)
    assert not among[2].any()


def test_more_pieces_than_bert_can_read_are_left_out(saved: Path) -> None:
    encoder = bert_words(saved)
    found = encoder(torch.tensor([[2, 2, 2, 2, 2]]))  # fifteen pieces; ten fit beside [CLS] and [SEP]
    assert found[0, 3].any()
    assert not found[0, 4].any()


def test_one_that_starts_at_random_has_a_piece_a_word_and_learns() -> None:
    encoder = bert_words(None).train()
    assert encoder.pieces[:, 0].tolist() == [-1, 1, 2, 3, 4]
    assert (encoder.pieces[:, 1:] == -1).all()
    encoder(torch.tensor([[1, 2, 0], [3, 0, 0]])).square().sum().backward()
    gradient = encoder.table.weight.grad
    assert gradient is not None
    assert gradient[[1, 2, 3]].any(dim=1).all()
    assert not gradient[4].any()


def test_whole_words_are_the_pieces_without_marks(saved: Path) -> None:
    assert whole_words(str(saved)) == ["red", "coat", "rain", "a", "1"]


def test_a_checkpoint_needs_its_configuration_alone(saved: Path, tmp_path: Path) -> None:
    encoder = bert_words(saved)
    assert str(saved) not in json.dumps(encoder.files())
    for name, content in encoder.files().items():
        (tmp_path / name).write_text(json.dumps(content))
    again = BertWords(BertSettings(model=str(tmp_path)), len(WORDS), load_weights=False).eval()
    again.load_state_dict(encoder.state_dict())
    numbers = torch.tensor([[3, 2, 4, 1]])
    with torch.no_grad():
        torch.testing.assert_close(again(numbers), encoder(numbers))


def test_a_word_of_many_pieces_keeps_its_first(saved: Path) -> None:
    encoder = BertWords(BertSettings(model=str(saved)), 1)
    encoder.read_vocabulary(["rain" + "coat" * 20])
    assert encoder.pieces[1].tolist() == [7, *[8] * (PIECES - 1)]


def test_what_is_no_bert_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"its config\.json cannot be read"):
        BertWords(BertSettings(model=str(tmp_path)), 3)
    with pytest.raises(CheckpointError, match="no such folder"):
        BertWords(BertSettings(model=str(tmp_path / "none")), 3)
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((saved / file).read_bytes())
    with pytest.raises(CheckpointError, match="its tokenizer knows no word"):
        BertWords(BertSettings(model=str(tmp_path)), 3)
    for source in saved.glob("*okenizer*"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="its weights cannot be read"):
        BertWords(BertSettings(model=str(tmp_path)), 3)
    transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="it is a 'gpt2'"):
        BertWords(BertSettings(model=str(tmp_path)), 3)
    with pytest.raises(SettingsError, match="at least 4 layers"):
        BertSettings.parse({"model": None, "layers": 2})
    with pytest.raises(SettingsError, match="heads=3"):
        BertSettings.parse({"model": None, "width": 8, "heads": 3})


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match=r"limner\[hgan\]"):
        BertWords(BertSettings(model=None), 3)

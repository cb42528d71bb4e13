import pytest
import torch

from limner.errors import SettingsError
from limner.models.text_bert import BertSettings
from limner.models.text_lstm import TextLSTM, TextLSTMSettings


def tiny(**changes: object) -> TextLSTM:
    torch.manual_seed(0)
    return TextLSTM(TextLSTMSettings(words=8, word_dim=6, hidden=5).replace(**changes), 30)


def test_is_the_hidden_state_after_the_last_word() -> None:
    model = tiny()
    numbers = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0], [9, 8, 7, 6, 5, 4, 3, 2]])
    found = model(numbers)
    into, again = (model.lstm.get_parameter(f"weight_{name}_l0") for name in ("ih", "hh"))
    biases = model.lstm.get_parameter("bias_ih_l0") + model.lstm.get_parameter("bias_hh_l0")
    for row, words in zip(found, ([3, 4, 5], [7], [9, 8, 7, 6, 5, 4, 3, 2]), strict=True):
        hidden, cell = torch.zeros(5), torch.zeros(5)
        for word in words:
            # i, f, g, o as torch lays them out
            gates = into @ model.table.weight[word] + again @ hidden + biases
            i, f, g, o = torch.split(gates, 5)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        torch.testing.assert_close(row, hidden)


def test_the_state_at_each_word_ends_in_the_last_one() -> None:
    model = tiny()
    numbers = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]])
    states, present = model.encode_words(numbers)
    assert present.sum(1).tolist() == [3, 1]
    assert not states[~present].any()
    last = model(numbers)
    torch.testing.assert_close(states[0, 2], last[0])
    torch.testing.assert_close(states[1, 0], last[1])
    torch.testing.assert_close(states[0, 1], model(numbers[:1, :2])[0])


def test_empty_positions_behind_a_sentence_change_nothing() -> None:
    model = tiny()
    short = torch.tensor([[3, 4, 0]])
    torch.testing.assert_close(model(short), model(torch.nn.functional.pad(short, (0, 5))))


def test_a_sentence_without_a_word_has_a_state() -> None:
    model = tiny()
    found = model(torch.zeros(2, 8, dtype=torch.long))
    assert found.isfinite().all()
    torch.testing.assert_close(found[0], found[1])


def test_the_empty_position_learns_nothing() -> None:
    model = tiny()
    model(torch.tensor([[0, 0, 0, 0, 0, 0, 0, 0], [1, 0, 2, 0, 0, 0, 0, 0]])).sum().backward()
    assert model.table.weight.grad is not None
    assert not model.table.weight.grad[0].any()
    assert not model.table.weight[0].any()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_acts_in_training_only(training: bool) -> None:
    model = tiny(dropout=0.5).train(training)
    numbers = torch.randint(1, 30, (4, 8))
    assert torch.equal(model(numbers), model(numbers)) != training


def test_the_mean_is_over_the_second_layers_states_at_the_words() -> None:
    model = tiny(layers=2, feature="mean")
    numbers = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]])
    inputs = [model.table.weight[torch.tensor(words)] for words in ([3, 4, 5], [7])]
    for row, states in zip(model(numbers), inputs, strict=True):
        for layer in range(2):
            into, again, one, other = (
                model.lstm.get_parameter(f"{name}_l{layer}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            hidden, cell, outputs = torch.zeros(5), torch.zeros(5), []
            for state in states:
                i, f, g, o = torch.split(into @ state + again @ hidden + one + other, 5)
                cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
                hidden = o.sigmoid() * cell.tanh()
                outputs.append(hidden)
            states = torch.stack(outputs)
        torch.testing.assert_close(row, states.mean(0))


@pytest.mark.parametrize("feature", ["last", "mean"])
@pytest.mark.parametrize("traced", [False, True])
def test_without_a_layer_the_states_are_the_word_vectors(
    feature: str, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the second way is that of accelerators, too
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: traced)
    model = tiny(layers=0, feature=feature)
    numbers = torch.tensor([[3, 4, 5, 3, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]])
    vectors = model.table.weight
    states, present = model.encode_words(numbers)
    torch.testing.assert_close(states, vectors[numbers])
    assert present.sum(1).tolist() == [4, 1, 1]
    assert model.channels == 6
    found = model(numbers)
    torch.testing.assert_close(found[0], vectors[numbers[0, :4]].mean(0) if feature == "mean" else vectors[3])
    torch.testing.assert_close(found[1:], vectors[[7, 0]])
    # no weight that nothing reads
    assert [name for name, _ in model.named_parameters()] == ["table.weight"]
    torch.testing.assert_close(model.word_vectors(), vectors[1:])


def test_word_vectors_are_those_of_sentences_of_one_word() -> None:
    model = tiny(layers=2, feature="mean")
    vectors = model.word_vectors()
    assert vectors.shape == (30, 5)
    torch.testing.assert_close(vectors[6], model(torch.tensor([[7, 0, 0]]))[0])


BERT = BertSettings(model=None, layers=1, hidden="last", width=8, heads=2)


def test_states_of_a_bert_stand_in_place_of_the_word_vectors() -> None:
    model = tiny(bert=BERT, word_dim=8).eval()
    numbers = torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]])
    assert model.bert is not None
    below = model.bert(numbers)
    expected, _ = model.lstm(below[:1, :3])
    torch.testing.assert_close(model(numbers)[0], expected[0, -1])
    torch.testing.assert_close(model(numbers, below), model(numbers))
    torch.testing.assert_close(model(numbers, 0 * below)[0], model.lstm(torch.zeros(1, 3, 8))[0][0, -1])
    assert model.word_vectors().shape == (30, 5)


def test_no_gradient_enters_the_bert() -> None:
    model = tiny(bert=BERT, word_dim=8)
    model(torch.tensor([[3, 4, 5, 0, 0, 0, 0, 0]])).sum().backward()
    assert model.bert is not None
    assert all(parameter.grad is None for parameter in model.bert.parameters())
    assert model.lstm.get_parameter("weight_ih_l0").grad is not None


def test_a_width_that_is_not_the_berts_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"word_dim.*6.*have 8"):
        tiny(bert=BERT)


def test_without_a_bert_the_fingerprint_is_that_of_before() -> None:
    settings = TextLSTMSettings()
    assert "bert" not in settings.identity()
    assert settings.replace(bert=BERT, word_dim=8).identity()["bert"]["width"] == 8
    assert settings.table_width == 512
    assert settings.replace(bert=BERT).table_width is None

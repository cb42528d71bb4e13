import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from limner.data.token_rows import by_word, lay_out, place_evenly, token_batch
from limner.types import PADDING, TokenizedSentence, Word


def test_left_alignment_and_clipping() -> None:
    assert lay_out([[1, 2], [3, 4, 5, 6]], 3).tolist() == [[1, 2, PADDING], [3, 4, 5]]


@given(st.lists(st.lists(st.integers(1, 99), max_size=8), max_size=6), st.integers(1, 10), st.integers(0, 99))
def test_shift_keeps_order_and_drops_only_the_end(rows: list[list[int]], length: int, seed: int) -> None:
    out = lay_out(rows, length, shift=np.random.default_rng(seed))
    assert out.shape == (len(rows), length)
    for row, token_ids in zip(out, rows, strict=True):
        kept = token_ids[:length]
        places = np.flatnonzero(row)
        assert row[places].tolist() == kept
        assert not len(kept) or places.tolist() == list(range(places[0], places[0] + len(kept)))


def test_shift_reaches_every_position_alike() -> None:
    out = lay_out([[7, 8]] * 4000, 5, shift=np.random.default_rng(0))
    starts = np.bincount((out == 7).argmax(axis=1), minlength=5)
    assert starts[4] == 0
    assert (abs(starts[:4] - 1000) < 130).all()


def test_sentences_are_placed_evenly() -> None:
    rows = lay_out([[1, 2], [3, 4, 5, 6, 7], [], [8]], 5)
    every, owners = place_evenly(rows, 0)
    assert every[owners == 0].tolist() == [[1, 2, 0, 0, 0], [0, 1, 2, 0, 0], [0, 0, 1, 2, 0], [0, 0, 0, 1, 2]]
    assert every[owners == 1].tolist() == [[3, 4, 5, 6, 7]]
    assert not every[owners == 2].any()
    assert np.bincount(owners).tolist() == [4, 1, 5, 5]
    three, owners = place_evenly(rows, 3)
    assert three[owners == 3].tolist() == [[8, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 0, 0, 8]]
    one, owners = place_evenly(rows, 1)
    np.testing.assert_array_equal(one, rows)


def test_phrases_and_words_move_with_their_tokens() -> None:
    sentence = TokenizedSentence(
        (7, 8, 9), False, (1, 1, 0), (Word("a", 0, 1, range(2)), Word("b", 2, 3, range(2, 3)))
    )
    batch = token_batch([sentence] * 50, 8, phrases=True, words=True, shift=np.random.default_rng(0))
    starts = (batch.token_ids == 7).argmax(axis=1)
    assert len(set(starts.tolist())) > 2
    assert batch.phrases is not None
    assert batch.words is not None
    np.testing.assert_array_equal(batch.mask.sum(axis=1), np.full(50, 3))
    for row, start in enumerate(starts):
        assert [word.tokens for word in batch.words[row]] == [
            range(start, start + 2),
            range(start + 2, start + 3),
        ]
        assert batch.phrases[row, start : start + 3].tolist() == [1, 1, 0]
    np.testing.assert_array_equal(
        batch.token_ids, lay_out([[7, 8, 9]] * 50, 8, shift=np.random.default_rng(0))
    )


def test_a_batch_is_cut_into_rows() -> None:
    words = tuple((Word(text, 0, 1, range(1)),) for text in "abc")
    sentences = [TokenizedSentence((row + 1,), row == 1, (row,), words[row]) for row in range(3)]
    batch = token_batch(sentences, 2, phrases=True, words=True)
    for rows in (slice(1, 3), np.array([2, 0])):
        part = batch[rows]
        chosen = np.arange(3)[rows]
        np.testing.assert_array_equal(part.token_ids[:, 0], chosen + 1)
        np.testing.assert_array_equal(part.truncated, chosen == 1)
        assert part.phrases is not None
        np.testing.assert_array_equal(part.phrases[:, 0], chosen)
        assert part.words == tuple(words[row] for row in chosen)


def test_no_sentence_has_no_rows() -> None:
    batch = token_batch([], 4, phrases=True, words=True)
    assert batch.token_ids.shape == (0, 4)
    assert batch.phrases is not None
    assert batch.words == ()


def test_values_of_tokens_are_gathered_by_word() -> None:
    words = [Word("ab", 0, 2, range(2)), Word("c", 3, 4, range(2, 3))]
    values = np.array([[1.0, 3.0, 5.0, 9.0]])
    assert by_word(values, words, 1).tolist() == [[4, 5]]
    assert by_word(values, words, 1, mean=True).tolist() == [[2, 5]]
    alone = np.random.default_rng(0).random((2, 3, 4), np.float32)
    each = [Word("", 0, 0, range(token, token + 1)) for token in range(4)]
    np.testing.assert_array_equal(by_word(alone, each, 2), alone)  # to the bit
    np.testing.assert_array_equal(by_word(alone, each, 2, mean=True), alone)

"""Re-ranking against a plain loop: cut the first off, order them by their logits, leave the rest below."""

import numpy as np
import pytest
import torch

from limner.errors import SettingsError
from limner.evaluation.both_directions import evaluate
from limner.evaluation.names import parse_measures
from limner.evaluation.reranking import ClassReranking, First, PairReranking, remembered, reranked
from limner.evaluation.scores import of_embeddings

IMAGES, SENTENCES, DIM = 9, 14, 6


def embeddings(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(count, DIM)).astype(np.float32) for count in (IMAGES, SENTENCES)]
    images, texts = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in rows)
    return images, texts, rng.normal(size=(IMAGES, SENTENCES)).astype(np.float32)


def plain_order(similarities: np.ndarray, logits: np.ndarray, first: First) -> list[int]:
    order = sorted(range(len(similarities)), key=lambda item: -similarities[item])
    count = len(order) if first == "all" else first
    return sorted(order[:count], key=lambda item: -logits[item]) + order[count:]


@pytest.mark.parametrize("first", [0, 1, 4, 20, "all"])
@pytest.mark.parametrize("to_text", [True, False])
def test_orders_as_the_plain_loop(first: First, to_text: bool) -> None:
    images, texts, logits = embeddings(0)
    asked: list[int] = []

    def match(of_images: np.ndarray, of_texts: np.ndarray) -> np.ndarray:
        asked.append(len(of_images))
        return np.asarray(logits[of_images, of_texts])

    queries, gallery = (images, texts) if to_text else (texts, images)
    scores = reranked(
        of_embeddings(queries, gallery),
        PairReranking(match, first),
        to_text,
        np.arange(len(queries)),
        np.arange(len(gallery)),
    )
    block = torch.empty(5, len(gallery))
    scores.write(2, 7, block)
    assert scores.rescore is not None
    scores.rescore(2, 7, block)
    own = logits if to_text else logits.T
    for row, query in enumerate(range(2, 7)):
        expected = plain_order(queries[query] @ gallery.T, own[query], first)
        assert block[row].argsort(descending=True).tolist() == expected
    count = len(gallery) if first == "all" else min(first, len(gallery))
    assert asked == ([5 * count] if count else [])


def test_equal_logits_stay_equal_and_rank_against_the_model() -> None:
    images, texts, _ = embeddings(1)
    reranking = PairReranking(lambda pictures, _: np.zeros(len(pictures), np.float32), "all")
    report = evaluate(
        images,
        texts,
        range(IMAGES),
        np.arange(SENTENCES) % IMAGES,
        protocol="p",
        split="s",
        reranking=reranking,
    )
    assert report.text_to_image["MedR"] == IMAGES
    assert report.text_to_image["R@1"] == 0


def test_folds_ask_for_positions_in_the_whole() -> None:
    images, texts, logits = embeddings(2)
    of_images, of_texts = np.arange(8), np.arange(12) % 8
    seen: set[tuple[int, int]] = set()

    def match(pictures: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        seen.update(zip(pictures.tolist(), sentences.tolist(), strict=True))
        return np.asarray(logits[pictures, sentences])

    evaluate(
        images[:8],
        texts[:12],
        of_images,
        of_texts,
        protocol="p",
        split="s",
        folds=2,
        reranking=PairReranking(match, "all"),
    )
    assert all((picture < 4) == (of_texts[sentence] < 4) for picture, sentence in seen)
    assert len(seen) == 8 * 6


def test_a_perfect_judge_finds_what_stage_1_has_put_among_the_first() -> None:
    images, texts, _ = embeddings(3)
    groups = np.arange(SENTENCES) % IMAGES

    def truth(pictures: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        return np.asarray(groups[sentences] == pictures, dtype=np.float32)

    given = {"protocol": "p", "split": "s"}
    plain = evaluate(images, texts, range(IMAGES), groups, **given)  # type: ignore[arg-type]
    judged = evaluate(images, texts, range(IMAGES), groups, **given, reranking=PairReranking(truth, 5))  # type: ignore[arg-type]
    assert judged.text_to_image["R@1"] == plain.text_to_image["R@5"] > plain.text_to_image["R@1"]
    assert judged.text_to_image["R@10"] == plain.text_to_image["R@10"]


def test_chosen_sentences_are_asked_for_by_their_old_positions() -> None:
    asked: list[int] = []

    def match(pictures: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        asked.extend(sentences.tolist())
        return np.zeros(len(pictures), np.float32)

    chosen = PairReranking(match, 1).of_sentences(np.array([4, 7, 9])).of_sentences(np.array([2, 0]))
    chosen.rescore(False, np.array([0, 1]), np.arange(3), torch.rand(2, 3))
    assert asked == [9, 4]


def test_a_class_is_scored_by_the_mean_confidence_over_its_sentences() -> None:
    images, texts, logits = embeddings(4)
    members = [np.array([0, 3, 5]), np.array([1, 2, 4, 6])]
    pairs = PairReranking(lambda pictures, sentences: logits[pictures, sentences], 2)
    reranking = ClassReranking(pairs, members, images, texts)
    before = torch.from_numpy(np.stack([texts[own].mean(0) for own in members]) @ images.T)
    block = before.clone()
    reranking.rescore(False, np.array([1, 0]), np.arange(IMAGES), block)
    for row, which in enumerate([1, 0]):
        sums, matched = np.zeros(IMAGES), set()
        for sentence in members[which]:
            first = sorted(range(IMAGES), key=lambda item: -float(texts[sentence] @ images[item]))[:2]
            for item in first:
                sums[item] += 1 / (1 + np.exp(-float(logits[item, sentence])))
                matched.add(item)
        above = sorted(matched, key=lambda item: -float(sums[item]))
        rest = sorted(set(range(IMAGES)) - matched, key=lambda item: -float(before[row, item]))
        assert block[row].argsort(descending=True).tolist() == above + rest
        assert torch.equal(block[row, rest], before[row, rest])
    untouched = before.T.contiguous()
    reranking.rescore(True, np.arange(IMAGES), np.arange(2), untouched)
    assert torch.equal(untouched, before.T)


@pytest.mark.parametrize("at_once", [1, 9, 1000])
def test_a_picture_ranks_its_first_classes_by_their_mean_score(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.evaluation.reranking._PAIRS", at_once)
    images, texts, logits = embeddings(4)
    members = [np.array([0, 3, 5]), np.array([1, 2]), np.array([4, 6])]
    pairs = PairReranking(lambda pictures, sentences: logits[pictures, sentences], 2, "scores")
    reranking = ClassReranking(pairs, members, images, texts)
    before = torch.from_numpy(images @ np.stack([texts[own].mean(0) for own in members]).T)
    block = before.clone()
    queries = np.arange(IMAGES)[::-1].copy()
    before, block = before[queries.copy()], block[queries.copy()]
    reranking.rescore(True, queries, np.arange(3), block)
    for row, picture in enumerate(queries):
        first = before[row].argsort(descending=True)[:2].tolist()
        first.sort(key=lambda which: -logits[picture, members[which]].mean())
        (last,) = set(range(3)) - set(first)
        assert block[row].argsort(descending=True).tolist() == [*first, last]
        assert block[row, last] == before[row, last]


def test_very_sure_confidences_of_a_class_do_not_tie() -> None:
    images, texts, _ = embeddings(5)
    sure = np.linspace(-40, -20, IMAGES, dtype=np.float32)
    pairs = PairReranking(lambda pictures, _: np.asarray(sure[pictures]), "all")
    reranking = ClassReranking(pairs, [np.arange(SENTENCES)], images, texts)
    block = torch.zeros(1, IMAGES)
    reranking.rescore(False, np.array([0]), np.arange(IMAGES), block)
    assert block[0].argsort().tolist() == list(range(IMAGES))


def test_the_overlap_is_that_of_the_similarities() -> None:
    images, texts, logits = embeddings(6)
    reports = [
        evaluate(
            images,
            texts,
            range(IMAGES),
            np.arange(SENTENCES) % IMAGES,
            protocol="p",
            split="s",
            measures=parse_measures("all"),
            reranking=reranking,
        )
        for reranking in (None, PairReranking(lambda one, other: np.asarray(logits[one, other]), "all"))
    ]
    plain, judged = (report.model_dump()["text_to_image"] for report in reports)
    assert plain["overlap-S"] == judged["overlap-S"]
    assert plain != judged


def test_fewer_than_none_are_refused() -> None:
    with pytest.raises(SettingsError, match="at least 0"):
        PairReranking(lambda one, _: one, -1)


def test_says_what_it_does() -> None:
    match = PairReranking(lambda pictures, _: pictures, "all")
    assert match.described == "all re-ranked"
    assert PairReranking(match.scorer, 20).described == "first 20 re-ranked"
    assert PairReranking(match.scorer, 0).described == ""


def test_no_pair_is_matched_twice() -> None:
    asked: list[tuple[int, int]] = []

    def match(images: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        asked.extend(zip(images.tolist(), sentences.tolist(), strict=True))
        return np.asarray(10.0 * images + sentences, np.float32)

    once = remembered(match, 3, 4)
    first, second = np.array([0, 0, 2]), np.array([1, 3, 2])
    assert once(first, second).tolist() == [1, 3, 22]
    assert once(np.array([2, 1, 0]), np.array([2, 0, 3])).tolist() == [22, 10, 3]
    assert sorted(asked) == [(0, 1), (0, 3), (1, 0), (2, 2)]
    assert once(np.array([0]), np.array([1])).tolist() == [1]
    assert remembered(match, 1 << 14, 1 << 14) is match

from pathlib import Path

import numpy as np
from PIL import Image

from limner.evaluation.colour_baseline import colour_similarity


def picture(path: Path, top: tuple[int, int, int], bottom: tuple[int, int, int]) -> Path:
    pixels = np.full((60, 30, 3), 128, dtype=np.uint8)
    pixels[8:30, 6:24], pixels[30:52, 6:24] = top, bottom
    Image.fromarray(pixels).save(path)
    return path


RED, BLUE, GREEN, YELLOW = (205, 30, 35), (30, 85, 200), (40, 140, 60), (244, 214, 48)


def test_finds_the_colours_that_are_said(tmp_path: Path) -> None:
    images = [picture(tmp_path / "a.png", RED, BLUE), picture(tmp_path / "b.png", GREEN, YELLOW)]
    scores = colour_similarity(["A red shirt and blue jeans.", "Green top, yellow skirt."], images)
    assert scores.shape == (2, 2)
    assert scores.argmax(axis=1).tolist() == [0, 1]


def test_does_not_know_which_thing_has_which_colour(tmp_path: Path) -> None:
    images = [
        picture(tmp_path / "a.png", RED, BLUE),
        picture(tmp_path / "b.png", BLUE, RED),
        picture(tmp_path / "c.png", GREEN, YELLOW),
    ]
    first, second = colour_similarity(
        ["a red shirt and blue trousers", "a blue shirt and red trousers"], images
    )
    assert np.allclose(first, second)
    assert np.isclose(first[0], first[1], atol=0.02)


def test_the_middle_counts_more_than_the_edge(tmp_path: Path) -> None:
    edge = np.full((60, 30, 3), 128, dtype=np.uint8)
    edge[:, :4] = edge[:, -4:] = RED
    middle = np.full((60, 30, 3), 128, dtype=np.uint8)
    middle[:, 11:19] = RED
    Image.fromarray(edge).save(tmp_path / "edge.png")
    Image.fromarray(middle).save(tmp_path / "middle.png")
    scores = colour_similarity(["red", "blue"], [tmp_path / "edge.png", tmp_path / "middle.png"])
    assert scores[0, 1] > scores[0, 0]


def test_sentences_without_colours_score_nothing(tmp_path: Path) -> None:
    images = [picture(tmp_path / "a.png", RED, BLUE), picture(tmp_path / "b.png", GREEN, YELLOW)]
    assert not colour_similarity(["somebody walks", "a red hat"], images)[0].any()


def test_spellings(tmp_path: Path) -> None:
    images = [picture(tmp_path / "a.png", RED, BLUE), picture(tmp_path / "b.png", (130, 132, 136), YELLOW)]
    first, second, _ = colour_similarity(["gray coat", "grey coat", "red coat"], images)
    assert np.allclose(first, second)


def test_empty_lists() -> None:
    assert colour_similarity([], []).shape == (0, 0)

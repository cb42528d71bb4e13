"""`limner compare` on files of `limner score --per-query`."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Limner


def _written(limner: Limner, folder: Path, noise: float, seed: int) -> Path:
    generator = np.random.default_rng(0)
    images = generator.normal(size=(60, 8))
    sentences = np.repeat(images, 2, axis=0)
    sentences += noise * np.random.default_rng(seed).normal(size=sentences.shape)
    arrays, queries = folder / f"{noise}-{seed}.npz", folder / f"{noise}-{seed}.parquet"
    of_images = np.arange(60)
    np.savez(
        arrays,
        images=images,
        sentences=sentences,
        image_groups=of_images,
        sentence_groups=np.repeat(of_images, 2),
    )
    assert limner("score", arrays, "--per-query", queries).code == 0
    return queries


def test_a_better_system_is_told_from_a_worse_one(limner: Limner, tmp_path: Path) -> None:
    worse = [_written(limner, tmp_path, 2.5, seed) for seed in (1, 2)]
    better = [_written(limner, tmp_path, 1.0, seed) for seed in (1, 2)]
    seeds = [",".join(map(str, files)) for files in (worse, better)]
    done = limner("compare", *seeds, worse[0], "--measures", "R@1,MedR", "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert len(rows) == 2 * 2 * 2
    first = next(row for row in rows if (row["direction"], row["measure"]) == ("text_to_image", "R@1"))
    assert first["difference"] == pytest.approx(first["values"][1] - first["values"][0])
    assert first["difference"] > 10
    assert first["interval"][0] > 0
    assert first["p"] < first["p_holm"] < 0.05
    assert (first["queries"], first["clusters"]) == (120, 60)
    shown = limner("compare", worse[0], better[0])
    assert shown.code == 0
    assert "Holm" in shown.out


def test_mistakes_are_one_line(limner: Limner, tmp_path: Path) -> None:
    one = _written(limner, tmp_path, 1.0, 1)
    other = tmp_path / "other.csv"
    other.write_text("query,R@1\na,1\n", encoding="utf-8")
    for arguments, message in (
        ([one], "takes two or more files"),
        ([one, tmp_path / "none.csv"], "no such file"),
        ([one, other], "no direction with a measure in common"),
        ([one, one, "--measures", "R@7"], "they share R@1, R@5"),
    ):
        done = limner("compare", *arguments)
        assert done.code == 2
        assert message in done.err
        assert done.err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_told_before_the_work(limner: Limner, tmp_path: Path) -> None:
    one = _written(limner, tmp_path, 1.0, 1)
    arrays = one.with_suffix(".npz")
    assert "ends in .parquet or .csv" in limner("score", arrays, "--per-query", tmp_path / "a.txt").err
    assert "no such folder" in limner("score", arrays, "--per-query", tmp_path / "no" / "a.csv").err

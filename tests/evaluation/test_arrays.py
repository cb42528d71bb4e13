import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limner
from limner.errors import DataError
from limner.evaluation.arrays import Results, read_results
from limner.evaluation.names import parse_measures
from limner.evaluation.protocols import PROTOCOLS

PLAIN = PROTOCOLS["plain"]
RNG = np.random.default_rng(0)
GROUPS: dict[str, Any] = {"image_groups": np.arange(4), "sentence_groups": np.array([0, 0, 1, 2, 3, 3])}
ROWS: dict[str, Any] = {
    "images": RNG.standard_normal((4, 3)).astype(np.float32),
    "sentences": RNG.standard_normal((6, 3)).astype(np.float32),
}


def _written(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "file.npz", **arrays)
    return folder / "file.npz"


def test_saved_and_read_again(tmp_path: Path) -> None:
    names: dict[str, Any] = {"image_names": ["a", "b", "c", "ü"], "sentence_names": list("uvwxyz")}
    results = Results(**GROUPS, **ROWS, **names)
    results.save(tmp_path / "file.npz")
    again = read_results(tmp_path / "file.npz")
    assert again.image_names == names["image_names"]
    np.testing.assert_array_equal(again.images, ROWS["images"])
    assert again.scores is None
    assert PLAIN.report(again).model_dump() == PLAIN.report(results).model_dump()


def test_groups_in_text_are_numbered_alike_on_both_sides(tmp_path: Path) -> None:
    names = np.array(["id-7", "id-07", "ü", "a"])
    texts = {"image_groups": names, "sentence_groups": names[GROUPS["sentence_groups"]]}
    expected = PLAIN.report(Results(**GROUPS, **ROWS))
    found = PLAIN.report(read_results(_written(tmp_path, **texts, **ROWS)))
    assert found.model_dump() == expected.model_dump()
    encoded = {name: np.char.encode(array, "utf-8") for name, array in texts.items()}
    assert (
        PLAIN.report(read_results(_written(tmp_path, **encoded, **ROWS))).model_dump()
        == expected.model_dump()
    )
    # Text that one side alone has must not move the numbers of the other side.
    texts["sentence_groups"] = np.array(["aa", *texts["sentence_groups"][1:]])
    numbers = {**GROUPS, "sentence_groups": np.array([9, *GROUPS["sentence_groups"][1:]])}
    found = PLAIN.report(read_results(_written(tmp_path, **texts, **ROWS)))
    assert found.model_dump() == PLAIN.report(Results(**numbers, **ROWS)).model_dump()


def test_scores_and_cosines(tmp_path: Path) -> None:
    unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in ROWS.items()}
    asked = parse_measures("all")
    by_cosine = PLAIN.report(
        read_results(_written(tmp_path, **GROUPS, **ROWS, other=np.ones(2))).unit(), asked
    )
    scores = unit["images"] @ unit["sentences"].T
    by_scores = PLAIN.report(read_results(_written(tmp_path, **GROUPS, scores=scores)), asked)
    assert by_cosine.text_to_image == pytest.approx(by_scores.text_to_image)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (ROWS, "lacks the array 'image_groups'; .* there: 'images', 'sentences'"),
        (GROUPS, "expected either 'scores' or both 'images' and 'sentences'; there: 'image_groups', 'sent"),
        ({**GROUPS, **ROWS, "sentences": np.ones((6, 4))}, "'images' has 3 columns, 'sentences' 4"),
        (
            {**GROUPS, **ROWS, "sentences": np.full((6, 3), np.nan)},
            "'sentences': row 0 holds NaN or infinite",
        ),
        ({**GROUPS, "scores": np.full((4, 6), np.inf)}, "'scores': row 0 holds NaN"),
        (
            {**GROUPS, **ROWS, "image_groups": np.array(list("abcd"))},
            "text on both sides or integers on both, got 'image_groups' <U1 and 'sentence_groups' int64",
        ),
        (
            {
                "image_groups": np.array([], int),
                "sentence_groups": np.array([], int),
                "scores": np.ones((0, 0)),
            },
            "'scores' is empty, of shape",
        ),
        (
            {**GROUPS, **ROWS, "image_labels": np.ones((4, 2), int), "sentence_labels": np.ones((6, 3), int)},
            "'image_labels' has 2 columns, 'sentence_labels' 3",
        ),
        ({**GROUPS, "images": ROWS["images"]}, "expected either"),
        ({**GROUPS, **ROWS, "scores": np.ones((4, 6))}, "expected either"),
        ({**GROUPS, "scores": np.ones((6, 4))}, r"'scores' has shape \(6, 4\), the groups say \(4, 6\)"),
        (
            {**GROUPS, **ROWS, "sentences": ROWS["images"]},
            r"'sentences' has shape \(4, 3\), the groups say \(6,\)",
        ),
        ({**GROUPS, **ROWS, "image_labels": np.ones((4, 2), int)}, "expected both 'image_labels' and"),
        (
            {**GROUPS, **ROWS, "image_labels": np.ones((4, 2), int), "sentence_labels": np.ones((5, 2), int)},
            r"'sentence_labels' has shape \(5, 2\), the groups say \(6,\)",
        ),
        ({**GROUPS, **ROWS, "image_names": np.array(["a"])}, "'image_names' has shape"),
        (
            {**GROUPS, **ROWS, "image_groups": np.array(4)},
            "must have one axis of integers or text, got int64 of shape",
        ),
        ({**GROUPS, **ROWS, "image_groups": np.zeros((4, 1), int)}, "must have one axis of integers"),
        ({**GROUPS, **ROWS, "sentences": np.ones(6)}, "must have two axes of floats, got float64"),
        (
            {**GROUPS, **ROWS, "sentences": np.ones((6, 3), complex)},
            "must have two axes of floats, got complex",
        ),
        ({**GROUPS, **ROWS, "images": np.array([["a"] * 3] * 4)}, "must have two axes of floats"),
        ({**GROUPS, **ROWS, "image_groups": np.array([{}] * 4)}, "not an .npz file of plain arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_results(_written(tmp_path, **arrays))
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_results(tmp_path / "none.npz")
    for content in (b"", b"text", b"PK\x03\x04cut"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"not an \.npz file"):
            read_results(tmp_path / "bad.npz")
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(DataError, match=r"not an \.npz file"):
        read_results(tmp_path / "one.npy")


def test_a_row_of_zeros_has_no_cosine() -> None:
    zeros = ROWS["images"].copy()
    zeros[2] = 0
    with pytest.raises(DataError, match="images: row 2 is zero"):
        Results(**GROUPS, images=zeros, sentences=ROWS["sentences"]).unit()


def test_scores_are_not_normalised() -> None:
    with pytest.raises(DataError, match="scores are compared as they are"):
        Results(**GROUPS, scores=np.ones((4, 6))).unit()


def test_arrays_of_other_machines_and_kinds_are_taken(tmp_path: Path) -> None:
    expected = PLAIN.report(Results(**GROUPS, **ROWS)).model_dump()
    swapped = {name: rows.astype(">f4") for name, rows in ROWS.items()}
    found = read_results(_written(tmp_path, **GROUPS, **swapped, image_names=np.array(["ü".encode()] * 4)))
    assert found.image_names[0] == "ü"
    assert PLAIN.report(found).model_dump() == expected
    long = {name: rows.astype(np.longdouble) for name, rows in ROWS.items()}
    assert PLAIN.report(read_results(_written(tmp_path, **GROUPS, **long))).model_dump() == expected
    votes = np.arange(24).reshape(4, 6)
    as_floats = PLAIN.report(Results(**GROUPS, scores=votes.astype(float))).model_dump()
    assert PLAIN.report(read_results(_written(tmp_path, **GROUPS, scores=votes))).model_dump() == as_floats


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, **GROUPS, **ROWS)
    content = whole.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        damaged = bytearray(content)
        for place in rng.integers(2, len(content), 8):
            damaged[place] ^= int(rng.integers(1, 256))
        (tmp_path / "bad.npz").write_bytes(bytes(damaged))
        try:
            read_results(tmp_path / "bad.npz")
        except DataError:
            refused += 1
    assert refused > 50


def test_members_that_are_no_arrays_and_shapes_beyond_memory_are_refused(tmp_path: Path) -> None:
    whole = _written(tmp_path, **GROUPS, **ROWS)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 1000)}
    )
    for content, message in ((b"", "'images' is no array"), (header.getvalue(), "or damaged")):
        file = tmp_path / "other.npz"
        with zipfile.ZipFile(whole) as before, zipfile.ZipFile(file, "w") as after:
            for name in before.namelist():
                after.writestr(name, content if name == "images.npy" else before.read(name))
        with pytest.raises(DataError, match=message):
            read_results(file)


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'image_names' is not text in UTF-8"):
        read_results(_written(tmp_path, **GROUPS, **ROWS, image_names=np.array([b"\xff"] * 4)))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("factor", [1e-300, 1e-40, 1e-30, 1e-5, 1.0, 3e4, 1e25, 1e37, 1e300])
def test_cosines_do_not_depend_on_the_length_of_rows(kind: type, factor: float) -> None:
    rows = np.random.default_rng(0).uniform(0.1, 1, (20, 16)) * np.random.default_rng(1).choice(
        [-1, 1], (20, 16)
    )
    with np.errstate(over="ignore", under="ignore"):
        scaled = (rows * factor).astype(kind)
    if not np.isfinite(scaled).all() or np.abs(scaled).min() < np.finfo(kind).tiny:
        pytest.skip("the type does not hold such numbers")
    found = Results(np.arange(20), np.arange(20), scaled, scaled).unit()
    assert found.images is not None
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(found.images, expected, atol=2e-3 if kind is np.float16 else 1e-6)


def test_rows_without_a_direction_are_refused() -> None:
    rows = np.ones((3, 4), np.float32)
    for value, message in ((0.0, "row 1 is zero"), (np.inf, "row 1 holds NaN or infinite")):
        rows[1] = value
        with pytest.raises(DataError, match=message):
            Results(np.arange(3), np.arange(3), rows, rows).unit()


@pytest.mark.parametrize("kind", [list, np.array, tuple], ids=["list", "array", "tuple"])
@pytest.mark.parametrize(
    ("of_images", "of_sentences", "said"),
    [
        ([5, 7], [7, 5], None),
        (["a", "b"], ["b", "a"], None),
        ([5, 7], ["7", "5"], "text on both sides or integers on both"),
        ([[5], [7]], [7, 5], "'image_groups' must have one axis of integers or text, got int64 of shape"),
        ([5, 7], [7.0, 5.0], "'sentence_groups' must have one axis of integers or text, got float64"),
        ([True, False], [7, 5], "'image_groups' must have one axis of integers or text, got bool"),
    ],
)
def test_results_take_the_groups_that_a_file_may_have(
    tmp_path: Path, kind: Any, of_images: list[Any], of_sentences: list[Any], said: str | None
) -> None:
    """As `limner score` of the same arrays: refused alike, or with the same figures."""
    file = tmp_path / "results.npz"
    scores = np.array([[0.1, 0.9], [0.8, 0.2]])
    np.savez(file, scores=scores, image_groups=np.array(of_images), sentence_groups=np.array(of_sentences))

    def in_memory() -> Results:
        return Results(kind(of_images), kind(of_sentences), scores=scores)

    for made in (in_memory, lambda: read_results(file)):
        if said is None:
            assert limner.evaluate(made(), measures="R@1").text_to_image == {"R@1": 100.0}
        else:
            with pytest.raises(DataError, match=said):
                made()

import json
import shutil
from pathlib import Path

import pytest

from limner.durable import sealed
from limner.errors import CheckpointError, SettingsError
from limner.evaluation.calibration import Calibration, Reliability
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import FILE, FORMAT, RunCalibration, load_calibration, read_calibration

FILES = Path(__file__).parent / "calibrations"
"""A file of each format, which must be readable for ever."""


@pytest.fixture
def made() -> RunCalibration:
    fitted = Calibration(of_score=1, of_lead=4, offset=-2.5, floor=0.1, right=5, wrong=45)
    worth = Reliability(
        queries=5,
        right=0.6,
        probability=0.5,
        ece=0.1,
        brier=0.2,
        good=0.4,
        good_right=None,
        right_good=0.4,
        good_astray=0,
    )
    return RunCalibration(
        fingerprint="abc",
        checkpoint="stage-1.safetensors",
        data="folder:pictures",
        split="val",
        split_fingerprint="def",
        images=10,
        sentences=5,
        reranked="all",
        embedding=fitted,
        reranker=fitted.replace(of_lead=2),
        reliability={"embedding": worth, "reranker": worth},
        unusable={"embedding": "only 40% of the right first hits reach 0.5"},
        versions={"limner": "0"},
    )


def test_what_is_written_is_read(made: RunCalibration, tmp_path: Path) -> None:
    assert load_calibration(tmp_path, "abc") is None
    assert write_calibration(tmp_path, made) == tmp_path / FILE
    assert load_calibration(tmp_path, "abc") == made
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    checkpoint = tmp_path / "stage-1.safetensors"
    assert load_calibration(checkpoint, "abc") is None  # a file that is not there has nothing beside it
    checkpoint.touch()
    assert load_calibration(checkpoint, "abc") == made
    changed = made.replace(threshold=0.8, reranker=None)
    assert write_calibration(checkpoint, changed) == tmp_path / FILE
    assert load_calibration(tmp_path, "abc") == changed


def test_a_search_with_another_model_has_none(made: RunCalibration, tmp_path: Path) -> None:
    write_calibration(tmp_path, made)
    assert load_calibration(tmp_path, "xyz") is None
    assert read_calibration(tmp_path) == made


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected a JSON object"),
        ("{}", "damaged, its digest is another"),
        (sealed({}), "damaged, setting 'fingerprint'"),
        ('{"format": 5}', "format 5 is newer"),
        ('{"format": 3}', "format 3 is older than this limner"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=complaint) as refused:
        load_calibration(tmp_path, "abc")
    assert "\n" not in str(refused.value)


def test_no_value_can_be_missing_or_nonsense(made: RunCalibration, tmp_path: Path) -> None:
    write_calibration(tmp_path, made)
    values = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    nonsense: list[dict[str, object]] = [
        {"threshold": 1.5},
        {"threshold": "half"},
        {"embedding": {}},
        {"reranked": -1},
        {"colour": 1},
        {"unusable": {"colour": "x"}},
    ]
    del values["digest"]
    for wrong in nonsense:
        (tmp_path / FILE).write_text(sealed({**values, **wrong}), encoding="utf-8")
        with pytest.raises(CheckpointError, match="damaged"):
            load_calibration(tmp_path, "abc")
    (tmp_path / FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match="damaged"):
        load_calibration(tmp_path, "abc")
    with pytest.raises(SettingsError, match="threshold"):
        made.replace(threshold=-0.1)


def test_a_changed_figure_is_found(made: RunCalibration, tmp_path: Path) -> None:
    text = write_calibration(tmp_path, made).read_text(encoding="utf-8")
    for old, new in (('"threshold": 0.5', '"threshold": 0.6'), ("-2.5", "-2.4"), ('"digest"', '"digesu"')):
        assert old in text
        (tmp_path / FILE).write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(CheckpointError, match="damaged"):
            load_calibration(tmp_path, "abc")


def test_what_cannot_be_opened_or_written_is_refused(made: RunCalibration, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_calibration(tmp_path, "abc")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_calibration(tmp_path / "nowhere", made)


def test_each_format_has_a_file() -> None:
    # formats before 4 were never released
    assert sorted(file.stem for file in FILES.iterdir()) == [f"format-{n}" for n in range(4, FORMAT + 1)]


@pytest.mark.parametrize("file", sorted(FILES.iterdir()), ids=lambda file: file.stem)
def test_a_file_of_any_format_says_whether_its_threshold_is_used(file: Path, tmp_path: Path) -> None:
    """One kind of score reaches the threshold by 20% of its right first hits, the other by 90%."""
    shutil.copy(file, tmp_path / FILE)
    found = load_calibration(tmp_path, "abc")
    assert found is not None
    assert found.format == FORMAT
    assert found.unusable == {"embedding": "only 20% of the right first hits reach 0.5"}
    assert (found.threshold_for(reranked=False), found.threshold_for(reranked=True)) == (None, 0.5)
    shares = {kind: one.right_good for kind, one in found.reliability.items()}
    assert shares == {"embedding": pytest.approx(0.2), "reranker": pytest.approx(0.9)}
    # written again it is of the present format, and says the same
    write_calibration(tmp_path, found)
    assert load_calibration(tmp_path, "abc") == found

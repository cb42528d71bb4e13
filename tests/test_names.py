"""Names that are written in two ways: on disks, in tables, in conditions and on the command line."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limner.conditions import Condition
from limner.data.readers import open_dataset
from limner.errors import DataError
from limner.names import OnDisk, Spelling, same_name
from limner.search.index import spelled_as

NAMES = st.text(st.sampled_from("aÅ\u212bÅe\u0301\u0323\u1e69각\u1100\u1161/"), min_size=1, max_size=6)
FORMS = ("NFC", "NFD")


def written(name: str, form: str) -> str:
    return unicodedata.normalize(form, name)  # type: ignore[arg-type]


@given(st.lists(NAMES, max_size=5), NAMES)
@example(["\u00c5/a", "\u212b/a"], "\u212b")
@example(["\u00c5/a", "\u212b/a"], "A\u030a/a")
def test_exact_first_then_the_one_that_is_canonically_equal(names: list[str], asked: str) -> None:
    known = {part for name in names for part in _with_folders(name)}
    equal = {name for name in known if same_name(name) == same_name(asked)}
    spelling = Spelling(names)
    if asked in known:
        assert spelling.of(asked) == asked
    elif len(equal) > 1:
        with pytest.raises(DataError, match="differ in how their accents are written"):
            spelling.of(asked)
    else:
        assert spelling.of(asked) == next(iter(equal), asked)


def _with_folders(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:stop]) for stop in range(1, len(parts) + 1)} - {""}


@pytest.mark.parametrize("disk", FORMS)
@pytest.mark.parametrize("table", FORMS)
def test_captions_find_their_files(disk: str, table: str, tmp_path: Path) -> None:
    name = "Fotos é/Köln 각.jpg"
    (tmp_path / written(name, disk)).parent.mkdir()
    (tmp_path / written(name, disk)).touch()
    for file, text in (
        ("captions.csv", f"file,caption\n{name},x\n"),
        ("reid_raw.json", f'[{{"split": "train", "captions": ["x"], "file_path": "{name}", "id": 1}}]'),
    ):
        (tmp_path / file).write_text(written(text, table), encoding="utf-8")
        form = "folder" if file.endswith("csv") else "cuhk-pedes"
        (record,) = open_dataset(f"{form}:{tmp_path / file}").records
        assert record.image == tmp_path / written(name, disk)


def test_a_caption_that_may_mean_two_files_is_one_line(tmp_path: Path) -> None:
    # an A with a dot below and a ring: composed, apart, and half of each
    both, neither = [written("Ạ̊.jpg", form) for form in FORMS], "A\u030a\u0323.jpg"
    assert len({*both, neither}) == 3
    for name in both:
        (tmp_path / name).touch()
    for name in both:
        assert OnDisk().find(tmp_path / name) == tmp_path / name
    (tmp_path / "captions.csv").write_text(f"file,caption\n{neither},x\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"may be .* and .*, which differ in how") as error:
        open_dataset(f"folder:{tmp_path}")
    assert "\n" not in str(error.value)


def test_names_that_no_disk_has_stay_as_they_are(tmp_path: Path) -> None:
    for name in ("é.jpg", "é/ü.jpg", "é" * 300, "é\0"):
        assert OnDisk().find(tmp_path / name) == tmp_path / name


@pytest.mark.parametrize("form", FORMS)
def test_metadata_meets_pictures(form: str) -> None:
    other = FORMS[form == "NFC"]
    paths = [written("/é/a.jpg", form), "/b.jpg"]
    assert spelled_as(paths, {written("/é/a.jpg", other): 1, "/b.jpg": 2, "/ö.jpg": 3}) == {
        paths[0]: 1,
        "/b.jpg": 2,
        "/ö.jpg": 3,
    }
    # what is told by the exact name counts
    assert spelled_as(paths, {paths[0]: 1, written("/é/a.jpg", other): 2})[paths[0]] == 1


@pytest.mark.parametrize("stored", FORMS)
@pytest.mark.parametrize("asked", FORMS)
@pytest.mark.parametrize(
    "condition", ["Ärzte=José", "Ärzte~*jos?", 'Ärzte="José"', "Ärzte=Ana|José", "Ärzte>=José"]
)
def test_conditions_mean_names_and_values_in_either_form(stored: str, asked: str, condition: str) -> None:
    facts = {written("Ärzte", stored): written("José", stored)}
    assert Condition.parse(written(condition, asked)).holds(facts)
    assert not Condition.parse(written("Ärzte!=José", asked)).holds(facts)

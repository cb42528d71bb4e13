import json
from pathlib import Path

import pytest

from limner.data.check import check_dataset
from limner.data.readers import open_dataset
from limner.errors import DataError
from tests.data import trees
from tests.data.trees import FOR_TRAINING, ROWS, Row, draw

ROW = ROWS[0]


@pytest.mark.parametrize("form", FOR_TRAINING)
def test_all_pictures_are_for_training(form: str, tmp_path: Path) -> None:
    dataset = open_dataset(FOR_TRAINING[form](tmp_path, ROWS))
    assert dataset.group_kind == ("identity" if form == "synth_pedes" else "image")
    # Of so few groups a twentieth may be none.
    assert "train" in dataset.split_counts
    assert "test" not in dataset.split_counts
    assert dataset.drawn == {"train": "val=0.05 of train", "val": "val=0.05 of train"}
    assert [record.image.name for record in dataset.records] == [row.file for row in ROWS]
    assert all(record.image.is_file() for record in dataset.records)
    report = check_dataset(dataset)
    assert {problem.kind for problem in report.problems} == {"split-missing"}


@pytest.mark.parametrize("form", FOR_TRAINING)
def test_a_twentieth_is_held_out_for_validation(form: str, tmp_path: Path) -> None:
    rows = [Row(f"{number}.jpg", ("a man",), None, str(number)) for number in range(300)]
    source = FOR_TRAINING[form](tmp_path, rows)
    counts = open_dataset(source).split_counts
    assert 5 <= counts["val"] <= 30
    assert counts["train"] + counts["val"] == 300
    assert open_dataset(f"{source}#seed=1").split_counts["test"] > 0


@pytest.mark.parametrize(
    ("form", "sentences"),
    [
        ("synth_pedes", [row.captions for row in ROWS]),
        ("luperson_mllm", [row.captions for row in ROWS]),
        ("mals", [row.captions[:1] for row in ROWS]),
        ("webperson_json", [(row.captions[0], row.captions[-1]) for row in ROWS]),
    ],
)
def test_the_sentences_of_each_set(form: str, sentences: list[tuple[str, ...]], tmp_path: Path) -> None:
    dataset = open_dataset(FOR_TRAINING[form](tmp_path, ROWS))
    assert [record.sentences for record in dataset.records] == sentences


def test_what_is_kept_of_the_attributes(tmp_path: Path) -> None:
    mals = open_dataset(trees.write_mals(tmp_path / "mals", ROWS)).records[0]
    assert mals.metadata == {"image_id": "4x_0", "label": [1, 0, -1]}
    assert mals.group == "a1"
    synth = open_dataset(trees.write_synth_pedes(tmp_path / "synth", ROWS)).records[0]
    assert synth.metadata["attributes"] == ["man,black hair"]
    assert synth.metadata["folder"] == "Part1/1"
    assert synth.group == "id-1"


def test_one_file_alone(tmp_path: Path) -> None:
    trees.write_luperson_mllm(tmp_path / "a", ROWS)
    alone = open_dataset(f"luperson-mllm:{tmp_path / 'a' / 'caption' / 'Td-qwen.json'}")
    assert [record.sentences for record in alone.records] == [row.captions[1:] for row in (ROWS[0], ROWS[3])]
    trees.write_mals(tmp_path / "b", ROWS)
    alone = open_dataset(f"mals:{tmp_path / 'b' / 'gene_attrs' / 'g_4x_attrs.json'}")
    assert [record.image.name for record in alone.records] == ["a1.jpg", "a2.jpg"]
    source = trees.write_webperson_json(tmp_path / "c", ROWS)
    assert open_dataset(f"{source}/100w.json").records == open_dataset(source).records


def test_annotations_apart_from_the_pictures(tmp_path: Path) -> None:
    """The folders of APTM's readme: data/gene_attrs and images/MALS below one folder."""
    trees.write_mals(tmp_path / "images" / "MALS", ROWS)
    (tmp_path / "data").mkdir()
    (tmp_path / "images" / "MALS" / "gene_attrs").rename(tmp_path / "data" / "gene_attrs")
    dataset = open_dataset(f"mals:{tmp_path / 'data'}")
    assert all(record.image.is_file() for record in dataset.records)


def test_faults_of_files_are_found(tmp_path: Path) -> None:
    rows = [Row(f"{number}.jpg", ("a man",), None, str(number)) for number in range(300)]
    source = trees.write_mals(tmp_path, rows)
    dataset = open_dataset(source)
    pictures = [record.image for record in dataset.records if record.split == "train"][:3]
    pictures[0].unlink()
    pictures[1].write_bytes(b"")
    draw(pictures[2].parent / "more.jpg", 999)
    report = check_dataset(dataset)
    assert {problem.kind: problem.count for problem in report.problems} == {
        "missing-picture": 1,
        "unreadable-picture": 1,
        "unlisted-picture": 1,
        "split-missing": 1,
        "shared-caption": 1,
    }
    assert report.facts.edition == "MALS"
    assert report.facts.deviations[0] == "train+val+test: 300 pictures, published 1,510,330"
    entries = json.loads((tmp_path / "gene_attrs" / "g_4x_attrs.json").read_text())
    (tmp_path / "gene_attrs" / "g_4x_attrs.json").write_text(json.dumps([*entries, entries[0]]))
    assert "listed-twice" in {problem.kind for problem in check_dataset(open_dataset(source)).problems}


@pytest.mark.parametrize(
    ("form", "file", "content", "says"),
    [
        ("mals", "gene_attrs/g_4x_attrs.json", "{", "JSON was expected"),
        ("mals", "gene_attrs/g_4x_attrs.json", {}, "a list of entries was expected at the top level, got {}"),
        ("mals", "gene_attrs/g_4x_attrs.json", [1], "[0]: an object was expected, got 1"),
        ("mals", "gene_attrs/g_4x_attrs.json", [{"image": "a.jpg"}], "[0]: 'caption' is missing"),
        (
            "mals",
            "gene_attrs/g_4x_attrs.json",
            [{"image": "../a.jpg", "caption": "x"}],
            "inside the dataset folder",
        ),
        (
            "mals",
            "gene_attrs/g_4x_attrs.json",
            [{"image": "a.jpg", "caption": ["x"]}],
            "'caption' must be a string",
        ),
        (
            "luperson_mllm",
            "caption/Ts-qwen.json",
            [],
            "an object from picture to caption was expected, got []",
        ),
        ("luperson_mllm", "caption/Ts-qwen.json", {"a.jpg": 1}, "'a.jpg': 'caption' must be a string, got 1"),
        ("luperson_mllm", "caption/Ts-qwen.json", {"a/..": "x"}, "inside the dataset folder"),
        ("webperson_json", "100w.json", [{"a.jpg": "x"}], "[0]: 'a.jpg': an object was expected, got 'x'"),
        ("webperson_json", "100w.json", [{"a.jpg": {"caption1": "x"}}], "'caption2' is missing"),
        (
            "webperson_json",
            "100w.json",
            [{"/a.jpg": {"caption1": "x", "caption2": "y"}}],
            "inside the dataset",
        ),
        ("webperson_json", "100w.json", [], "no picture is listed"),
        (
            "synth_pedes",
            "synthpedes_dataset.json",
            [{"id": 1, "file_path": "Part1/1/a1.jpg"}],
            "'captions' is missing",
        ),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(
    form: str, file: str, content: object, says: str, tmp_path: Path
) -> None:
    source = FOR_TRAINING[form](tmp_path, ROWS)
    (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError) as error:
        open_dataset(source)
    assert str(error.value).startswith(f"{tmp_path / file}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    source = trees.write_luperson_mllm(tmp_path, ROWS)
    (tmp_path / "caption" / "Td-shikra.json").unlink()
    with pytest.raises(DataError, match=r"Td-shikra\.json not found; give the path of one"):
        open_dataset(source)
    with pytest.raises(DataError, match=r"g_\*_attrs\.json was expected here or in gene_attrs/, found none"):
        open_dataset(f"mals:{tmp_path}")
    mals = trees.write_mals(tmp_path / "mals", ROWS)
    for picture in (tmp_path / "mals").rglob("*.jpg"):
        picture.unlink()
    with pytest.raises(DataError, match="none of its pictures was found"):
        open_dataset(mals)

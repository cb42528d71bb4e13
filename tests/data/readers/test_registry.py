import gc
from pathlib import Path

import pytest

from limner.data.check import check_dataset
from limner.data.readers import FORMATS, open_dataset
from limner.errors import DataError
from tests.data import trees


def test_the_formats_are_those_of_the_documentation() -> None:
    captions = ("flickr8k", "flickr30k", "mscoco", "mscoco-labels", "cub", "flowers")
    people = ("cuhk-pedes", "icfg-pedes", "rstpreid", "ufine6926", "vn3k", "prw-tps-cn")
    training = ("synth-pedes", "mals", "luperson-mllm", "webperson")
    assert set(FORMATS) == {*captions, *people, *training, "folder", "parquet", "webdataset"}


@pytest.mark.parametrize("form", trees.FORMS)
def test_every_form_opens_with_the_same_content(form: str, tmp_path: Path) -> None:
    source = trees.FORMS[form](tmp_path, trees.ROWS)
    dataset = open_dataset(source)
    assert dataset.source == source
    assert dataset.group_kind == ("identity" if form in trees.WITH_IDENTITIES else "image")
    assert [record.image.name for record in dataset.records] == [row.file for row in trees.ROWS]
    assert [record.sentences for record in dataset.records] == [row.captions for row in trees.ROWS]
    assert [record.split for record in dataset.records] == [row.split for row in trees.ROWS]
    assert all(record.image.is_file() for record in dataset.records)
    groups = [record.group for record in dataset.records]
    assert len(set(groups)) == (4 if form in trees.WITH_IDENTITIES else 5)
    assert (groups[0] == groups[1]) == (form in trees.WITH_IDENTITIES)


@pytest.mark.parametrize("form", trees.SHARDS)
def test_shards_open_with_the_same_content(form: str, tmp_path: Path) -> None:
    dataset = open_dataset(trees.SHARDS[form](tmp_path, trees.ROWS))
    assert dataset.group_kind == "identity"
    records = {str(record.metadata["name"]): record for record in dataset.records}
    assert len(records) == len(trees.ROWS)
    for row in trees.ROWS:
        record = records[row.file]
        assert record.image.is_file()
        assert record.image.name.endswith(f"-{row.file}")
        assert (record.sentences, record.split) == (row.captions, row.split)
        assert record.group == f"id-{row.identity}"
    assert check_dataset(dataset).problems == ()


@pytest.mark.parametrize("form", [form for form in trees.FORMS if form not in trees.WITH_CLASSES])
def test_the_annotation_file_itself_may_be_given(form: str, tmp_path: Path) -> None:
    source = trees.FORMS[form](tmp_path, trees.ROWS)
    name = source.partition(":")[0]
    names = (
        *("dataset_flickr8k.json", "Flickr8k.token.txt", "results_20130124.token", "reid_raw.json"),
        *("annotations/ICFG-PEDES.json", "data_captions.json", "captions.csv", "captions.jsonl"),
        *("UFine6926_Annotations.json", "data_captions_vn3k.json", "prw_cn_caption_crops.json"),
    )
    file = next(tmp_path / file for file in names if (tmp_path / file).exists())
    assert open_dataset(f"{name}:{file}").records == open_dataset(source).records


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("flicker8k:x", "did you mean 'flickr8k'"),
        ("CUHK-PEDES:x", "did you mean 'cuhk-pedes'"),
        (
            "zip:x",
            "known: flickr8k, flickr30k, mscoco, mscoco-labels, cuhk-pedes, icfg-pedes, rstpreid, ufine6926, ",
        ),
        ("mscoco:", "a path was expected after 'mscoco:'"),
        ("mscoco:no/such/place", "no/such/place': there is no such folder"),
        ("folder:a\0b", "there is no such folder"),
        ("folder:" + "x" * 5000, "there is no such folder"),
        ("no/such/place", "FORMAT:PATH was expected"),
        ("", "FORMAT:PATH was expected"),
        ("C:\\pictures", "FORMAT:PATH was expected"),
        ("a/b:c", "FORMAT:PATH was expected"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(source: str, says: str) -> None:
    with pytest.raises(DataError) as error:
        open_dataset(source)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


EVERY = {**trees.FORMS, **trees.SHARDS, **trees.FOR_TRAINING}


@pytest.mark.parametrize("form", EVERY)
def test_a_bare_path_gets_the_format_its_files_suggest(form: str, tmp_path: Path) -> None:
    source = EVERY[form](tmp_path, trees.ROWS)
    with pytest.raises(DataError, match="its files suggest") as error:
        open_dataset(str(tmp_path))
    assert source in str(error.value)


def test_a_bare_annotation_file_gets_its_format(tmp_path: Path) -> None:
    trees.write_cuhk_pedes(tmp_path, trees.ROWS)
    with pytest.raises(DataError, match="its files suggest cuhk-pedes:"):
        open_dataset(str(tmp_path / "reid_raw.json"))


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_folder_names_the_file_that_was_expected(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected"):
        open_dataset(f"{name}:{tmp_path}")


def test_splits_are_replaced_where_it_is_asked_for(tmp_path: Path) -> None:
    source = trees.write_flickr8k_text(tmp_path, trees.ROWS)
    folds = [open_dataset(f"{source}#fold={fold}/3") for fold in (1, 2, 3)]
    assert folds[0].source == f"{source}#fold=1/3"
    tested = [record.image.name for fold in folds for record in fold.split("test").records]
    assert sorted(tested) == sorted(row.file for row in trees.ROWS)
    pictures = trees.write_csv(tmp_path / "own" / "folder", trees.ROWS)
    trees.draw(tmp_path / "own" / "beside.jpg")
    kinds = {problem.kind for problem in check_dataset(open_dataset(f"{pictures}#seed=1")).problems}
    assert "unlisted-picture" not in kinds
    assert open_dataset(f"{source}#seed=1").split_counts != open_dataset(source).split_counts
    with pytest.raises(DataError, match="fold 4 of 3 was asked for"):
        open_dataset(f"{source}#fold=4/3")
    with pytest.raises(DataError, match="there is no such folder"):
        open_dataset(f"{source}#fold=1")


def test_the_garbage_collector_runs_again_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        open_dataset(f"folder:{tmp_path}")
    assert gc.isenabled()

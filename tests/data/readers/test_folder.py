import csv
import io
import json
import re
import time
from pathlib import Path

import pytest

from limner.data.readers import open_dataset
from limner.data.records import Dataset, Record, sentence_languages
from limner.data.splits import assign_splits
from limner.errors import DataError


def read(root: Path, content: str | bytes, name: str = "captions.csv") -> Dataset:
    (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_dataset(f"folder:{root}")


def lines(*rows: object) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def test_rows_of_one_file_are_sentences_of_one_picture(tmp_path: Path) -> None:
    dataset = read(
        tmp_path, 'file,caption\na.jpg,"red, coat"\nb/c.jpg,dog\n./a.jpg,"said ""hi"""\nb\\c.jpg,cat\n'
    )
    first, second = dataset.records
    assert (first.image, first.group) == (tmp_path / "a.jpg", "a.jpg")
    assert first.sentences == ("red, coat", 'said "hi"')
    assert (second.image, second.group) == (tmp_path / "b" / "c.jpg", "b/c.jpg")
    assert second.sentences == ("dog", "cat")
    assert dataset.group_kind == "image"


def test_columns_identity_split_and_metadata(tmp_path: Path) -> None:
    header = "\ufeffFile,Caption,Identity,SPLIT,camera,note"
    dataset = read(tmp_path, f"{header}\na.jpg,x,anna,dev,north,\nb.jpg,y,anna,valid,south,wet\n")
    assert dataset.group_kind == "identity"
    assert [record.group for record in dataset.records] == ["anna", "anna"]
    assert [record.split for record in dataset.records] == ["val", "val"]
    assert [record.metadata for record in dataset.records] == [
        {"camera": "north"},
        {"camera": "south", "note": "wet"},
    ]


def test_json_lines_with_one_sentence_several_or_none(tmp_path: Path) -> None:
    text = lines(
        {"file": "a.jpg", "captions": ["x", "y\u2028z"], "identity": 7, "split": "training", "tags": [1]},
        {"file": "b.jpg", "caption": "w", "identity": "7", "split": "test"},
        {"file": "c.jpg", "identity": 8, "split": "test", "note": None},
    )
    dataset = read(tmp_path, text + "\n\n", "captions.jsonl")
    assert [record.sentences for record in dataset.records] == [("x", "y\u2028z"), ("w",), ()]
    assert [record.group for record in dataset.records] == ["7", "7", "8"]
    assert [record.metadata for record in dataset.records] == [{"tags": [1]}, {}, {}]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_as_spreadsheets_and_open_clip_write_it(separator: str, tmp_path: Path) -> None:
    def table(*rows: str) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=separator).writerows(row.split("|") for row in rows)
        return text.getvalue()

    plain = read(tmp_path, table("file|caption|split", "a.jpg|x|train", "b/c.jpg|y, z! and|test")).records
    assert [(one.sentences, one.split) for one in plain] == [(("x",), "train"), (("y, z! and",), "test")]
    # with the folder as open_clip's examples have it, and through a link to it
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    for folder in (tmp_path, tmp_path / "link"):
        theirs = table("filepath|title", f"{folder}/a.jpg|x", f"{tmp_path}//b/c.jpg|y, z! and")
        (tmp_path / "captions.csv").write_text(theirs, encoding="utf-8")
        found = open_dataset(f"folder:{folder}").records
        assert [one.sentences for one in found] == [one.sentences for one in plain]
        assert [one.group for one in found] == ["a.jpg", "b/c.jpg"]
    # a column of the user's that open_clip calls so, too
    mine = read(tmp_path, table("file|caption|title", "a.jpg|x|dr"))
    assert mine.records[0].metadata == {"title": "dr"}


def test_absolute_paths_outside_of_the_folder_say_the_next_step(tmp_path: Path) -> None:
    inner = tmp_path / "set"
    inner.mkdir()
    for name in (
        f"{tmp_path}/a.jpg",
        f"{inner}x/a.jpg",
        f"{inner}/../a.jpg",
        "C:/set/a.jpg",
        "C:\\set\\a.jpg",
    ):
        with pytest.raises(
            DataError, match=rf"line 2: 'file' must be .*relative to {inner}, or put captions"
        ):
            read(inner, f"file,caption\n{name},x\n")


def test_labels_of_a_picture(tmp_path: Path) -> None:
    rows = "a.jpg,x,man; coat;man\nb.jpg,y,\nc.jpg,z,dog\na.jpg,w,coat;man\n"
    dataset = read(tmp_path, f"file,caption,Labels\n{rows}")
    assert [record.labels for record in dataset.records] == [("coat", "man"), (), ("dog",)]
    assert [record.metadata for record in dataset.records] == [{}, {}, {}]
    (tmp_path / "captions.csv").unlink()
    text = lines(
        {"file": "a.jpg", "caption": "x", "labels": ["man", " coat", ""]},
        {"file": "b.jpg", "caption": "y", "labels": None},
    )
    assert [record.labels for record in read(tmp_path, text, "captions.jsonl").records] == [
        ("coat", "man"),
        (),
    ]


def test_labels_that_are_none_or_disagree(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 3: labels 'dog' contradict 'coat' of 'a\.jpg' at line 2"):
        read(tmp_path, "file,caption,labels\na.jpg,x,coat\na.jpg,y,dog\n")
    (tmp_path / "captions.csv").unlink()
    for labels in (7, ["coat", 7]):
        with pytest.raises(DataError, match="must be a string, got 7"):
            read(tmp_path, lines({"file": "a.jpg", "caption": "x", "labels": labels}), "captions.jsonl")


def test_languages_of_sentences(tmp_path: Path) -> None:
    rows = "a.jpg,x,EN\na.jpg,y,zh-hant-tw\nb.jpg,z, de \na.jpg,w,\nc.jpg,v,\nd.jpg,,vi\n"
    dataset = read(tmp_path, f"file,caption,Language\n{rows}")
    assert [record.languages for record in dataset.records] == [("en", "zh-Hant-TW", None), ("de",), (), ()]
    assert [record.metadata for record in dataset.records] == [{}, {}, {}, {}]
    assert sentence_languages(dataset) == ("en", "zh-Hant-TW", None, "de", None)
    (tmp_path / "captions.csv").unlink()
    text = lines(
        {"file": "a.jpg", "captions": ["x", "y"], "language": "de-x-VERY"},
        {"file": "a.jpg", "captions": ["z", "w"], "languages": ["vi", None]},
        {"file": "b.jpg", "caption": "v", "language": None},
    )
    first, second = read(tmp_path, text, "captions.jsonl").records
    assert (first.languages, second.languages) == (("de-x-very", "de-x-very", "vi", None), ())


def test_languages_travel_through_splits_and_count_in_the_fingerprint(tmp_path: Path) -> None:
    rows = "".join(f"{n}.jpg,x,{'de' if n % 2 else 'en'}\n{n}.jpg,y,vi\n" for n in range(60))
    dataset = read(tmp_path, "file,caption,language\n" + rows)
    source = f"folder:{tmp_path}"
    for own in (dataset, open_dataset(f"{source}#seed=2"), open_dataset(f"{source}#fold=1/3")):
        for split in own.split_counts:
            for record in own.split(split).records:
                assert record.languages == ("de" if int(record.image.stem) % 2 else "en", "vi")
    assert read(tmp_path, "file,caption,language\n" + rows).fingerprint == dataset.fingerprint
    assert (
        read(tmp_path, "file,caption,language\n" + rows.replace("de", "fr")).fingerprint
        != dataset.fingerprint
    )
    without = read(tmp_path, "file,caption\n" + re.sub(",[a-z]+\n", "\n", rows))
    assert without.fingerprint != dataset.fingerprint
    assert sentence_languages(without) == ()


def test_a_record_has_a_language_for_each_sentence_or_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jpg: 2 sentences have 1 languages; give one of each"):
        Record(tmp_path / "a.jpg", ("x", "y"), "a", languages=("de",))


def test_raw_line_separators_inside_json_do_not_end_a_row(tmp_path: Path) -> None:
    text = '{"file": "a.jpg", "caption": "one\u2028two"}\r\n{"file": "b.jpg", "caption": "c"}\r\n'
    assert [record.sentences for record in read(tmp_path, text, "captions.jsonl").records] == [
        ("one\u2028two",),
        ("c",),
    ]


def test_an_empty_cell_is_no_sentence_unless_others_stand_beside_it(tmp_path: Path) -> None:
    dataset = read(tmp_path, "file,caption\na.jpg,\nb.jpg,x\nb.jpg,\n")
    assert [record.sentences for record in dataset.records] == [(), ("x", "")]


def test_an_identity_column_that_is_blank_throughout_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, "file,caption,identity\na.jpg,x,\nb.jpg,y, \n").group_kind == "image"


def test_the_row_numbers_that_pandas_writes_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, ",file,caption\n0,a.jpg,x\n").records[0].metadata == {}


def test_without_splits_they_are_assigned_by_group(tmp_path: Path) -> None:
    rows = "".join(f"{n}.jpg,x,p{n // 2}\n" for n in range(400))
    dataset = read(tmp_path, "file,caption,identity\n" + rows)
    assert set(dataset.split_counts) == {"train", "val", "test"}
    assert dataset == assign_splits(dataset, seed=0)


def test_with_some_splits_the_rest_stay_without(tmp_path: Path) -> None:
    dataset = read(tmp_path, "file,caption,split\na.jpg,x,train\nb.jpg,y,\n")
    assert [record.split for record in dataset.records] == ["train", None]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty"),
        ("file,caption\n", "no row with a picture"),
        ("a.jpg,a dog\n", "line 1: the column 'file' was expected in the header, got 'a.jpg, a dog'"),
        ("file:caption\na.jpg:x\n", "the column 'file' was expected in the header"),
        (
            "file,captoin\na.jpg,x\n",
            "the column 'caption' was expected in the header, got 'file, captoin'; is it 'captoin'?",
        ),
        ("file,captions\na.jpg,x\n", "with one sentence a row"),
        ("file,caption,file\na,b,c\n", "line 1: the column 'file' stands twice"),
        ("file,caption,File\na,b,c\n", "line 1: the column 'file' stands twice"),
        ("file,caption\na.jpg,red, coat\n", "line 2: 2 cells were expected as in the header, got 3"),
        ("file,caption\na.jpg\n", "line 2: 2 cells were expected as in the header, got 1"),
        ('file,caption\na.jpg,"red coat\nb.jpg,x\n', "CSV was expected"),
        ("file,caption\n,x\n", "line 2: 'file' must name a picture file, got ''"),
        ("file,caption\n../a.jpg,x\n", "line 2: 'file' must be a path inside"),
        ("file,caption\n/a.jpg,x\n", "line 2: 'file' must be a path inside"),
        (
            "file,caption,identity\na.jpg,x,1\nb.jpg,y,\n",
            "line 3: 'identity' is missing, other rows have one",
        ),
        (
            "file,caption,identity\na.jpg,x,1\na.jpg,y,2\n",
            "line 3: identity '2' contradicts '1' of 'a.jpg' at line 2",
        ),
        (
            "file,caption,split\na.jpg,x,train\na.jpg,y,dev\n",
            "line 3: split val contradicts train of 'a.jpg' at line 2",
        ),
        ("file,caption,split\na.jpg,x,trial\n", "line 2: 'split' must be one of"),
        (
            "file,caption,language\na.jpg,x,en_US\n",
            "line 2: 'language' must be the tag of a language, e.g. en",
        ),
        (
            "file,caption,language\na.jpg,x,en\na.jpg,y,1\n",
            "line 3: 'language' must be the tag of a language",
        ),
        ("file,caption,languages\na.jpg,x,en\n", "line 1: the column 'language' was expected"),
        (
            "file,caption,hat\na.jpg,x,red\na.jpg,y,blue\n",
            "line 3: 'hat' differs from that of 'a.jpg' at line 2",
        ),
        (f"file,caption\na.jpg,{'x' * 200_000}\n", "line 2: CSV was expected, field larger"),
        (b"file,caption\na.jpg,caf\xe9\n", "line 2: UTF-8 text was expected"),
    ],
)
def test_a_malformed_csv_is_refused_with_its_line(content: str | bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(f"{tmp_path / 'captions.csv'}: ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("\n \n", "the file is empty"),
        ('{"file": "a.jpg"}\n{"file"', "line 2: JSON was expected"),
        ('["a.jpg"]', "line 1: an object was expected"),
        ('{"caption": "x"}', "line 1: 'file' is missing; keys here: 'caption'"),
        ('{"file": 3}', "'file' must be a string, got 3"),
        ('{"file": "a.jpg", "caption": ["x"]}', "'caption' must be a string"),
        ('{"file": "a.jpg", "captions": "x"}', "'captions' must be a list"),
        (
            '{"file": "a.jpg", "captions": [], "caption": ""}',
            "'caption' or 'captions' was expected, got both",
        ),
        ('{"file": "a.jpg", "identity": true}', "'identity' must be a number or a name, got True"),
        ('{"file": "a.jpg", "split": 1}', "'split' must be one of"),
        ('{"file": "a.jpg", "caption": "x", "language": 1}', "'language' must be the tag of a language"),
        ('{"file": "a.jpg", "caption": "x", "language": "é"}', "digits, hyphens), got 'é'"),
        ('{"file": "a.jpg", "captions": ["x"], "languages": "en"}', "'languages' must be a list"),
        ('{"file": "a.jpg", "captions": ["x"], "languages": ["-"]}', "languages[0] must be the tag"),
        ('{"file": "a.jpg", "captions": ["x"], "languages": []}', "one for each caption, got 0 for 1"),
        (
            '{"file": "a.jpg", "captions": ["x"], "languages": ["en"], "language": "en"}',
            "'language' or 'languages' was expected, got both",
        ),
        ('{"file": "a.jpg", "size": NaN}', "line 1: JSON was expected, got NaN"),
    ],
)
def test_malformed_json_lines_are_refused_with_their_line(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, content, "captions.jsonl")
    assert str(error.value).startswith(f"{tmp_path / 'captions.jsonl'}: ")
    assert says in str(error.value)


def test_both_captions_files_or_another_ending_are_refused(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text("file,caption\na.jpg,x\n")
    with pytest.raises(DataError, match=r"ending in \.csv .* or \.jsonl was expected; .*#other-forms"):
        open_dataset(f"folder:{tmp_path / 'captions.txt'}")
    (tmp_path / "captions.csv").write_text("file,caption\na.jpg,x\n")
    (tmp_path / "captions.jsonl").write_text('{"file": "a.jpg"}')
    with pytest.raises(DataError, match="give the path of the one to use"):
        open_dataset(f"folder:{tmp_path}")
    assert len(open_dataset(f"folder:{tmp_path / 'captions.csv'}")) == 1


def test_a_hundred_thousand_columns_take_a_second(tmp_path: Path) -> None:
    columns = [f"c{number}" for number in range(100_000)]
    row = ",".join(["1"] * len(columns))
    began = time.process_time()
    (record,) = read(tmp_path, f"file,caption,{','.join(columns)}\na.jpg,x,{row}\n").records
    assert len(record.metadata) == len(columns)
    with pytest.raises(DataError, match="'c7' stands twice"):
        read(tmp_path, f"file,caption,c7,{','.join(columns)}\na.jpg,x,1,{row}\n")
    with pytest.raises(DataError, match="'file' was expected in the header"):
        read(tmp_path, f"{','.join(columns)}\n{row}\n")
    # 260 s where each name was counted among all; much less than this by a clock that other work does not move
    assert time.process_time() - began < 20

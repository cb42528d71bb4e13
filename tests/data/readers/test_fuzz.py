"""Whatever stands in an annotation file: a sound dataset or one line of `DataError`."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from limner.data.readers import open_dataset
from limner.data.records import SPLITS, Dataset
from limner.errors import DataError
from tests.data.trees import draw

FILES = {
    "captions.csv": "folder",
    "captions.jsonl": "folder",
    "reid_raw.json": "cuhk-pedes",
    "dataset_x.json": "mscoco",
    "Flickr8k.token.txt": "flickr8k",
    "data_captions.json": "rstpreid",
    "captions_val2014.json": "mscoco",
    "g_4x_attrs.json": "mals",
    "100w.json": "webperson",
}

KEYS = (
    *("images", "filename", "filepath", "split", "sentences", "raw", "imgid", "cocoid"),
    *("file_path", "id", "captions", "file", "caption", "identity", "camera"),
    *("img_path", "file_name", "image_id", "annotations", "language", "languages"),
    *("image", "caption1", "caption2"),
)
STRINGS = st.one_of(
    st.sampled_from(["a.jpg", "b/a.jpg", "../a.jpg", "train", "val", "dev", "1", "", "a dog"]),
    st.text(max_size=8),
    st.characters(categories=["Cs"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), STRINGS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | STRINGS, inner, max_size=8)
    ),
    max_leaves=20,
)
NAMES = st.sampled_from(["a.jpg", "b/a.jpg", "c.jpg", "b\\a.jpg"]) | STRINGS
SPLIT = st.sampled_from(["train", "restval", "val", "test"]) | VALUES
SENTENCES = st.lists(st.fixed_dictionaries({"raw": STRINGS}), max_size=3) | VALUES
NEARLY_KARPATHY = st.fixed_dictionaries(
    {
        "images": st.lists(
            st.fixed_dictionaries(
                {"filename": NAMES, "split": SPLIT, "sentences": SENTENCES},
                optional={"filepath": STRINGS, "imgid": VALUES},
            ),
            max_size=4,
        )
    }
)


def nearly_pedestrians(picture: str) -> st.SearchStrategy[Any]:
    return st.lists(
        st.fixed_dictionaries(
            {
                picture: NAMES,
                "id": st.integers() | VALUES,
                "captions": st.lists(STRINGS, max_size=3) | VALUES,
            },
            optional={"split": SPLIT, "camera": VALUES},
        ),
        max_size=4,
    )


NUMBERS = st.integers(0, 2) | VALUES
NEARLY_COCO = st.fixed_dictionaries(
    {
        "images": st.lists(st.fixed_dictionaries({"id": NUMBERS, "file_name": NAMES}), max_size=3),
        "annotations": st.lists(st.fixed_dictionaries({"image_id": NUMBERS, "caption": STRINGS}), max_size=3),
    }
)
NEARLY_ROW = st.fixed_dictionaries(
    {"file": NAMES},
    optional={
        "caption": STRINGS,
        "captions": st.lists(STRINGS, max_size=2),
        "identity": VALUES,
        "split": SPLIT,
        "hat": VALUES,
    },
)


NEARLY_MALS = st.lists(
    st.fixed_dictionaries({"image": NAMES, "caption": STRINGS}, optional={"label": VALUES}), max_size=4
)
NEARLY_WEBPERSON = st.lists(
    st.dictionaries(
        NAMES, st.fixed_dictionaries({"caption1": STRINGS, "caption2": STRINGS}) | VALUES, max_size=2
    ),
    max_size=4,
)


@st.composite
def tables(draw_: st.DrawFn) -> bytes:
    """Mostly well-formed CSV with a header that is nearly right."""
    header = draw_(st.permutations(["file", "caption", "identity", "split", "hat"]))[
        : draw_(st.integers(1, 5))
    ]
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(header)
    # a split's own column mostly holds splits: with any cell anywhere one table in hundreds was sound
    cells = st.tuples(*(SPLIT if name == "split" else NAMES for name in header))
    table.writerows(draw_(st.lists(cells | st.tuples(*(NAMES | SPLIT for _ in header)), max_size=4)))
    return text.getvalue().encode("utf-8", "surrogatepass")


def as_json(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: json.dumps(value).encode())


NEARLY = {
    "captions.csv": tables(),
    "captions.jsonl": st.lists(as_json(NEARLY_ROW), max_size=4).map(b"\n".join),
    "reid_raw.json": as_json(nearly_pedestrians("file_path")),
    "dataset_x.json": as_json(NEARLY_KARPATHY),
    "Flickr8k.token.txt": st.lists(NAMES.map(lambda name: f"{name}#0\ta dog"), max_size=4).map(
        lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")
    ),
    "data_captions.json": as_json(nearly_pedestrians("img_path")),
    "captions_val2014.json": as_json(NEARLY_COCO),
    "g_4x_attrs.json": as_json(NEARLY_MALS),
    "100w.json": as_json(NEARLY_WEBPERSON),
}
GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.text(alphabet='file,caption\n"a.jpg{}[]:#\t\r0 ', max_size=80).map(str.encode),
    as_json(VALUES),
)


SOUND = {
    "captions.csv": b"file,caption\na.jpg,a dog\n",
    "captions.jsonl": b'{"file": "a.jpg", "caption": "a dog"}\n',
    "reid_raw.json": b'[{"file_path": "a.jpg", "id": 1, "captions": ["a dog"], "split": "train"}]',
    "dataset_x.json": b'{"images": [{"filename": "a.jpg", "split": "val", "sentences": [{"raw": "a dog"}]}]}',
    "Flickr8k.token.txt": b"a.jpg#0\ta dog\n",
    "data_captions.json": b'[{"img_path": "a.jpg", "id": 1, "captions": ["a dog"], "split": "train"}]',
    "captions_val2014.json": b'{"images": [{"id": 1, "file_name": "a.jpg"}], '
    b'"annotations": [{"image_id": 1, "caption": "a dog"}]}',
    "g_4x_attrs.json": b'[{"image": "a.jpg", "caption": "a dog"}]',
    "100w.json": b'[{"a.jpg": {"caption1": "a dog", "caption2": "a hat"}}]',
}
"""One sound file of each: which others are drawn depends on the modules that hypothesis finds constants in."""


@pytest.mark.parametrize("name", FILES)
def test_a_sound_dataset_or_one_line(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("fuzz")
    draw(root / "a.jpg")
    for part in ("train", "dev", "test"):
        (root / f"Flickr_8k.{part}Images.txt").write_text(f"{part}.jpg\n")
    source = f"{FILES[name]}:{root}"
    outcomes: set[type] = set()

    @settings(max_examples=200)
    @example(SOUND[name])
    @given(NEARLY[name] | NEARLY[name] | GARBAGE)
    def check(content: bytes) -> None:
        (root / name).write_bytes(content)
        try:
            dataset = open_dataset(source)
        except DataError as error:
            message = str(error)
            assert len(message.splitlines()) == 1
            assert message.startswith(str(root / name))
            outcomes.add(DataError)
            return
        outcomes.add(type(dataset))
        assert len(dataset.fingerprint) == 16
        assert dataset.records
        for record in dataset.records:
            assert record.image.is_relative_to(root)
            assert ".." not in record.image.parts
            assert record.group
            assert record.split in (*SPLITS, None)
            json.dumps(
                [record.sentences, dict(record.metadata)], allow_nan=False, ensure_ascii=False
            ).encode()

    check()
    assert outcomes == {DataError, Dataset}

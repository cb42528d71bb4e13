from pathlib import Path

import pytest

from limner.data.readers.parsing import AnnotationEntry, split_name
from limner.errors import DataError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("train", "train"), ("training", "train"), ("restval", "train"), (" Train ", "train")),
        *(("val", "val"), ("dev", "val"), ("valid", "val"), ("validation", "val")),
        *(("test", "test"), ("testing", "test"), ("", None), (None, None)),
    ],
)
def test_the_names_that_datasets_use(written: str | None, meant: str | None) -> None:
    assert split_name(AnnotationEntry(Path("x"), "line 1", {"split": written})) == meant


@pytest.mark.parametrize("written", ["tset", 1, True, ["train"], "train,val"])
def test_other_names_are_refused(written: object) -> None:
    with pytest.raises(DataError, match="x: line 1: 'split' must be one of train, val, test"):
        split_name(AnnotationEntry(Path("x"), "line 1", {"split": written}))

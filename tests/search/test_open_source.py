"""What is given with a model and does not go with its kind is refused by its option's name, before anything is made."""

from pathlib import Path
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.search.open_source import open_source


@pytest.mark.parametrize(
    ("source", "given", "said"),
    [
        ("export", {"stage": "stage-1"}, "--stage: an export is of one stage and arithmetic"),
        ("export", {"engine": "openvino"}, "--engine: an export is of one stage"),
        ("export", {"precision": "bf16"}, "--precision: an export is of one stage"),
        ("export", {"device": "cpu"}, "--cpu: an export is of one stage"),
        ("hf:some/pair", {"stage": "stage-1"}, "--stage: a model of the hub has no stages"),
        ("hf:some/pair", {"keep_model": False}, "--no-model: a model of the hub lies in the store"),
    ],
)
def test_what_does_not_go_with_a_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, given: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("export").mkdir()
    Path("export/export.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SettingsError, match=said):
        open_source(source, tmp_path / "store", **given)
    assert not (tmp_path / "store").exists()

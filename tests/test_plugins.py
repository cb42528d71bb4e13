"""Entry points of other packages: found when they are asked for, and one clear line where they are broken."""

import sys
from pathlib import Path

import pytest

from limner.data.readers import open_dataset
from limner.errors import DataError, SettingsError
from limner.plugins import find_plugin, nearest, plugins
from limner.recipes import RECIPES, all_recipes, get_recipe
from limner.recipes.registry import PACKAGES
from tests.data import trees
from tests.installed import install, install_example

READER = "[limner.readers]\n{name} = {place}\n"


def test_without_other_packages_there_are_none() -> None:
    assert plugins("limner.readers") == {}
    assert find_plugin("limner.losses", "ranking") is None


def test_plugins_say_where_they_come_from_and_import_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(tmp_path, monkeypatch)
    found = plugins("limner.readers")
    assert list(found) == ["tab-lines"]
    assert found["tab-lines"].package == "limner-example 1.0"
    assert "limner_example" not in sys.modules
    assert nearest("limner.readers", "tab-line", ["folder"]) == "did you mean 'tab-lines'?"
    assert nearest("limner.readers", "zip", ["folder"]) == "known: folder, tab-lines"


def test_a_reader_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_example(tmp_path / "site", monkeypatch)
    lines = ["\t".join((str(row.split), row.file, caption)) for row in trees.ROWS for caption in row.captions]
    (tmp_path / "captions.tsv").write_text("\n".join(lines), encoding="utf-8")
    dataset = open_dataset(f"tab-lines:{tmp_path}")
    assert [record.sentences for record in dataset.records] == [row.captions for row in trees.ROWS]
    assert dataset.split("test").source == f"tab-lines:{tmp_path}"
    (tmp_path / "captions.tsv").write_text("a dog", encoding="utf-8")
    with pytest.raises(DataError, match=r"captions\.tsv: line 1: expected SPLIT, FILE and SENTENCE"):
        open_dataset(f"tab-lines:{tmp_path}")
    with pytest.raises(DataError, match="unknown dataset format 'tab-line'; did you mean 'tab-lines'"):
        open_dataset(f"tab-line:{tmp_path}")


@pytest.mark.parametrize(
    ("place", "code", "message"),
    [
        ("broken:read", "import not_there", r"ModuleNotFoundError: No module named 'not_there'"),
        ("broken:read", "1 / 0", "ZeroDivisionError: division by zero"),
        (
            "broken:reed",
            "def read(path, source): ...",
            "AttributeError: module 'broken' has no attribute 'reed'",
        ),
        ("broken:read", "raise ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(
    place: str, code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "broken", READER.format(name="mine", place=place), code)
    with pytest.raises(DataError, match=message) as caught:
        open_dataset(f"mine:{tmp_path}")
    assert str(caught.value).startswith(f"limner.readers: 'mine' of broken 1.0 ({place}) cannot be loaded (")
    assert "\n" not in str(caught.value)
    assert open_dataset(trees.FORMS["csv"](tmp_path, trees.ROWS)), "it is in the way of nothing else"


def test_a_reader_that_gives_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def read(path, source): return []"
    install(tmp_path / "site", monkeypatch, "listing", READER.format(name="mine", place="listing:read"), code)
    with pytest.raises(DataError, match="the reader of 'mine' gave a list, not a limner Dataset"):
        open_dataset(f"mine:{tmp_path}")


def test_names_of_our_own_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        tmp_path / "site", monkeypatch, "thief", READER.format(name="folder", place="thief:read"), "1 / 0"
    )
    assert open_dataset(trees.FORMS["csv"](tmp_path, trees.ROWS))


def test_two_packages_with_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        install(tmp_path / name, monkeypatch, name, READER.format(name="mine", place=f"{name}:read"))
    with pytest.raises(SettingsError, match=r"both (first|second) 1\.0 and (first|second) 1\.0 add 'mine'"):
        plugins("limner.readers")
    install(tmp_path / "again", monkeypatch, "third", READER.format(name="other", place="third:read"))
    monkeypatch.undo()
    install(tmp_path / "a", monkeypatch, "twice", READER.format(name="mine", place="twice:read"))
    install(tmp_path / "b", monkeypatch, "twice", READER.format(name="mine", place="twice:read"))
    assert list(plugins("limner.readers")) == ["mine"], "one package that is on the path twice"


def test_recipes_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from limner.recipes.dual_path import dual_path_people as mine\ndef no(): ...\n"
    entry_points = (
        "[limner.recipes]\nmine = recipes_of:mine\nnothing = recipes_of:no\ndual-path = recipes_of:no\n"
    )
    install(tmp_path, monkeypatch, "recipes_of", entry_points, code)
    listed = all_recipes()
    assert list(listed)[: len(RECIPES)] == list(RECIPES)
    assert (listed["mine"].group, listed["mine"].about) == (PACKAGES, "of the package recipes_of 1.0")
    assert "recipes_of" not in sys.modules
    assert get_recipe("mine") == get_recipe("dual-path-people")
    assert get_recipe("dual-path").name == "dual-path", "names of our own cannot be taken"
    with pytest.raises(
        SettingsError, match=r"'nothing' of recipes_of 1\.0 gave a NoneType, not a limner Recipe"
    ):
        get_recipe("nothing")
    with pytest.raises(SettingsError, match="unknown recipe 'min'; did you mean 'mine'"):
        get_recipe("min")

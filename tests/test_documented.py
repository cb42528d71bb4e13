"""Descriptions in a schema are those that pydantic would give, read when they are asked for."""

import inspect
import sys
import types
from typing import ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field

from limner import documented
from limner.documented import Documented, field_docstrings

T = TypeVar("T")


class Inner(Documented):
    x: int = 0
    """A number
    of two lines."""


class Base(Documented):
    first: int
    """The first."""
    second: Inner | None = None
    """A part, or none."""
    undocumented: str = ""

    constant: ClassVar[int] = 3

    class Nested(Documented):
        deep: tuple[Inner, ...] = ()
        """Parts of a part."""


class Child(Base):
    first: int = 2
    """The first, told again."""
    third: Inner = Inner()
    """A part."""
    fourth: str = Field(default="", description="said by hand")
    """Not shown."""


class Page(Documented, Generic[T]):
    item: T
    """What the page holds."""


# the same by pydantic's own reading
class PlainInner(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, title="Inner")
    x: int = 0
    """A number
    of two lines."""


class PlainBase(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, title="Base")
    first: int
    """The first."""
    second: PlainInner | None = None
    """A part, or none."""
    undocumented: str = ""


class PlainChild(PlainBase):
    model_config = ConfigDict(title="Child")
    first: int = 2
    """The first, told again."""
    third: PlainInner = PlainInner()
    """A part."""
    fourth: str = Field(default="", description="said by hand")
    """Not shown."""


@pytest.mark.parametrize(("ours", "plain"), [(Inner, PlainInner), (Base, PlainBase), (Child, PlainChild)])
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_a_schema_is_the_one_of_pydantic(ours: type[BaseModel], plain: type[BaseModel], mode: str) -> None:
    expected = str(plain.model_json_schema(mode=mode))  # type: ignore[arg-type]
    assert str(ours.model_json_schema(mode=mode)) == expected.replace("PlainInner", "Inner")  # type: ignore[arg-type]


def test_a_field_is_known_by_its_own_class_or_by_that_it_comes_from() -> None:
    assert field_docstrings(Child) == {
        "first": "The first, told again.",
        "second": "A part, or none.",
        "third": "A part.",
        "fourth": "Not shown.",
    }
    assert field_docstrings(Base.Nested) == {"deep": "Parts of a part."}
    assert field_docstrings(Page[int]) == {"item": "What the page holds."}
    assert Page[int].model_json_schema()["properties"]["item"]["description"] == "What the page holds."

    class Local(Documented):
        y: int = 0
        """Of a function."""

    assert field_docstrings(Local) == {"y": "Of a function."}


def test_without_a_source_there_is_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("typed_at_a_prompt")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    typed = "from limner.documented import Documented\nclass Typed(Documented):\n    x: int = 0\n    'A number.'\n"
    exec(typed, module.__dict__)
    assert field_docstrings(module.Typed) == {}
    assert module.Typed.model_json_schema()["properties"]["x"] == {
        "default": 0,
        "title": "X",
        "type": "integer",
    }


def test_a_source_is_read_once_and_not_when_a_class_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    source = inspect.getsource

    def noted(module: types.ModuleType) -> str:
        read.append(module)
        return source(module)

    monkeypatch.setattr(inspect, "getsource", noted)
    documented._of_module.cache_clear()

    class Late(Documented):
        z: int = 0
        """Late."""

    assert not read
    for _ in range(3):
        Late.model_json_schema()
    assert read == [documented, sys.modules[__name__]]

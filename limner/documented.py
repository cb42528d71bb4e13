"""Models whose fields have a docstring each, which their JSON schema tells.

pydantic's own way, `use_attribute_docstrings`, tokenizes the source of every class when it is defined: a tenth of what
one search from the command line takes, by profile, and 0.02 to 0.15 s of the 0.34 s that its imports take without torch
(2026-11-28). Here a module's source is parsed once, when a schema or a page asks for it.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

R = TypeVar("R", bound="Result")


class Documented(BaseModel):
    """The base of models whose schema has the docstrings of their fields as descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


class Result(Documented):
    """The base of what commands return and print: strict about names, and its class is the schema."""

    # built when first used: all of them together take as long as typer's import. constants: pydantic would write NaN as
    # null, and a figure that is not there is to be an error
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, ser_json_inf_nan="constants")

    def replace(self: R, **changes: Any) -> R:
        """Make a copy with some fields changed, and check it."""
        return self.model_validate({**dict(self), **changes})

    def to_json(self) -> str:
        """Indented JSON, unrounded, ending in a newline."""
        # Python would write NaN, which JSON does not have and other readers refuse
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def field_docstrings(cls: type) -> dict[str, str]:
    """The text under each field of a class and of those that it comes from; none where there is no source."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if issubclass(one, Documented) and one.__module__ in sys.modules:
            found |= _of_module(one.__module__).get(one.__qualname__, {})
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """The docstrings of the fields of each class of a module, by the class's qualified name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, SyntaxError):
        # a package without its sources, or what was typed at a prompt
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: list[ast.stmt], inside: str) -> Iterator[tuple[str, dict[str, str]]]:
    for one in body:
        if isinstance(one, ast.ClassDef):
            yield inside + one.name, dict(_fields(one.body))
            yield from _classes(one.body, f"{inside}{one.name}.")
        elif isinstance(one, ast.FunctionDef):
            yield from _classes(one.body, f"{inside}{one.name}.<locals>.")


def _fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(told))):
                yield name, inspect.cleandoc(told)

"""Types that are checked while tests run, at less cost than by jaxtyping's own decorator.

pyproject.toml lets jaxtyping decorate each function of limner. Its decorator binds the arguments to the signature at
each call, checks them twice and keeps the lengths of axes, whether or not there is an array among them: 40 % of what
the tests computed. beartype alone checks the same types, and the lengths of axes need a memory during the call alone.

Modules that are imported after this one are checked so.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf
from beartype import beartype as with_settings

# a TypeError, as jaxtyping's own
beartype = with_settings(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))

_jaxtyped: Callable[..., Any] = jaxtyping.jaxtyped


def _decorator(*, typechecker: Any) -> Callable[[Any], Any]:
    """Stands for `jaxtyping.jaxtyped`, which the import hook calls."""

    def decorate(checked: Any) -> Any:
        # jaxtyping looks at the fields of dataclasses
        if not inspect.isfunction(checked):
            return _jaxtyped(checked, typechecker=typechecker)
        annotations = checked.__annotations__
        hints = {name: _resolved(hint, checked) for name, hint in annotations.items()}
        axes = "".join(map(_axes, hints.values()))
        # such as "batch {self.channels}", which asks for the arguments; and calls of generators overlap
        if "{" in axes or (axes and inspect.isgeneratorfunction(checked)):
            return _jaxtyped(checked, typechecker=typechecker)
        checked.__annotations__ = hints
        typed = beartype(checked)
        checked.__annotations__ = typed.__annotations__ = annotations
        return _with_axes(typed) if axes else typed

    return decorate


def _resolved(hint: Any, function: Any) -> Any:
    """An annotation that may be a string; `Any` for names that only type checkers import, as jaxtyping has it."""

    def alone(value: Any) -> None: ...

    alone.__annotations__ = {"value": hint}
    try:
        return get_type_hints(alone, function.__globals__, include_extras=True)["value"]
    except Exception:
        return Any


def _axes(hint: Any) -> str:
    """The axes of all arrays in an annotation; empty if there is none."""
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return f" [{hint.dim_str}]"
    return "".join(map(_axes, hint if isinstance(hint, list | tuple) else get_args(hint)))


def _with_axes(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Axes of one name have one length during a call, from the arguments to the answer."""

    @wraps(typed)
    def called(*arguments: Any, **named: Any) -> Any:
        with _jaxtyped("context"):
            try:
                return typed(*arguments, **named)
            except jaxtyping.TypeCheckError:
                jaxtyping.print_bindings()  # type: ignore[no-untyped-call]
                raise

    return called


jaxtyping.jaxtyped = _decorator  # type: ignore[assignment]

"""Types that are checked while tests run, at less cost than by jaxtyping's own decorator.

pyproject.toml lets jaxtyping decorate each function of limner. Its decorator binds the arguments to the signature at
each call, checks them twice and keeps the lengths of axes, whether or not there is an array among them: 40 % of what
the tests computed. beartype alone checks the same types, and the lengths of axes need a memory during the call alone.
In each test the first calls of a function are checked: what thousands of further ones are given is made by the same
code, and checking those took a fifth of what was left.

Modules that are imported after this one are checked so.
"""

import dataclasses
import inspect
import random
import threading
from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf
from beartype import beartype as with_settings

# a TypeError, as jaxtyping's own
beartype = with_settings(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))

_jaxtyped: Callable[..., Any] = jaxtyping.jaxtyped


_MOST = 5
"""Calls of one function that are checked in a test."""


class _Calls:
    """Calls of a function in the test that runs."""

    test = 0

    def __init__(self) -> None:
        self.of = self.count = 0

    def is_one_of_the_first(self) -> bool:
        """Count a call, and return whether it is to be checked."""
        if self.of != _Calls.test:
            self.of, self.count = _Calls.test, 0
        self.count += 1
        return self.count <= _MOST


_MAKING = threading.RLock()

# one for all functions that a `def` within another function makes
_CALLS: dict[CodeType, _Calls] = {}


def begin_test() -> None:
    """Have the first calls of each function checked again.

    Of a list one item is checked, which Python's `random` chooses: each time the same, so that who runs a test that
    failed elsewhere sees it fail.
    """
    _Calls.test += 1
    random.seed(0)


def _decorator(*, typechecker: Any) -> Callable[[Any], Any]:
    """Stands for `jaxtyping.jaxtyped`, which the import hook calls."""

    def decorate(decorated: Any) -> Any:
        # of a dataclass jaxtyping checks what its fields are made with
        if inspect.isclass(decorated) and dataclasses.is_dataclass(decorated):
            if "__init__" in vars(decorated):
                decorated.__init__ = decorate(decorated.__init__)  # type: ignore[method-assign]
            return decorated
        if not inspect.isfunction(decorated):
            return _jaxtyped(decorated, typechecker=typechecker)
        # who calls them asks what they are
        if inspect.iscoroutinefunction(decorated) or inspect.isgeneratorfunction(decorated):
            return _checked(decorated, typechecker)
        calls = _CALLS.setdefault(decorated.__code__, _Calls())
        typed: Callable[..., Any] | None = None

        @wraps(decorated)
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal typed
            if not calls.is_one_of_the_first():
                return decorated(*arguments, **named)
            # not before: most of limner's functions are called in a part of the workers
            if typed is None:
                # what is checked is written on the function for a moment, which another thread could call
                with _MAKING:
                    typed = _checked(decorated, typechecker)
            return typed(*arguments, **named)

        return called

    return decorate


def _checked(function: Any, typechecker: Any) -> Any:
    """The function with each of its calls checked."""
    annotations = function.__annotations__
    hints = {name: _resolved(hint, function) for name, hint in annotations.items()}
    axes = "".join(map(_axes, hints.values()))
    # such as "batch {self.channels}", which asks for the arguments; and calls of generators overlap
    if "{" in axes or (axes and inspect.isgeneratorfunction(function)):
        return _jaxtyped(function, typechecker=typechecker)
    function.__annotations__ = hints
    typed = beartype(function)
    function.__annotations__ = typed.__annotations__ = annotations
    return _with_axes(typed) if axes else typed


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

"""Options of a command that are made of the fields of a settings class."""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import typer
from pydantic.fields import FieldInfo

from limner.cli.conflicts import is_typed
from limner.documented import field_docstrings
from limner.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def with_options(settings: type[Settings], *, leave: str = "") -> Callable[[F], F]:
    """Give a function an option for each field in place of its `**options`, but for the field called `leave`.

    Its parameter `context` gets typer's context, which `given` needs.
    Default, limits and help of an option are those of the field; a switch also has its opposite, `--no-NAME`.
    """

    def described(function: F) -> F:
        signature = inspect.signature(function)
        own = [
            # by this annotation typer knows it; what it passes may be of another class
            one.replace(annotation=typer.Context) if one.name == "context" else one
            for one in signature.parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        told = field_docstrings(settings)
        made = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_hint(name, field, told.get(name, "")),
            )
            for name, field in settings.model_fields.items()
            if name != leave
        ]
        hints = {one.name: one.annotation for one in (*own, *made)}
        # `limner.cli.contract` reads both
        function.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        function.__annotations__ = {**hints, "return": signature.return_annotation}
        return function

    return described


def given(context: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that stand on the command line."""
    return {name: value for name, value in options.items() if is_typed(context, name)}


def _hint(name: str, field: FieldInfo, told: str) -> Any:
    flag = f"--{name.replace('_', '-')}"
    kind = next((part for part in get_args(field.annotation) if part is NoneType), None)
    parts = [part for part in get_args(field.annotation) if part is not NoneType]
    plain = parts[0] if kind is NoneType else field.annotation
    # typer has no "more than", so settings that are flags say ge
    limits = {"min": _limit(field, "ge"), "max": _limit(field, "le")} if plain in (int, float) else {}
    flags = f"{flag}/--no-{flag[2:]}" if plain is bool else flag
    help = told.split("\n\n")[0].replace("\n", " ")
    return Annotated[field.annotation, typer.Option(flags, help=help, **limits)]


def _limit(field: FieldInfo, name: str) -> Any:
    return next((getattr(one, name) for one in field.metadata if hasattr(one, name)), None)

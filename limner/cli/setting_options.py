"""Options of a command that are made of the fields of a settings class."""

import inspect
from collections.abc import Callable, Mapping
from itertools import chain
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from limner.cli.conflicts import is_typed
from limner.cli.contract import flag, value_name
from limner.documented import Documented, field_docstrings

F = TypeVar("F", bound=Callable[..., Any])


def with_options(settings: type[Documented], *leave: str, bare: bool = False) -> Callable[[F], F]:
    """Give a function an option for each field in place of its `**options`, but for those to `leave` out.

    Its parameter `context` gets typer's context, which `given` needs. Help of an option is the docstring of the field,
    and so are default and limits; a switch also has its opposite, `--no-NAME`. `bare` options have neither limits nor
    an opposite, where the class's own rules are to speak and all else is the default, but for a switch without one.
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
                annotation=_hint(name, field, told.get(name, ""), bare),
            )
            for name, field in settings.model_fields.items()
            if name not in leave
        ]
        # which `limner.cli.contract` reads
        function.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
        return function

    return described


def given(context: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that stand on the command line."""
    return {name: value for name, value in options.items() if is_typed(context, name)}


def _hint(name: str, field: FieldInfo, told: str, bare: bool) -> Any:
    help = " ".join(told.split("\n\n")[0].split())
    parts = [part for part in get_args(field.annotation) if part is not NoneType]
    plain = parts[0] if NoneType in get_args(field.annotation) else field.annotation
    # a switch that decides where it is given has its opposite
    if bare and not (plain is bool and field.default is None):
        return _bare_hint(help, plain, parts)
    # typer has no "more than", so settings that are flags say ge
    limits = {"min": _limit(field, "ge"), "max": _limit(field, "le")} if plain in (int, float) else {}
    flags = f"{flag(name)}/--no-{flag(name)[2:]}" if plain is bool else flag(name)
    return Annotated[field.annotation, typer.Option(flags, help=help, **limits)]


def _bare_hint(help: str, plain: Any, parts: list[Any]) -> Any:
    if get_origin(plain) is tuple:
        return Annotated[list[str], f"{help.removesuffix('.')}; may be repeated."]
    parts = [plain] if get_origin(plain) is Literal else parts
    if not any(get_origin(one) is Literal for one in parts):
        kind = get_args(plain)[0] if get_origin(plain) is Annotated else plain
        # typer knows no other unions, such as a time or its text
        return Annotated[kind if isinstance(kind, type) else str, help]
    named = [get_args(one) if get_origin(one) is Literal else (value_name(one),) for one in parts]
    return Annotated[str, help, "|".join(chain(*named))]


def _limit(field: FieldInfo, name: str) -> Any:
    return next((getattr(one, name) for one in field.metadata if hasattr(one, name)), None)

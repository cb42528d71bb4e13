"""Write the generated pages: `docs/cli.md`, `docs/settings.md` and `docs/recipes.md`.

    python docs/generate.py        (or `make docs`)

What they say is taken from the code alone, so that the same code gives the same bytes on every machine. A test
compares them with the files (`tests/test_docs.py`).
"""

import inspect
import json
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo

from limner.cli import app
from limner.losses.loss import LossSettings
from limner.losses.registry import LOSSES, loss_settings
from limner.recipes import RECIPES
from limner.search.place import Place
from limner.settings import Settings
from limner.training.recipe import Recipe, StageSettings

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->"

_KINDS = {str: "text", int: "integer", float: "number", Path: "path", Place: "path or URL"}
_LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def pages() -> dict[str, str]:
    """Name of each generated page and what belongs into it."""
    return {"cli.md": cli_page(), "settings.md": settings_page(), "recipes.md": recipes_page()}


def cli_page() -> str:
    """Every command with all that its `--help` says."""
    parts = [
        NOTE,
        "# The command line",
        (app.info.help or "") + " `limner COMMAND --help` prints what stands here.",
        "A mistake of the user, and a file or disk that the system refuses, end in one line on stderr and exit code 2; "
        "`limner data check` ends with 1 when it finds errors; Ctrl-C ends with 130; a reader that has gone (`| head`) "
        "with 141. Results go to stdout, progress and complaints to stderr.",
    ]
    assert app.registered_callback is not None
    parts += [_command("limner", app.registered_callback.callback, heading="limner", about=False)]
    for path, callback in _commands(app, "limner"):
        parts.append(_command(path, callback, heading=path))
    return "\n\n".join(parts) + "\n"


def _commands(group: typer.Typer, path: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield f"{path} {command.name}", command.callback
    for child in group.registered_groups:
        assert child.typer_instance is not None
        yield from _commands(child.typer_instance, f"{path} {child.name}")


def _command(path: str, callback: Callable[..., Any] | None, *, heading: str, about: bool = True) -> str:
    assert callback is not None
    hints = get_type_hints(callback, include_extras=True)
    usage, arguments, options = [path], [], []
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, info = get_args(hints[name])
        required = parameter.default is inspect.Parameter.empty
        default = "" if required else _shown_default(parameter.default)
        if isinstance(info, ArgumentInfo):
            written = name.upper() + ("…" if _many(kind) else "")
            usage.append(written if required else f"[{written}]")
            arguments.append(
                f"| `{written}` | {_kind(kind)} | {'required' if required else default} | {info.help} |"
            )
        elif isinstance(info, OptionInfo):
            # inside Annotated, typer takes the first declaration for `default` until it builds the command
            declared = [info.default] if isinstance(info.default, str) else []
            flags = ", ".join([*declared, *(info.param_decls or ())] or [_flag(name, kind)])
            if required:
                usage.append(f"{flags} {flags.lstrip('-').upper()}")
            options.append(
                f"| `{flags}` | {_kind(kind)} | {'required' if required else default} | {info.help} |"
            )
    if options:
        usage.insert(1, "[OPTIONS]")
    lines = [f"## `{heading}`", ""]
    if about:
        lines += [inspect.getdoc(callback) or "", ""]
    lines += ["```text", " ".join(usage if about else [path, "[OPTIONS]", "COMMAND …"]), "```"]
    for title, rows in (("Argument", arguments), ("Option", options)):
        if rows:
            lines += ["", f"| {title} | Kind | Default | What it is |", "|---|---|---|---|", *rows]
    return "\n".join(lines)


def _flag(name: str, kind: Any) -> str:
    option = "--" + name.replace("_", "-")
    return f"{option}, --no-{option[2:]}" if kind is bool else option


def _many(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(part) is list for part in get_args(kind))


def _kind(kind: Any) -> str:
    if kind is bool:
        return "switch"
    plain = [part for part in (get_args(kind) or (kind,)) if part is not type(None)]
    inner = plain[0]
    if get_origin(inner) is list:
        return f"{_KINDS[get_args(inner)[0]]}, may be repeated"
    return _KINDS[inner] + (", several" if _many(kind) else "")


def _shown_default(value: Any) -> str:
    return "off" if value is False else "" if value is None else f"`{value}`"


def settings_page() -> str:
    """Every field of every settings class that a recipe is made of, in the order in which they are met."""
    parts = [
        NOTE,
        "# Settings",
        "Each is a field of a [recipe](recipes.md). On the command line, `--set` takes its path: `--set seed=1`, "
        "`--set model.dim=512`, `--set stages.stage-1.epochs=20` (stages by name, or by number from 0), `--set "
        "stages.stage-2.losses.ranking.margin=0.2` (losses by kind; `…losses.ranking={}` adds one with its defaults, "
        "`…losses.instance=null` leaves one out). Values are "
        "read as JSON where they are JSON, else as text; `null` is None. Unknown names and values out of range are "
        "refused in one line. `limner recipes show RECIPE` prints a recipe's values.",
    ]
    parts += [_settings_class(cls, where) for cls, where in reachable(Recipe).items()]
    return "\n\n".join(parts) + "\n"


def reachable(root: type[Settings], where: str = "") -> dict[type[Settings], str]:
    """Settings classes from a root on, depth first in the order of fields, with the path that leads there first."""
    found = {root: where}
    for name, field in root.model_fields.items():
        many = get_origin(field.annotation) is tuple
        path = ".".join(filter(None, (where, name, "NAME" if many else "")))
        for cls in _settings_in(field.annotation):
            own = path
            if issubclass(cls, LossSettings):  # losses are addressed by kind
                own = path.removesuffix("NAME") + cls.model_fields["kind"].default
            for child, at in reachable(cls, own).items():
                found.setdefault(child, at)
    return found


def _settings_in(annotation: Any) -> Iterator[type[Settings]]:
    if annotation is LossSettings:
        yield from map(loss_settings, LOSSES)
    elif inspect.isclass(annotation) and issubclass(annotation, Settings):
        yield annotation
    for part in get_args(annotation):
        yield from _settings_in(part)


def _settings_class(cls: type[Settings], where: str) -> str:
    lines = [f"## {cls.__name__}", "", " ".join((inspect.getdoc(cls) or "").split()), ""]
    if where:
        lines += [f"Path: `{where}.…`", ""]
    lines += ["| Setting | Type | Default | What it is |", "|---|---|---|---|"]
    for name, field in cls.model_fields.items():
        about = " ".join((field.description or "").split())
        lines.append(f"| `{name}` | {_cell(field_type(field))} | {_default(field)} | {_cell(about)} |")
    return "\n".join(lines)


def field_type(field: FieldInfo) -> str:
    """A field's type with its range; where null is allowed, the range is that of the other values."""
    parts = get_args(field.annotation) if get_origin(field.annotation) in (Union, types.UnionType) else ()
    named = [type_name(part) for part in parts or (field.annotation,)]
    return " or ".join([" ".join(filter(None, (named[0], _range(field.metadata)))), *named[1:]])


def type_name(annotation: Any) -> str:
    """A type as a reader of the page writes it; the same in every version of Python."""
    if annotation is type(None):
        return "null"
    if annotation is LossSettings:
        return " or ".join(type_name(loss_settings(kind)) for kind in LOSSES)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        first, *marks = parts
        inner = [mark for field in marks for mark in getattr(field, "metadata", [field])]
        return " ".join(filter(None, (type_name(first), _range(inner))))
    if origin is Literal:
        return " or ".join(f"`{json.dumps(part)}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(part) for part in parts)
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return f"list of {type_name(parts[0])}"
        return f"[{', '.join(type_name(part) for part in parts)}]"
    if origin is dict:
        return f"object from {type_name(parts[0])} to {type_name(parts[1])}"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {**_KINDS, bool: "`true` or `false`"}[annotation]


def _range(marks: list[Any]) -> str:
    found: dict[str, Any] = {}
    for mark in marks:
        for name in (*_LIMITS, "pattern", "min_length"):
            if getattr(mark, name, None) is not None:
                found[name] = getattr(mark, name)
    if {"ge", "le"} <= found.keys():
        return f"{found['ge']:g} to {found['le']:g}"
    shown = [f"{sign} {found[name]:g}" for name, sign in _LIMITS.items() if name in found]
    if "pattern" in found:
        shown.append(f"matching `{found['pattern']}`")
    if "min_length" in found:
        shown.append(f"(at least {found['min_length']})")
    return ", ".join(shown)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        changed = value.model_dump(mode="json", exclude_defaults=True)
        return f"`{json.dumps(changed, ensure_ascii=False)}`" if changed else "its defaults"
    if isinstance(value, tuple) and any(isinstance(one, LossSettings) for one in value):
        return ", ".join(f"{one.kind} with its defaults" for one in value)
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def recipes_page() -> str:
    """Every recipe: what it says of itself, and each value that is not the settings' default."""
    parts = [
        NOTE,
        "# Recipes",
        "A recipe is a whole configuration by name, for `limner train RECIPE --data FORMAT:PATH --out RUN`. Below each "
        "stand the values in which it differs from the defaults of the [settings](settings.md), as `--set` would "
        "write them; `limner recipes show RECIPE` prints all of them. A file of that form, with the ending `.json`, "
        "can be named wherever a recipe can: `limner recipes show dual-path > mine.json`, change it, and `limner train "
        "mine.json --data FORMAT:PATH --out RUN`. A setting that it leaves out has its default.",
        "| Recipe | What it is |\n|---|---|\n"
        + "\n".join(f"| [`{name}`](#{name}) | {_paragraphs(make)[0]} |" for name, make in RECIPES.items()),
    ]
    for name, make in RECIPES.items():
        recipe = make()
        changes = "\n".join(f"{key}={_plain(value)}" for key, value in differences(recipe))
        parts += [f"## {name}", *_paragraphs(make), f"```text\n{changes}\n```"]
    return "\n\n".join(parts) + "\n"


def _paragraphs(make: Callable[[], Recipe]) -> list[str]:
    return [" ".join(part.split()) for part in (inspect.getdoc(make) or "").split("\n\n")]


def differences(recipe: Recipe) -> list[tuple[str, Any]]:
    """Paths and values of a recipe that are not the defaults; stages are compared with a default stage."""
    found = []
    for name in Recipe.model_fields:
        if name == "stages":
            for stage in recipe.stages:
                plain = StageSettings(name=stage.name)
                found += list(_differing(stage, plain, f"stages.{stage.name}"))
        elif name != "name":
            value, default = getattr(recipe, name), Recipe.model_fields[name].default
            found += list(_differing(value, default, name))
    return found


def _differing(value: Any, default: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Settings):
        if default is None:  # none by default: what is there is said with its own defaults
            default = type(value)()
            yield path, "{}"
        elif type(value) is not type(default):  # of another system, whose own defaults these are
            default = type(value)()
            yield f"{path}.system", value.model_dump()["system"]
        for name in type(value).model_fields:
            yield from _differing(getattr(value, name), getattr(default, name), f"{path}.{name}")
    elif path.endswith(".losses"):
        if not value:  # of a stage with `matching`, which has none
            return
        before = {loss.kind: loss for loss in default}
        for loss in value:
            if loss.kind in before:
                yield from _differing(loss, before.pop(loss.kind), f"{path}.{loss.kind}")
            else:
                changed = loss.model_dump(exclude_defaults=True)
                yield f"{path}.{loss.kind}", changed
        yield from ((f"{path}.{kind}", None) for kind in before)
    elif value != default:
        yield path, value


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=Settings.model_dump)


def main() -> None:
    """Write the pages beside this file."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}")  # noqa: T201 - the one who runs it wants to know


if __name__ == "__main__":
    main()

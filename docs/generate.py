"""Write the generated pages: `api.md`, `cli.md`, `settings.md`, `recipes.md`, `terms.md`,
`references.md`, `performance.md`, `claims.md` and `code-map.md` of `docs/`.

    python -m docs.generate        (or `make docs`)

What they say is taken from the code, from `benchmarks/results/` and `docs/claims.toml` alone, so that the same tree
gives the same bytes on every machine. A test compares them with the files (`tests/test_docs.py`).
"""

import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from docs.api_page import api_page
from docs.claims_page import claims_page
from docs.code_map import code_map
from docs.performance_page import performance_page
from docs.references_page import references_page
from docs.terms_page import made_for, terms_page
from limner.cli.contract import ErrorReport, schema_of
from limner.cli.root import app
from limner.documented import field_docstrings
from limner.losses.loss import LossSettings
from limner.losses.registry import LOSSES, loss_settings
from limner.recipes import RECIPES
from limner.settings import Settings
from limner.training.recipe import Recipe, StageSettings

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->"

_KINDS = {str: "text", int: "integer", float: "number", Path: "path"}
_LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def pages() -> dict[str, str]:
    """The text of each generated page, by its name."""
    return {
        "api.md": api_page(NOTE),
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "recipes.md": recipes_page(),
        "terms.md": terms_page(NOTE),
        "references.md": references_page(NOTE),
        "performance.md": performance_page(NOTE),
        "claims.md": claims_page(NOTE),
        "code-map.md": code_map(NOTE),
    }


def cli_page() -> str:
    """Every command with all that its `--help` says, and the schemas of what it prints under `--json`."""
    root = typer.main.get_command(app)
    parts = [
        NOTE,
        "# The command line",
        (root.help or "") + " `limner COMMAND -h` prints what stands here.",
        "## What all commands have",
        "| Option | What it does |\n|---|---|\n"
        "| `-h`, `--help` | Prints the help of a command. |\n"
        "| `--json` | Prints the result as JSON, by the schema that stands with each command, and nothing else on "
        "stdout. An error is [JSON](#errors) too. |\n"
        "| `--quiet` | Prints no progress and no notes on stderr; results and errors stay. |\n"
        "| `--verbose` | Prints time and memory on stderr, and the stack trace of an error. |",
        "Results go to stdout, progress and notes to stderr. Exit codes: 0 when all went well; 1 when a result says "
        "that something is wrong (`limner data check`, `limner store verify`, a folder that is away in `limner store "
        "sync`, a query of `limner search --queries` that could not be answered); 2 for a mistake of the user, and for "
        "a file or disk that the system refuses; 130 after Ctrl-C; 141 when the reader has gone (`| head`).",
        "`limner --install-completion` makes the shell (bash, zsh, fish, PowerShell) complete commands and options; "
        "`limner --show-completion` prints what it would install.",
        "## Errors",
        "An error is one line on stderr: what was expected, what came, and the next step. Under `--json` the last "
        "line of stderr is an object, and stdout is empty:",
        '```json\n{"error": {"type": "StoreError", "message": "STORE: no such store; …", "exit_code": 2}}\n```',
        _schema(TypeAdapter(ErrorReport).json_schema(mode="serialization")),
        _command("limner", root, about=False),
    ]
    parts += [_command(path, built) for path, built in _commands(root, "limner")]
    return "\n\n".join(parts) + "\n"


def _commands(built: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name in built.list_commands(None):
        child = built.get_command(None, name)
        if hasattr(child, "list_commands"):
            yield from _commands(child, f"{path} {name}")
        else:
            yield f"{path} {name}", child


def _command(path: str, built: Any, *, about: bool = True) -> str:
    """A command as typer has built it: its help, usage, arguments, options and the schema of its result."""
    usage, arguments, options = [path], [], []
    for param in built.params:
        default = "required" if param.required else _shown_default(param.default)
        if param.param_type_name == "argument":
            written = param.metavar + ("…" if param.nargs != 1 else "")
            usage.append(written if param.required else f"[{written}]")
            arguments.append(f"| `{written}` | {default} | {param.help} |")
        elif not set(param.opts) & {"--json", "--quiet", "--verbose"}:
            flags = "`, `".join([*param.opts, *param.secondary_opts])
            value = "" if param.is_flag else f" {param.metavar or 'TEXT'}"
            if param.required:
                usage.append(f"{param.opts[0]}{value}")
            repeated = ", may be repeated" if getattr(param, "multiple", False) else ""
            kind = "switch" if param.is_flag else f"{value.strip()}{repeated}"
            options.append(f"| `{flags}` | {kind} | {default} | {param.help} |")
    usage.insert(1, "[OPTIONS]")
    lines = [f"## `{path}`", ""]
    if about:
        lines += [built.help or "", ""]
    lines += ["```text", " ".join(usage if about else [path, "[OPTIONS]", "COMMAND …"]), "```"]
    if arguments:
        lines += ["", "| Argument | Default | What it is |", "|---|---|---|", *arguments]
    if options:
        lines += ["", "| Option | Kind | Default | What it is |", "|---|---|---|---|", *options]
    if about:
        lines += [
            "",
            "Also `--json`, `--quiet` and `--verbose`. Under `--json`:",
            "",
            _schema(schema_of(built)),
        ]
    return "\n".join(lines)


def _schema(schema: Mapping[str, Any]) -> str:
    """A JSON schema as a table of fields; those of what it refers to follow below."""
    known = schema.get("$defs", {})
    whole = {name: part for name, part in schema.items() if name != "$defs"}
    if "anyOf" in whole:
        titles = [reference["$ref"].split("/")[-1] for reference in whole["anyOf"]]
        first = f"One of {', '.join(f'`{title}`' for title in titles)}."
    elif "title" not in whole:
        kind = _json_type(whole)
        first = f"{kind[0].upper()}{kind[1:]}."
    else:
        first, known = "", {whole.get("title", ""): whole, **known}
    tables = [first] if first else []
    for title, part in known.items():
        if title == "JsonValue":
            continue
        tables.append(f"`{title}`: {' '.join(part.get('description', '').split())}")
        rows = [
            f"| `{name}` | {_cell(_json_type(field))} | {_cell(' '.join(field.get('description', '').split()))} |"
            for name, field in part.get("properties", {}).items()
        ]
        if rows:
            tables.append("\n".join(["| Field | Type | What it is |", "|---|---|---|", *rows]))
    return "\n\n".join(tables)


def _json_type(field: Mapping[str, Any]) -> str:
    """The type of a field of a JSON schema, in words."""
    if "$ref" in field:
        name = field["$ref"].split("/")[-1]
        return "any" if name == "JsonValue" else f"`{name}`"
    if "anyOf" in field:
        return " or ".join(_json_type(part) for part in field["anyOf"])
    if "enum" in field or "const" in field:
        return " or ".join(f"`{json.dumps(value)}`" for value in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any")
    if kind == "array":
        if "prefixItems" in field:
            return f"[{', '.join(_json_type(part) for part in field['prefixItems'])}]"
        return f"list of {_json_type(field.get('items', {}))}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_json_type(field['additionalProperties'])}"
    return str(kind)


def _shown_default(value: Any) -> str:
    # typer has a mark of its own for "no default", which is falsy or None by version
    return "off" if value is False else f"`{value}`" if isinstance(value, str | int | float | Path) else ""


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
    told = field_docstrings(cls)
    for name, field in cls.model_fields.items():
        about = " ".join(told.get(name, "").split())
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
        *(
            f"**{group}**\n\n| Recipe | What it is |\n|---|---|\n"
            + "\n".join(
                f"| [`{name}`](#{name}) | {entry.about} |"
                for name, entry in RECIPES.items()
                if entry.group == group
            )
            for group in dict.fromkeys(entry.group for entry in RECIPES.values())
        ),
    ]
    for name, entry in RECIPES.items():
        make = entry.load()
        recipe = make()
        changes = "\n".join(f"{key}={_plain(value)}" for key, value in differences(recipe))
        parts += [f"## {name}", *_paragraphs(make), made_for(name), f"```text\n{changes}\n```"]
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
        if not value:  # of a stage with `reranker_pairs`, which has none
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

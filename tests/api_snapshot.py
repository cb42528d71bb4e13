"""What limner promises to keep, as data: Python names, commands, HTTP routes and versions of file formats.

    python -m tests.api_snapshot        writes tests/api_snapshot.json, after a change that docs/stability.md allows

`tests/test_stability.py` compares the file with the code.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import typer.main
from pydantic import TypeAdapter

from docs.public_api import public_names
from limner.cli.contract import ErrorReport, schema_of
from limner.cli.root import app

FILE = Path(__file__).with_suffix(".json")


def snapshot(folder: Path) -> dict[str, dict[str, str]]:
    """Everything, by kind: each thing by its name with a text that tells what it takes and gives."""
    return {"python": python(), "commands": commands(), "http": http(folder), "files": files()}


def python() -> dict[str, str]:
    found = {}
    for section, names in public_names():
        for one in names:
            found[f"{section.module}.{one.name}"] = one.signature
            for name, text, _ in one.members:
                found[f"{section.module}.{one.name}.{name}"] = text
    return found


def commands() -> dict[str, str]:
    root = typer.main.get_command(app)
    found = {}
    for path, built in _leaves(root, "limner"):
        for param in built.params:
            is_argument = param.param_type_name == "argument"
            name = param.metavar if is_argument else ", ".join([*param.opts, *param.secondary_opts])
            kind = "argument" if is_argument else "switch" if param.is_flag else param.metavar or "TEXT"
            many = ", many" if getattr(param, "multiple", False) or param.nargs != 1 else ""
            found[f"{path} {name}"] = f"{kind}{many}{', required' if param.required else ''}"
        found |= _fields(f"{path} --json", schema_of(built))
    return found | _fields(
        "limner --json, errors", TypeAdapter(ErrorReport).json_schema(mode="serialization")
    )


def _leaves(built: Any, path: str) -> list[tuple[str, Any]]:
    if not hasattr(built, "list_commands"):
        return [(path, built)]
    names = built.list_commands(None)
    return [leaf for name in names for leaf in _leaves(built.get_command(None, name), f"{path} {name}")]


def http(folder: Path) -> dict[str, str]:
    # here: they need the extra `server`, and the names above do not
    from limner.search.store import Store
    from limner.server.app import create_app
    from tests.server.serving import toy_engine

    described = create_app(Store(toy_engine(folder))).openapi()
    found = {}
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            body = told.get("requestBody", {}).get("content", {})
            kinds = [f"{kind} {_kind(part.get('schema', {}))}" for kind, part in body.items()]
            found[f"{method.upper()} {path}"] = "; ".join(
                [*sorted(kinds), "answers " + ", ".join(sorted(told["responses"]))]
            )
            for param in told.get("parameters", ()):
                required = ", required" if param.get("required") else ""
                found[f"{method.upper()} {path} {param['in']} {param['name']}"] = (
                    _kind(param["schema"]) + required
                )
    return found | _fields("schema", {"$defs": described["components"]["schemas"]})


def _fields(where: str, schema: dict[str, Any]) -> dict[str, str]:
    parts = {**schema.get("$defs", {})}
    if "properties" in schema:
        parts[schema["title"]] = schema
    return {
        f"{where} {title}.{name}": _kind(field) + (", required" if name in part.get("required", ()) else "")
        for title, part in sorted(parts.items())
        for name, field in part.get("properties", {}).items()
    }


def _kind(field: dict[str, Any]) -> str:
    """The type of a field of a JSON schema, without its words and limits."""
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in field:
            return " or ".join(map(_kind, field[key]))
    if "enum" in field:
        return " or ".join(map(json.dumps, field["enum"]))
    if "const" in field:
        return json.dumps(field["const"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(field.get('items', {}))}"
    return kind


def files() -> dict[str, str]:
    from limner.data import minimal_pairs
    from limner.export import exported
    from limner.inference import calibration_file, checkpoint, composing
    from limner.search import store_export
    from limner.store import manifest

    versions = {
        "store": manifest.FORMAT,
        "checkpoint": checkpoint.FORMAT,
        "calibration": calibration_file.FORMAT,
        "inversion": composing.FORMAT,
        "set of lies": minimal_pairs.FORMAT,
        "exported store": store_export.FORMAT,
        "exported model": exported.FORMAT,
    }
    return {name: str(version) for name, version in versions.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = snapshot(Path(folder))
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

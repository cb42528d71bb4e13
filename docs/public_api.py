"""The public Python names of limner, and what their source says of them.

Whatever is listed here keeps its meaning as docs/stability.md promises. `docs.api_page` writes the page, and
`tests/api_snapshot.py` compares names and signatures with what was there before. Signatures are read from the source,
so that each version of Python gives the same text.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import limner
from limner import errors, losses, requests, wire
from limner.hub.request import PushOptions, PushRequest


@dataclass(frozen=True)
class Section:
    """Names of one module that belong together."""

    title: str
    about: str
    module: str
    names: tuple[str, ...]


def _classes_of(module: Any) -> tuple[str, ...]:
    return tuple(
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    )


SECTIONS = (
    Section(
        "limner",
        "`import limner`: train, evaluate, index and search ([library.md](library.md)).",
        "limner",
        tuple(name for name in limner.__all__ if name != "__version__"),
    ),
    Section(
        "limner.client", "The client of a server ([server.md](server.md)).", "limner.client", ("Client",)
    ),
    Section(
        "limner.wire",
        "The types that a store, a client and `--json` answer with.",
        "limner.wire",
        _classes_of(wire),
    ),
    Section(
        "limner.store_reports",
        "The types that tell what was done with a store.",
        "limner.store_reports",
        (
            "IndexReport",
            "SentencesReport",
            "ErasureReport",
            "Verification",
            "Repair",
            "StoreExport",
            "GraphRecall",
        ),
    ),
    Section(
        "limner.search.store_export",
        "A store for other programs ([searching.md](searching.md#a-store-for-other-programs)).",
        "limner.search.store_export",
        ("export_store",),
    ),
    Section("limner.store.backup", "A copy of a store.", "limner.store.backup", ("backup",)),
    Section(
        "limner.errors",
        "Every mistake that a user can correct is a `LimnerError`.",
        "limner.errors",
        _classes_of(errors),
    ),
    Section(
        "limner.server",
        "A store as part of another web application.",
        "limner.server.app",
        ("create_app",),
    ),
    Section("limner.server.settings", "Its settings.", "limner.server.settings", ("ServerSettings",)),
    Section(
        "limner.types",
        "The interfaces of what encodes, tokenizes and re-ranks.",
        "limner.types",
        ("Encoder", "Tokenizer", "TokenBatch", "TokenizedSentence", "Word", "Reranker", "RerankScores"),
    ),
    Section(
        "limner.losses",
        "One published loss each ([losses.md](losses.md)), and what a loss of your own extends "
        "([extend.md](extend.md)).",
        "limner.losses",
        tuple(losses.__all__),
    ),
    Section(
        "limner.models.dual_encoder",
        "What an encoder of your own extends ([extend.md](extend.md)).",
        "limner.models.dual_encoder",
        ("DualEncoder", "DualEncoderSettings"),
    ),
    Section(
        "limner.models.text_encoder",
        "Its text path.",
        "limner.models.text_encoder",
        ("TextEncoder", "TextSettings", "WordTableSettings"),
    ),
    Section(
        "limner.models.image",
        "Its image path.",
        "limner.models.image",
        ("BackboneSettings", "build_backbone", "ImageEncoder", "Normalisation"),
    ),
    Section("limner.models.registry", "How it is found.", "limner.models.registry", ("System",)),
    Section(
        "limner.training.recipe",
        "What a recipe of your own is made of ([settings.md](settings.md)).",
        "limner.training.recipe",
        (
            *("Recipe", "StageSettings", "OptimiserSettings", "ScheduleSettings", "AverageSettings"),
            *("DivisionSettings", "PairSettings", "VocabularySettings"),
        ),
    ),
    Section("limner.data.transforms", "How it reads pictures.", "limner.data.transforms", ("ImageSettings",)),
    Section(
        "limner.evaluation",
        "Measures and rankings ([measures.md](measures.md)).",
        "limner.evaluation.ranking",
        ("rank_scores", "rank_embeddings"),
    ),
    Section("limner.evaluation.names", "Measures by name.", "limner.evaluation.names", ("parse_measure",)),
    Section("limner.evaluation.relevance", "True matches.", "limner.evaluation.relevance", ("Relevance",)),
)
"""What is public, in the order of the page."""


@dataclass(frozen=True)
class Public:
    """One public name: its signature, the first paragraph of its docstring, and its members as (name, text, about)."""

    name: str
    signature: str
    about: str
    members: tuple[tuple[str, str, str], ...] = ()


def public_names() -> Iterator[tuple[Section, tuple[Public, ...]]]:
    """Every section with its names."""
    for section in SECTIONS:
        module = import_module(section.module)
        yield section, tuple(_described(name, getattr(module, name)) for name in section.names)


def _described(name: str, value: Any) -> Public:
    node = _node_of(value)
    about = _first_paragraph(node)
    if isinstance(node, ast.ClassDef):
        return Public(name, _constructor(value, name), about, tuple(_members(value)))
    return Public(name, name + _arguments(node), about)


def _node_of(value: Any) -> ast.ClassDef | ast.FunctionDef:
    """The definition of a class or function of this package, as its source has it."""
    file = sys.modules[value.__module__].__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == value.__name__:
            return node
    raise AssertionError(f"{value!r} is not defined at the top of {file}")


def _arguments(node: ast.FunctionDef, *, leave_out: str = "") -> str:
    arguments = node.args
    if leave_out and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    if arguments.kwarg is not None and "Unpack[" in ast.unparse(arguments.kwarg):
        _spell_out(arguments)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"({ast.unparse(arguments)}){returned}"


def _spell_out(arguments: ast.arguments) -> None:
    """Put the options of a search or a push, with types and defaults, in place of `**options: Unpack[…]`."""
    assert arguments.kwarg is not None
    assert isinstance(arguments.kwarg.annotation, ast.Subscript)
    called = ast.unparse(arguments.kwarg.annotation.slice)
    options = getattr(requests, called, PushOptions)
    request = PushRequest if options is PushOptions else requests.SearchRequest
    types = {
        ast.unparse(line.target): line.annotation
        for cls in (requests.SearchOptions, options)
        for line in _node_of(cls).body
        if isinstance(line, ast.AnnAssign)
    }
    for name, field in request.model_fields.items():
        if name in options.__annotations__:
            arguments.kwonlyargs.append(ast.arg(name, types[name]))
            arguments.kw_defaults.append(ast.Constant(field.default))
    arguments.kwarg = None


def _constructor(value: type, name: str) -> str:
    for cls in value.__mro__:
        if not cls.__module__.startswith("limner."):
            continue
        for node in _node_of(cls).body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return name + _arguments(node, leave_out="self").removesuffix(" -> None")
    return name


def _members(value: type) -> Iterator[tuple[str, str, str]]:
    """Fields, properties and methods of a class and of those of this package that it extends, the nearest first."""
    seen: set[str] = set()
    for cls in value.__mro__:
        if not cls.__module__.startswith("limner."):
            continue
        body = _node_of(cls).body
        for place, node in enumerate(body):
            found = _member(node, body[place + 1] if place + 1 < len(body) else None)
            if found is not None and not found[0].startswith("_") and found[0] not in seen:
                seen.add(found[0])
                yield found


def _member(node: ast.stmt, after: ast.stmt | None) -> tuple[str, str, str] | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        about = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = str(after.value.value).split("\n\n")[0]
        optional = "" if node.value is None else " = …"
        return node.target.id, f"{ast.unparse(node.annotation)}{optional}", " ".join(about.split())
    if isinstance(node, ast.FunctionDef):
        decorators = {ast.unparse(one).split(".")[-1] for one in node.decorator_list}
        if decorators & {"setter", "field_validator", "model_validator", "overload"}:
            return None
        if decorators & {"property", "cached_property"}:
            return node.name, ast.unparse(node.returns) if node.returns else "", _first_paragraph(node)
        if any("validator" in name or "serializer" in name for name in decorators):
            return None
        return node.name, _arguments(node, leave_out="self"), _first_paragraph(node)
    return None


def _first_paragraph(node: ast.ClassDef | ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())

"""No two modules need each other to be imported, and few need each other later; type checkers may see cycles."""

import ast
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import limner

ROOT = Path(limner.__file__).parent


def _name(file: Path, root: Path) -> str:
    parts = (root.name, *file.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _at_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from _at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _at_import(node.body)


def _at_any_time(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those inside functions, too."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)]
            inner += [
                one
                for part in ast.iter_child_nodes(node)
                if isinstance(part, ast.ExceptHandler | ast.match_case)
                for one in part.body
            ]
            yield from _at_any_time(inner)


def _graph(
    root: Path, imports: Callable[[list[ast.stmt]], Iterator[ast.Import | ast.ImportFrom]]
) -> dict[str, set[str]]:
    """Each module and those that it imports."""
    modules = {_name(file, root): file for file in sorted(root.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        needed: set[str] = set()
        for node in imports(ast.parse(file.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.Import):
                needed |= {alias.name for alias in node.names}
            elif node.module is not None:
                # `from package import name` means a module of the package, or what its __init__ holds
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                needed |= inner & set(modules) or {node.module}
        graph[name] = needed & set(modules) - {name}
    return graph


def _cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one cycle; empty where there is none."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_modules_import_one_another_without_cycles() -> None:
    assert not _cycle(_graph(ROOT, _at_import))


MUTUAL = {
    ("limner.inference.trained", "limner.inference.sentence_transformer"),
    ("limner.inference.import_model", "limner.inference.import_sentence_transformer"),
    ("limner.search.index", "limner.search.index_dataset"),
}
"""Modules that import another one inside a function, which imports them: one call stands for both kinds."""


def test_modules_that_need_one_another_later_are_known() -> None:
    graph = _graph(ROOT, _at_any_time)
    for first, second in MUTUAL:
        assert second in graph[first]
        assert first in graph[second]
        graph[first].remove(second)
    assert not _cycle(graph)


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "limner"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import limner.two\n")
    (package / "two.py").write_text("from limner import one\n")
    assert {"limner.one", "limner.two"} <= set(_cycle(_graph(package, _at_import)))


@pytest.mark.parametrize(
    "line", ["def later():\n    import limner.one\n", "if TYPE_CHECKING:\n    import limner.one\n"]
)
def test_imports_at_call_or_for_type_checkers_are_no_cycle(tmp_path: Path, line: str) -> None:
    package = tmp_path / "limner"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import limner.two\n")
    (package / "two.py").write_text(line)
    assert not _cycle(_graph(package, _at_import))
    assert bool(_cycle(_graph(package, _at_any_time))) == line.startswith("def")

"""No two modules need each other, whether when they are imported, later, or for type checkers."""

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import limner

ROOT = Path(limner.__file__).parent


def _name(file: Path, root: Path) -> str:
    parts = (root.name, *file.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _graph(root: Path) -> dict[str, set[str]]:
    """Each module and those that it imports anywhere in its file."""
    modules = {_name(file, root): file for file in sorted(root.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        needed: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                needed |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
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
    assert not _cycle(_graph(ROOT))


@pytest.mark.parametrize(
    "line",
    [
        "from limner import one\n",
        "def later():\n    import limner.one\n",
        "if TYPE_CHECKING:\n    from limner.one import name\n",
    ],
    ids=["at once", "later", "types"],
)
def test_a_cycle_is_found(tmp_path: Path, line: str) -> None:
    package = tmp_path / "limner"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import limner.two\n")
    (package / "two.py").write_text(line)
    assert {"limner.one", "limner.two"} <= set(_cycle(_graph(package)))

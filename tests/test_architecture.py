"""The shape of the code: imports point one way, files are named for what they hold, settings are documented."""

import ast
from pathlib import Path

import pytest
from pydantic import BaseModel

import limner
from limner.documented import field_docstrings
from limner.settings import Settings
from limner.training import recipe as training_settings  # noqa: F401 - defines settings classes
from limner.training.recipe import Recipe

ROOT = Path(limner.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LAYERS: list[set[str]] = [
    {"errors", "types", "one_line", "counted"},
    {"arguments"},
    {"documented", "durable", "plugins", "tables", "text_files", "names"},
    {"settings", "query_text"},
    {"wire"},
    {"store_reports", "alert_reports", "judgements", "conditions"},
    {"requests"},
    {"data"},
    {"models", "losses", "evaluation", "people"},
    {"inference"},
    {"export"},
    {"store"},
    {"training", "search"},
    {"recipes", "figures"},
    {"library", "hub"},
    {"server", "client", "mteb", "site"},
    {"agents"},
    {"cli"},
]
"""Each layer imports from itself and from those above it here; `limner/__init__` re-exports and is nobody's import."""


def _layer(part: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def _imports(file: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("limner"):
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.startswith("limner")]
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_one_way(file: Path) -> None:
    own = file.relative_to(ROOT).with_suffix("").parts[0]
    if own in {"__init__", "__main__"}:  # re-exports, and the start of the command line
        return
    for name in _imports(file):
        parts = name.split(".")
        assert len(parts) > 1, f"{file}: imports the package itself"
        assert _layer(parts[1]) <= _layer(own), f"{file}: {own} may not import {parts[1]}"
        if parts[1] != own and _layer(parts[1]) == _layer(own):
            pytest.fail(f"{file}: {own} and {parts[1]} are of one layer and may not import each other")


def test_the_people_stand_by_themselves() -> None:
    """They could be a package of their own: they need little of limner, and one name of theirs is the door."""
    inside = [file for file in FILES if file.relative_to(ROOT).parts[0] == "people"]
    needed = {name.split(".")[1] for file in inside for name in _imports(file)}
    assert needed == {"people", "data", "durable", "errors"}
    importers = {
        file.relative_to(ROOT).parts[0]: name
        for file in set(FILES) - set(inside)
        for name in _imports(file)
        if name.startswith("limner.people")
    }
    assert importers == {"cli": "limner.people"}


def test_no_file_is_a_junk_drawer() -> None:
    forbidden = {"utils", "util", "common", "helpers", "helper", "misc", "base", "core"}
    assert not [file for file in FILES if file.stem in forbidden]


def test_no_file_holds_two_ideas() -> None:
    assert not [str(file) for file in FILES if len(file.read_text(encoding="utf-8").splitlines()) > 500]


def _settings_classes(cls: type[BaseModel]) -> list[type[BaseModel]]:
    found = []
    for child in cls.__subclasses__():
        found += [child, *_settings_classes(child)]
    return found


def test_every_setting_is_documented() -> None:
    assert Recipe in _settings_classes(Settings)
    missing = [
        f"{cls.__name__}.{name}"
        for cls in _settings_classes(Settings)
        if cls.__module__.startswith("limner.")
        for name in cls.model_fields
        if not field_docstrings(cls).get(name)
    ]
    assert not missing


def test_the_objective_knows_no_loss_by_name() -> None:
    names = {name for name in _imports(ROOT / "training/objective.py") if name.startswith("limner.losses")}
    assert names == {"limner.losses.loss"}


SYSTEMS = ("dual_path", "identity_aware", "mnil", "hgan")
OF_ONE_SYSTEM = {
    ast_class.name
    for module in (*SYSTEMS, "text_hgan")
    for ast_class in ast.parse((ROOT / "models" / f"{module}.py").read_text(encoding="utf-8")).body
    if isinstance(ast_class, ast.ClassDef)
}
"""The classes that belong to one published system."""

KNOWS_ITS_SYSTEM = {f"recipes/{system}{kind}.py" for system in SYSTEMS for kind in ("", "_tables")}
"""Files beside models/ that may name one system: its recipes and tables."""


def _names_in(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.Compare):  # `model.system == "hgan"` names it as well
            sides = [node.left, *node.comparators]
            found |= {
                side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)
            }
    return found


def test_systems_are_found_by_this_test() -> None:
    assert {"DualPath", "IdentityAwareSettings", "MNiL", "HGAN", "HierarchicalText"} <= OF_ONE_SYSTEM


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_shared_code_names_no_system(file: Path) -> None:
    """A network answers for itself (`DualEncoder`), so that another system needs no change here."""
    inside = file.relative_to(ROOT)
    if inside.parts[0] == "models" or inside.as_posix() in KNOWS_ITS_SYSTEM:
        return
    assert not _names_in(file) & (OF_ONE_SYSTEM | {system.replace("_", "-") for system in SYSTEMS})


def test_no_text_is_made_and_dropped() -> None:
    """The second half of a text that stands by itself in its line, behind one that is assigned."""
    found = [
        f"{file}:{node.lineno}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.JoinedStr)
    ]
    assert not found

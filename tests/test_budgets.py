"""The size of what a reader must hold: lines, methods of a class, parameters of a function. It only falls."""

import ast
from collections.abc import Iterator
from pathlib import Path

import limner

ROOT = Path(limner.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LINES, TEST_LINES = 77_226, 79_162
"""Lines of Python of the package without the people that are drawn, and of the tests. The plan is 62,000 and 70,000."""

METHODS, PARAMETERS, FILE_LINES = 20, 8, 500

MORE_PARAMETERS = {
    "evaluation/both_directions.py evaluate": 12,
    "evaluation/both_directions.py evaluate_scores": 10,
    "inference/evaluate_run.py evaluate_run": 10,
    "library.py train": 9,
    "losses/blocked_softmax.py forward": 9,
    "losses/sextuple.py forward": 9,
    "people/generate.py generate_people": 10,
    "search/store.py index": 10,
    "site/write.py write_site": 9,
    "training/feature_cache.py cached_views": 9,
}
"""Functions with more, and how many. A command of the CLI has a parameter for each of its options, and is not here."""


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield file.relative_to(ROOT).as_posix(), node


def test_the_package_and_its_tests_do_not_grow() -> None:
    package = sum(_lines(file) for file in FILES if file.relative_to(ROOT).parts[0] != "people")
    tests = sum(_lines(file) for file in Path(__file__).parent.rglob("*.py"))
    assert package <= LINES
    assert tests <= TEST_LINES


def test_no_class_has_more_methods_than_a_reader_holds() -> None:
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    over = {
        f"{file} {node.name}"
        for file, node in _nodes()
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(one, functions) and not one.name.startswith("__") for one in node.body) > METHODS
    }
    assert not over


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(one, ast.Call) and ast.unparse(one.func) == "command" for one in node.decorator_list
    )


def test_a_function_takes_settings_or_a_request_where_it_would_take_many_parameters() -> None:
    found: dict[str, int] = {}
    for file, node in _nodes():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_command(node):
            continue
        given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        count = sum(one.arg not in ("self", "cls") for one in given)
        if count > PARAMETERS:
            found[f"{file} {node.name}"] = count
    assert found == MORE_PARAMETERS


def test_scripts_of_the_pages_hold_one_idea_each() -> None:
    assert not [str(file) for file in ROOT.rglob("*.js") if _lines(file) > FILE_LINES]

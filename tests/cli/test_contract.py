"""What every command has: -h, --json with a schema, --quiet, --verbose, and errors that parse."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import TypeAdapter, ValidationError
from typer.core import TyperGroup
from typer.main import get_command

from limner.cli.commands import COMMANDS
from limner.cli.console import out
from limner.cli.contract import ErrorReport, command, first_line, group, result_of, schema_of
from limner.cli.root import app
from limner.cli.walkthrough import DemoSummary
from limner.documented import Result
from limner.errors import SettingsError
from limner.people.lies import draw_lies
from limner.recipes.registry import RECIPES, RecipeEntry
from tests import towers
from tests.cli.command import Limner, sets
from tests.toy import toy_recipe


def _walk(built: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command by the words that call it."""
    if not isinstance(built, TyperGroup):
        yield path, built
        return
    for name in built.list_commands(None):  # type: ignore[arg-type]
        yield from _walk(built.get_command(None, name), (*path, name))  # type: ignore[arg-type]


BUILT = dict(_walk(get_command(app)))
NAMES = [" ".join(path) for path in BUILT]


def _missing(built: Any) -> set[str]:
    """What of the contract a command does not keep."""
    flags = {flag for param in built.params for flag in param.opts if param.param_type_name == "option"}
    found = {"--json", "--quiet", "--verbose"} - flags
    switches = [param for param in built.params if set(param.opts) & {"--json", "--quiet", "--verbose"}]
    found |= {param.opts[0] for param in switches if not param.is_flag}
    if not hasattr(built.callback, "schema") or result_of(built) is type(None):
        found.add("schema")
    return found


@pytest.mark.parametrize("path", BUILT, ids=NAMES)
def test_every_command_keeps_the_contract(path: tuple[str, ...]) -> None:
    built = BUILT[path]
    assert not _missing(built)
    schema = schema_of(built)
    assert schema.keys() & {"properties", "anyOf", "items", "additionalProperties"}
    for param in built.params:
        assert param.help, f"{param.name} has no help"
        assert param.help.endswith((".", ".)")), param.help


def test_a_command_without_it_is_found() -> None:
    own = group("Own.")

    @own.command("plain")
    def plain(as_json: bool = typer.Option(False, "--json")) -> None: ...

    assert _missing(dict(_walk(get_command(own)))[()]) == {"--quiet", "--verbose", "schema"}


@pytest.mark.parametrize("path", BUILT, ids=NAMES)
def test_short_and_long_help_are_the_same_text(limner: Limner, path: tuple[str, ...]) -> None:
    short, long = limner(*path, "-h"), limner(*path, "--help")
    assert (short.code, short.err) == (0, "")
    assert short.out == long.out
    for eaten_or_typed in ("<bool>", "<str>", "<Path>", "(CPU only)", "[]"):
        assert eaten_or_typed not in short.out


def test_help_does_not_eat_what_stands_in_brackets(limner: Limner) -> None:
    assert "limner[openvino]" in " ".join(limner("index", "-h").out.split())
    assert "limner[approximate]" in " ".join(limner("serve", "-h").out.split())


@pytest.mark.parametrize("path", BUILT, ids=NAMES)
def test_a_wrong_command_line_is_json_under_json(limner: Limner, path: tuple[str, ...]) -> None:
    refused = limner(*path, "--json", "--no-such-option")
    assert (refused.code, refused.out) == (2, "")
    error = ErrorReport.model_validate_json(refused.err).error
    assert (error.type, error.exit_code) == ("UsageError", 2)
    assert error.message.startswith("No such option: --no-such-option")


def test_the_table_says_what_the_commands_say() -> None:
    root = get_command(app)
    for name, listed in COMMANDS.items():
        built = root.get_command(None, name)  # type: ignore[attr-defined]
        assert isinstance(built, TyperGroup) == listed.group
        assert first_line(built) == listed.about
    sections = [listed.section for listed in COMMANDS.values()]
    assert sections == sorted(sections, key=sections.index), "a section's commands stand together"


@pytest.fixture
def toys_of(
    toy_run: Path, store: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[object]]:
    """For each command arguments with which it ends well within a second or so."""
    import uvicorn

    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    # It closes all handlers there are, and absl's, which TensorBoard brings, closes the stream that it was made with:
    # pytest's capture, so that every later test fails.
    monkeypatch.setattr("logging.config.dictConfig", lambda config: None)
    monkeypatch.setitem(RECIPES, "toy", RecipeEntry("tests.toy:toy_recipe", "Toys", "A toy."))

    shown = DemoSummary(store=store, sentence="a red square", text_to_image=50, colours=20, minutes=0.1)
    monkeypatch.setattr("limner.cli.walkthrough.run_demo", lambda *_: shown)
    data, picture = f"folder:{pictures}", pictures / "05-0.png"
    rows = [json.loads(line) for line in (pictures / "captions.jsonl").read_text().splitlines()]
    groups = [row["identity"] for row in rows if row["split"] == "train"]
    own = tmp_path / "own"
    text = tmp_path / "own.txt"
    text.write_text("a red bar\na blue circle on black\n", encoding="utf-8")
    figure = ("--out", tmp_path / "figure.png")
    arrays, report = tmp_path / "ours.npz", tmp_path / "report.json"
    pair = tmp_path / "pair"
    pair.mkdir()
    towers.save_clip(pair)
    draw_lies(6).write(tmp_path / "lies")
    return {
        "models": [],
        "import": [pair, tmp_path / "imported"],
        "demo": ["--out", tmp_path / "demo"],
        "recipes list": [],
        "recipes show": ["dual-path"],
        "recipes tables": [],
        "data check": [data, "--fast"],
        "data people": [tmp_path / "people", "--identities", 4, "--val", 1, "--test", 1, "--workers", 1],
        # of the people that were drawn a line above
        "data triplets": [tmp_path / "people", tmp_path / "triplets", "--twins", 2, "--workers", 1],
        "evaluate": [
            *(toy_run, "--data", data, "--cpu", "--save", arrays, "--report", report),
            *("--measures", "R@1 PR-curve scope-curve", "--per-query", tmp_path / "queries.csv"),
        ],
        "bench": [toy_run, "--pairs", tmp_path / "lies", "--cpu"],
        "summarise": [toy_run],
        "compare": [tmp_path / "queries.csv", tmp_path / "queries.csv"],
        "score": [arrays],
        "ablate": [
            *("dual-path-table-4", "--recipe", "toy", "--data", data, "--out", tmp_path / "table", "--cpu"),
            *("--row", "instance-1"),
        ],
        "figure training": [toy_run, *figure],
        "figure ablation": [tmp_path / "table", *figure],
        "figure similarities": [arrays, *figure],
        "figure precision": [report, *figure],
        "figure correlation": [toy_run, "--data", data, "--images", 5, *figure],
        "figure map": [
            *(toy_run, "--data", data, "--split", "train", *figure),
            *(part for name in groups[:4] for part in ("--group", name)),
        ],
        "cite": [toy_run],
        "export": [toy_run, tmp_path / "exported"],
        "push": [toy_run, "me/toys", "--accept-terms", "--dry-run"],
        "figure ranks": [toy_run, "--data", data, "--queries", 2, "-k", 3, *figure],
        "figure nearest": [toy_run, "red", "square", "-k", 3, *figure],
        "figure words": [toy_run, picture, "a red square on white", *figure],
        "index": [toy_run, own, pictures, "--cpu"],
        "index-sentences": [toy_run, own, text, "--cpu"],
        "search": [own, "a red square", "--cpu"],
        "explain": [own, "a red square", picture, "--cpu"],
        "serve": [own, "--port", 0, "--cpu", "--audit", tmp_path / "audit.jsonl"],
        "audit verify": [tmp_path / "audit.jsonl"],
        "audit forget": [tmp_path / "audit.jsonl", "--text", "a red square"],
        "token add": [tmp_path / "tokens.json", "ann"],
        "token list": [tmp_path / "tokens.json"],
        "token revoke": [tmp_path / "tokens.json", "ann"],
        "store info": [own],
        "store list": [own],
        "store duplicates": [own],
        "store verify": [own],
        "store repair": [own],
        "store backup": [own, tmp_path / "backup"],
        "store export": [own, tmp_path / "exported.parquet", "--to", "parquet"],
        "store recall": [own],
        "store sync": [own, "--cpu"],
        "store alerts": [own],
        "store compact": [own],
        "store erase": [own, "--yes"],
        "store delete": [own, picture],
        "reindex": [own, toy_run, tmp_path / "new", "--cpu"],
    }


_ELSEWHERE = {"train", "calibrate", "compose", "figure attention", "site", "mteb", "watch", "open", "mcp"}
"""Below, and in the files of tests that are named after them, where their runs are."""


def test_every_result_fits_its_schema(limner: Limner, toys_of: dict[str, list[object]]) -> None:
    """One test for all, since what one command writes the next one reads."""
    assert {*toys_of, *_ELSEWHERE} == set(NAMES), "a new command needs an example here"
    for name, arguments in toys_of.items():
        path = tuple(name.split())
        done = limner(*path, *arguments, "--json", "--quiet")
        assert (done.code, done.err) == (0, ""), f"{name}: {done}"
        assert TypeAdapter(result_of(BUILT[path])).validate_json(done.out) is not None, name


def test_schemas_refuse_other_results(limner: Limner, store: Path) -> None:
    facts = json.loads(limner("store", "info", store, "--json").out)
    schema = result_of(BUILT["store", "info"])
    with pytest.raises(ValidationError):
        TypeAdapter(schema).validate_python({**facts, "more": 1})
    with pytest.raises(ValidationError):
        TypeAdapter(schema).validate_python({**facts, "pictures": "many"})


def test_errors_are_json_on_stderr(limner: Limner, tmp_path: Path) -> None:
    for arguments, kind in (
        (("store", "info", tmp_path / "none"), "StoreError"),
        (("recipes", "show", "dual-pth"), "SettingsError"),
        (("data", "check", "folder:none"), "DataError"),
        (("evaluate", tmp_path, "--data", "folder:x"), "CheckpointError"),
    ):
        refused = limner(*arguments, "--json")
        assert (refused.code, refused.out) == (2, "")
        error = ErrorReport.model_validate_json(refused.err).error
        assert (error.type, error.exit_code) == (kind, 2)
        assert limner(*arguments).err == f"limner: {error.message}\n"


def test_quiet_and_verbose(limner: Limner, store: Path) -> None:
    unknown = ("search", store, "a red xylophone", "--cpu")
    assert "left out: xylophone" in limner(*unknown).err
    quiet = limner(*unknown, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out == limner(*unknown).out
    assert "processor time" in limner("store", "info", store, "--verbose").err
    both = limner("store", "info", store, "--verbose", "--quiet")
    assert (both.code, both.err.splitlines()[-1]) == (2, "limner: --quiet and --verbose: give one of them")
    traced = limner("recipes", "show", "dual-pth", "--verbose").err
    assert "Traceback" in traced
    assert traced.splitlines()[-1].startswith("limner: unknown recipe")


def test_nothing_else_reaches_stdout_under_json(limner: Limner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(Result):
        """What was found."""

        count: int
        """How many."""

    own = group("Own.")

    @command(own, "talks")
    def talks() -> Found:
        """Talk."""
        out.print("much")
        return Found(count=3)

    # by its module: the name is the function's in the package
    monkeypatch.setattr(sys.modules["limner.cli.main"], "app", own)
    assert limner().out == "much\n"
    assert limner("--json").out == '{\n  "count": 3\n}\n'


def test_the_mode_of_one_command_is_not_the_next_ones(limner: Limner) -> None:
    refused = limner("recipes", "show", "x", "--quiet", "--json")
    assert json.loads(refused.err)["error"]["type"] == SettingsError.__name__
    assert limner("recipes", "list").out.startswith("Your own pictures\n")


def test_a_training_result_names_its_stages(limner: Limner, pictures: Path, tmp_path: Path) -> None:
    data, out = f"folder:{pictures}", tmp_path / "run"
    command = ("train", "dual-path-people", "--data", data, "--out", out, "--cpu", *sets(toy_recipe()))
    done = limner(*command, "--json", "--quiet")
    assert done.code == 0, done.err
    trained = json.loads(done.out)
    assert [stage["name"] for stage in trained["stages"]] == [stage.name for stage in toy_recipe().stages]
    assert trained["run"] == str(tmp_path / "run")
    again = json.loads(limner(*command, "--resume", "--json").out)
    assert again["stages"] == []

"""What the documentation says is true: generated pages are current, links lead somewhere, examples run.

A fenced ```python block is run when the line `<!-- run -->` stands before it. The blocks of a page run in order and
share their names, in a folder with `RUN` (a trained run), `STORE` (its index) and `PICTURES` (pictures with
`captions.jsonl`), all of toys.
"""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from limner.inference import load_model
from typer.testing import CliRunner

from limner.cli import app
from limner.data.check_report import KINDS
from limner.data.readers import FORMATS
from limner.data.records import Dataset
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K
from limner.evaluation.overlap import Overlap
from limner.evaluation.protocols import PROTOCOLS
from limner.recipes import RECIPES
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.training.recipe import Recipe

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
GENERATED = ("cli.md", "settings.md", "recipes.md")
WRITTEN = ("index", "start", "concepts", "data-formats", "measures", "figures", "server", "dual-path")


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load_generator()


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", _text(page), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_page_is_current(name: str) -> None:
    assert set(GENERATED) == generator.pages().keys()
    assert _text(DOCS / name) == generator.pages()[name], f"docs/{name} is out of date; run `make docs`"


def test_every_command_and_option_is_documented() -> None:
    """Against what `--help` prints, which knows nothing of the generator."""
    page = _text(DOCS / "cli.md")

    def check(path: list[str]) -> None:
        shown = CliRunner().invoke(
            app, [*path, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        )
        assert shown.exit_code == 0
        title = " ".join(["limner", *path])
        section = page.split(f"## `{title}`\n")[1].split("\n## ")[0] if f"## `{title}`\n" in page else ""
        rows = re.findall(
            r"^[│|]\s+(?:\*\s+)?(-{1,2}[a-z][a-z-]*|[a-z]+)\s", shown.output, flags=re.MULTILINE
        )
        assert rows, shown.output
        for row in rows:
            if row.startswith("-") and row != "--help":
                assert f"`{row}`" in section, f"{title}: {row} is not in docs/cli.md"
            elif not row.startswith("-") and f"`{row.upper()}" not in section:
                check([*path, row])

    check([])


def test_every_recipe_is_documented() -> None:
    page = _text(DOCS / "recipes.md")
    for name, make in RECIPES.items():
        assert f"\n## {name}\n" in page
        of_system = f"{make().model.system}.md"
        assert f"`{name}`" in _text(DOCS / of_system), f"docs/{of_system} does not name recipe {name}"


def test_every_setting_is_documented() -> None:
    page = _text(DOCS / "settings.md")
    for cls in generator.reachable(Recipe):
        section = page.split(f"\n## {cls.__name__}\n")[1].split("\n## ")[0]
        for name, field in cls.model_fields.items():
            assert f"| `{name}` |" in section
            assert " ".join((field.description or "").split()).replace("|", "\\|") in section


def test_every_measure_is_documented() -> None:
    page = _text(DOCS / "measures.md")
    for name in (*OF_K, *map(str, (*NAMED, *CURVES, Overlap()))):
        assert re.search(rf"^## .*{re.escape(name)}", page, flags=re.MULTILINE), (
            f"docs/measures.md has no section on {name}"
        )


def test_every_protocol_is_documented() -> None:
    page = _text(DOCS / "measures.md")
    for name in PROTOCOLS:
        assert re.search(rf"^\|[^|]*`{re.escape(name)}`[^|]*\|", page, flags=re.MULTILINE), name


def test_every_format_and_problem_is_documented() -> None:
    page = _text(DOCS / "data-formats.md")
    for name in FORMATS:
        assert f"`{name}:" in page, f"docs/data-formats.md does not show {name}:PATH"
    for kind, about in KINDS.items():
        assert f"| `{kind}` | {about} |" in page, f"docs/data-formats.md does not explain {kind}"


def test_every_page_is_reached_from_the_index() -> None:
    index = _text(DOCS / "index.md")
    for name in [*GENERATED, *(f"{name}.md" for name in WRITTEN if name != "index")]:
        assert f"]({name})" in index


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", _prose(page), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        found.add(slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_path_of_a_machine_is_on_a_page(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root|Users|tmp|mnt)/", _text(page))


def _tree_entries(text: str) -> Iterator[str]:
    """Paths in fenced blocks that draw a file tree: a first line ending in "/" and deeper lines below it.

    A line is its depth (blanks and box-drawing signs), one or more names separated by " · " or ", ", and after two
    blanks what it is about.
    """
    # every fence is matched, whatever its language, so that the end of one is not taken for the start of the next
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        if language not in {"", "text"}:
            continue
        lines = [line for line in block.splitlines() if line.strip()]
        parents: list[tuple[int, str]] = []
        if not any(re.match(r"limner/(\s|$)", line.strip(" │├└─")) for line in lines):
            continue
        for line in lines:
            depth = len(line) - len(line.lstrip(" │├└─"))
            names = re.split(r" · |, ", re.split(r"\s{2,}", line[depth:].strip())[0])
            while parents and parents[-1][0] >= depth:
                parents.pop()
            above = "".join(name for _, name in parents)
            yield from (above + name for name in names)
            if names[0].endswith("/"):
                parents.append(
                    (depth, names[0] if names[0] != f"{ROOT.name}/" or (ROOT / names[0]).exists() else "")
                )


def test_the_file_tree_of_the_readme_is_there() -> None:
    readme = ROOT / "README.md"
    entries = list(_tree_entries(_text(readme))) if readme.exists() else []
    missing = [entry for entry in entries if not (ROOT / entry).exists()]
    assert not missing, f"README's file tree names {missing}"
    shown = {entry.rstrip("/") for entry in entries}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "limner").rglob("[a-z]*.py")}
    unnamed = {
        name
        for name in modules - shown
        if name.rpartition("/")[0] in {one.rpartition("/")[0] for one in shown}
    }
    assert not unnamed, f"README's file tree leaves out {sorted(unnamed)}"


def test_file_trees_are_read_as_they_are_drawn() -> None:
    drawn = "limner/          the package\n├── data/\n│   ├── records.py · images.py   two\n├── types.py\n"
    assert list(_tree_entries(f"```text\n{drawn}docs/\n  start.md  first\n```\n")) == [
        "limner/",
        "limner/data/",
        "limner/data/records.py",
        "limner/data/images.py",
        "limner/types.py",
        "docs/",
        "docs/start.md",
    ]


def _examples(page: Path) -> list[str]:
    marked = re.findall(r"^<!-- run -->\n+```python\n(.*?)^```$", _text(page), flags=re.MULTILINE | re.DOTALL)
    return [str(block) for block in marked]


@pytest.fixture(scope="module")
def workplace(toys: Dataset, toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(toy_run, folder / "RUN")
    shutil.copytree(toys.records[0].image.parent, folder / "PICTURES")
    run = load_model(folder / "RUN")
    store = Store.create(folder / "STORE", fingerprint=run.fingerprint, dim=run.dim, run=folder / "RUN")
    index_pictures(run, store, [folder / "PICTURES"])
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if _examples(page)], ids=lambda page: page.name)
def test_examples_run(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, object] = {"__name__": "example"}
    for number, block in enumerate(_examples(page), start=1):
        exec(compile(block, f"{page.name}, example {number}", "exec"), names)


def test_there_are_examples() -> None:
    assert sum(len(_examples(page)) for page in PAGES) >= 4


def test_the_generator_writes_what_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    generator.main()
    assert {file.name: _text(file) for file in tmp_path.iterdir()} == generator.pages()
    assert capsys.readouterr().out.splitlines() == [f"docs/{name}" for name in GENERATED]

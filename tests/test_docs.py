"""What the documentation says is true: generated pages are current, links lead somewhere, examples run.

Every fenced ```python block is run, unless the line `<!-- not run: REASON -->` stands before it. The blocks of a page
run in order and share their names, in a folder with `RUN` (a trained run), `STORE` (its index) and `PICTURES`
(pictures with `captions.jsonl`), all of toys. `test_docs_commands.py` does the same with commands.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs import generate as generator
from docs.code_map import READ_FIRST, WAYS, code_map
from limner.cli.root import app
from limner.data.check_report import KINDS
from limner.data.readers import FORMATS
from limner.data.records import Dataset
from limner.documented import field_docstrings
from limner.evaluation.curves import CURVES
from limner.evaluation.measures import NAMED, OF_K
from limner.evaluation.protocols import PROTOCOLS
from limner.evaluation.scores import Overlap
from limner.inference.load import load_model
from limner.losses.registry import LOSSES, loss_settings
from limner.recipes import RECIPES, get_recipe
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from limner.training.recipe import Recipe
from tests.test_architecture import LAYERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
GENERATED = (
    "api.md",
    "cli.md",
    "settings.md",
    "recipes.md",
    "terms.md",
    "references.md",
    "performance.md",
    "claims.md",
    "code-map.md",
)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", _text(page), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The generated pages, made once: it takes seconds."""
    return generator.pages()


@pytest.mark.parametrize("name", GENERATED)
def test_generated_page_is_current(name: str, generated: dict[str, str]) -> None:
    assert set(GENERATED) == generated.keys()
    assert _text(DOCS / name) == generated[name], f"docs/{name} is out of date; run `make docs`"


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
        # the headings are "Arguments:", "Options:" and those of the commands; what goes on is indented further
        _, *parts = re.split(r"^[A-Z][a-z ]+:$", shown.output, flags=re.MULTILINE)
        rows = re.findall(
            r"^  (-{1,2}[a-z][a-z0-9-]*|[A-Za-z][A-Za-z-]*)", "".join(parts), flags=re.MULTILINE
        )
        assert rows, shown.output
        for row in rows:
            if row.startswith("-") and row not in ("-h", "--help"):
                assert f"`{row}`" in section, f"{title}: {row} is not in docs/cli.md"
            elif row.islower() and not row.startswith("-"):
                check([*path, row])
            elif row.isupper():
                assert f"`{row}" in section, f"{title}: {row} is not in docs/cli.md"

    check([])


def test_every_recipe_is_documented() -> None:
    page = _text(DOCS / "recipes.md")
    for name in RECIPES:
        assert f"\n## {name}\n" in page
        system = get_recipe(name).model.system
        # no paper's system: its page is that of the models
        of_system = "models.md" if system == "pretrained" else f"{system}.md"
        assert f"`{name}`" in _text(DOCS / of_system), f"docs/{of_system} does not name recipe {name}"


def test_every_setting_is_documented() -> None:
    page = _text(DOCS / "settings.md")
    for cls in generator.reachable(Recipe):
        section = page.split(f"\n## {cls.__name__}\n")[1].split("\n## ")[0]
        told = field_docstrings(cls)
        for name in cls.model_fields:
            assert f"| `{name}` |" in section
            assert " ".join(told[name].split()).replace("|", "\\|") in section


def test_every_loss_has_a_row() -> None:
    """With the settings and recipes that it has in the code, and evidence from the log or none."""
    rows = {
        row[0]: row[1:]
        for row in re.findall(
            r"^\| \[`(\w+)`\]\(\S+\) \| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \|$",
            _text(DOCS / "losses.md"),
            flags=re.MULTILINE,
        )
    }
    assert rows.keys() == LOSSES.keys()
    recipes = {name: get_recipe(name) for name in RECIPES}
    for kind, (_, _, settings, of_recipes, evidence) in rows.items():
        fields = [name for name in loss_settings(kind).model_fields if name != "kind"]
        assert re.findall(r"`(.+?)`", settings) == fields, kind
        using = {
            name
            for name, recipe in recipes.items()
            if any(loss.kind == kind for stage in recipe.stages for loss in stage.losses)
        }
        assert set(re.findall(r"`(.+?)`", of_recipes)) == using, kind
        assert "](log/2" in evidence or evidence == "not measured here", kind


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
    """Each page is of one of the four kinds: its link stands below one of these headings."""
    index = _text(DOCS / "index.md")
    kinds = re.findall(r"^## (.+)$", index, flags=re.MULTILINE)
    assert kinds == ["Tutorial", "How-to", "Reference", "Explanation"]
    for page in DOCS.glob("*.md"):
        if page.name != "index.md":
            assert index.count(f"]({page.name})") == 1, page.name


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


def test_the_log_index_has_a_row_for_each_entry() -> None:
    """Newest first, with a question, an answer and a link whose anchor `test_relative_links` follows."""
    folder = DOCS / "log"
    days = sorted((page for page in folder.glob("*.md") if page.name != "index.md"), reverse=True)
    written = []
    for page in days:
        first, *_ = _text(page).splitlines()
        assert first == f"# {page.stem}"
        written += [
            (page.stem, title) for title in re.findall(r"^## (.+)$", _prose(page), flags=re.MULTILINE)
        ]
    rows = re.findall(
        r"^\| (\d{4}-\d\d-\d\d) \| (.+) \| (.+) \| \[(.+)\]\(", _text(folder / "index.md"), flags=re.MULTILINE
    )
    assert [(date, title) for date, _, _, title in rows] == written
    assert all(question.endswith("?") and answer for _, question, answer, _ in rows)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", sorted((DOCS / "log").glob("*.md")), ids=lambda page: page.name)
def test_commits_of_the_log_are_in_the_history(page: Path) -> None:
    """A figure of a commit that nobody can fetch cannot be repeated."""
    # `git -C` climbs: an unpacked archive in somebody's repository has that one's history
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or no checkout of it")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the clone is shallow: the history is not all here")
    named = set(re.findall(r"(?<![\w.#/-])[0-9a-f]{7}(?![\w-])", _text(page)))
    # one of digits alone may be a number, and one of letters alone a word
    named = {name for name in named if not name.isdigit() and not name.isalpha()}
    # of HEAD, since another branch of this machine may hold what no clone gets
    history = {line[:7] for line in _git("rev-list", "HEAD").stdout.split()}
    assert not named - history, "name the commit that holds this now, and say so"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_path_of_a_machine_is_on_a_page(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root|Users|tmp|mnt)/", _text(page))


def test_the_code_map_names_every_file_and_what_it_is() -> None:
    page = code_map("")
    for file in [*(ROOT / "limner").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        if file.name != "__init__.py":
            assert re.search(rf"\(\.\./{re.escape(file.relative_to(ROOT).as_posix())}\) \| \S", page), file
    for folder in {file.parent for file in (ROOT / "limner").rglob("__init__.py")}:
        assert re.search(
            rf"^## {folder.relative_to(ROOT).as_posix()}/\n\n[^|\s]", page, flags=re.MULTILINE
        ), folder
    assert all((ROOT / path).is_file() for path in READ_FIRST)
    for path, name, _ in (hop for way in WAYS.values() for hop in way):
        assert re.search(rf"^(class|def) {name}\b", _text(ROOT / path), flags=re.MULTILINE), (path, name)


def test_contributing_draws_the_layers_that_the_architecture_test_holds() -> None:
    drawn = re.search(r"^```text\n(.* ← .*)\n```$", _text(ROOT / "CONTRIBUTING.md"), flags=re.MULTILINE)
    assert drawn
    assert [set(layer.split(", ")) for layer in drawn[1].split(" ← ")] == LAYERS


def test_the_readme_has_one_line_a_folder() -> None:
    """The README lists the packages; the files are in the generated code map, which no commit edits by hand."""
    readme = _text(ROOT / "README.md")
    folders = {file.parent.name for file in (ROOT / "limner").glob("*/__init__.py")}
    assert (
        set(re.findall(r"^\| \[`limner/(\w+)/`\]\(limner/\1\) \| \S", readme, flags=re.MULTILINE)) == folders
    )
    assert not re.findall(r"\b\w+\.py\b", readme), "the README names files; they belong in the code map"


def _examples(page: Path) -> list[str]:
    blocks = re.findall(
        r"^(<!-- not run: .+ -->\n+)?```python\n(.*?)^```$", _text(page), flags=re.MULTILINE | re.DOTALL
    )
    return [block for excused, block in blocks if not excused]


@pytest.fixture(scope="module")
def workplace(toys: Dataset, toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(toy_run, folder / "RUN")
    shutil.copytree(toys.records[0].image.parent, folder / "PICTURES")
    run = load_model(folder / "RUN")
    store = StoreFiles.create(folder / "STORE", fingerprint=run.fingerprint, dim=run.dim, run=folder / "RUN")
    index_pictures(run, store, [folder / "PICTURES"])
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if _examples(page)], ids=lambda page: page.name)
def test_examples_run(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, object] = {"__name__": "example"}
    for number, block in enumerate(_examples(page), start=1):
        exec(compile(block, f"{page.name}, example {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_copies_of_files_are_current(page: Path) -> None:
    """A block that is not run because it is a copy of a file is that file."""
    copies = re.findall(
        r"^<!-- not run: a copy of (\S+?),[^\n]* -->\n+```python\n(.*?)^```$",
        _text(page),
        flags=re.MULTILINE | re.DOTALL,
    )
    for name, block in copies:
        assert block == _text(ROOT / name), f"{page.name}: not what {name} holds"


def test_there_are_examples() -> None:
    assert sum(len(_examples(page)) for page in PAGES) >= 4


def test_the_generator_writes_what_it_returns(
    generated: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    monkeypatch.setattr(generator, "pages", lambda: generated)
    generator.main()
    assert {file.name: _text(file) for file in tmp_path.iterdir()} == generated
    assert capsys.readouterr().out.splitlines() == [f"docs/{name}" for name in GENERATED]

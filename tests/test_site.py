"""The pages of the website: every page of the documentation once, every link to something that is there."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.site import ROOT, links, navigation, page, pages, write_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert write_site(folder) == len(pages())
    return folder


def test_every_page_is_in_the_menu_once() -> None:
    def flat(entries: object) -> list[str]:
        if isinstance(entries, dict):
            return flat(list(entries.values()))
        return [entries] if isinstance(entries, str) else [one for part in entries for one in flat(part)]  # type: ignore[attr-defined]

    places = pages()
    menu = flat(navigation(places))
    assert menu[0] == places["README.md"] == "index.md"
    assert sorted(menu) == sorted(places.values())
    assert {
        f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")
    } <= places.keys()


def test_links_lead_to_pages_and_pictures(site: Path) -> None:
    found = list(links(site / "pages"))
    assert len(found) > 300
    broken = [
        f"{path.name}: {target}"
        for path, target in found
        if not target.startswith("#") and not (path.parent / target.partition("#")[0]).is_file()
    ]
    assert not broken


def test_links_are_turned_and_code_is_left() -> None:
    places = pages()
    text = (
        "See [training](docs/training.md#the-last-epoch), [the code](limner/data) and [home](https://example.org).\n"
        "- an item\n"
        "```text\n[as it is](docs/start.md)\n- too\n```\n"
        "| a |\n|---|\n| `int \\| str` |\n"
    )
    assert page(text, "README.md", places) == (
        "See [training](training.md#the-last-epoch), the code and [home](https://example.org).\n"
        "\n"
        "- an item\n"
        "```text\n[as it is](docs/start.md)\n- too\n```\n"
        "| a |\n|---|\n| `int | str` |\n"
    )
    assert page("[back](../index.md)", "docs/log/index.md", places) == "[back](../documentation.md)\n"


def test_the_builder_takes_the_settings(site: Path) -> None:
    assert json.loads((site / "mkdocs.yml").read_text(encoding="utf-8").rpartition("nav: ")[2])
    builder = ROOT / ".venv/tools/bin/mkdocs"
    found = str(builder) if builder.exists() else shutil.which("mkdocs")
    if found is None:
        pytest.skip("no mkdocs: `make site` installs it")
    done = subprocess.run(
        [found, "build", "--strict", "-f", site / "mkdocs.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (site / "site/index.html").is_file()

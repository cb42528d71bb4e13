"""The documentation as a website: `make site` writes pages for a site builder, and mkdocs-material makes HTML of them.

    python -m docs.site FOLDER                        writes FOLDER/pages/ and FOLDER/mkdocs.yml
    mkdocs build --strict -f FOLDER/mkdocs.yml        writes FOLDER/site/

The README is the first page, with its quick start. The pages stay as they are read on a host of repositories; here
their links are turned to where the pages lie in the site. A link to a source file becomes plain text, since the site
holds none. Only the standard library is imported: the builder has an environment of its own.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

BESIDE = {
    "README.md": "index.md",
    "docs/index.md": "documentation.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""Pages whose place in the site is not that in `docs/`."""

CONFIG = """\
site_name: limner
site_dir: site
docs_dir: pages
use_directory_urls: false
theme:
  name: material
  # the default asks a server of Google for its letters
  font: false
  features: [navigation.indexes, navigation.top, search.highlight, content.code.copy]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
plugins: [search]
validation:
  omitted_files: warn
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
markdown_extensions:
  - tables
  - sane_lists
  - pymdownx.highlight
  - pymdownx.superfences
  - toc:
      permalink: true
      # as hosts of repositories name headings
      slugify: !!python/object/apply:pymdownx.slugs.slugify
        kwds: {case: lower}
"""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"\s*(```|~~~)")
_CODE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"(?:[-*] |\d+\. )")


def pages() -> dict[str, str]:
    """The place in the site of each page, by its path in the repository."""
    found = dict(BESIDE)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        found.setdefault(name, name.removeprefix("docs/"))
    return found


def write_site(folder: Path) -> int:
    """Write the pages and the builder's settings into a folder, and return the number of pages."""
    target = folder / "pages"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs/pictures", target / "pictures")
    places = pages()
    for source, place in places.items():
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / source).read_text(encoding="utf-8")
        (target / place).write_text(page(text, source, places), encoding="utf-8")
    settings = CONFIG + f"nav: {json.dumps(navigation(places))}\n"
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    return len(places)


def navigation(places: dict[str, str]) -> list[object]:
    """The menu: the first page, the sections of `docs/index.md` with the pages of their tables, the log, the rest."""
    sections: list[object] = [{"limner": "index.md"}]
    listed = {"README.md", "docs/index.md"}
    for part in (ROOT / "docs/index.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        # of the log only its first page stands there
        names = [f"docs/{name}" for name in re.findall(r"^\| \[[^\]]+\]\(([^)#]+\.md)\)", part, re.MULTILINE)]
        listed |= set(names)
        sections.append({part.splitlines()[0]: [places[name] for name in names]})
    log = sorted(
        (name for name in places if name.startswith("docs/log/") and name not in listed), reverse=True
    )
    sections.append({"Log by day": [places[name] for name in log]})
    rest = [place for name, place in places.items() if name not in listed and name not in log]
    sections.append({"Project": ["documentation.md", *rest]})
    return sections


def page(text: str, source: str, places: dict[str, str]) -> str:
    """One page with links and lists as the builder reads them."""
    lines, is_code, before = list[str](), False, ""
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            line = _LINK.sub(lambda found: _turned(found, source, places), line)
            if line.startswith("|"):
                # hosts take the stroke before a bar away in code, too, this builder leaves it there
                line = _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)
            # hosts of repositories begin a list or table right below a paragraph, this builder after an empty line
            for begins in (_ITEM.match, re.compile(r"\|").match):
                if (
                    begins(line)
                    and before.strip()
                    and not begins(before)
                    and not before.startswith((" ", "#", "<"))
                ):
                    lines.append("")
        lines.append(line)
        before = "" if is_code or _FENCE.match(line) else line
    return "\n".join(lines) + "\n"


def _turned(found: re.Match[str], source: str, places: dict[str, str]) -> str:
    mark, label, target = found.groups()
    if re.match(r"[a-z]+:|#", target):
        return found[0]
    # a picture that is itself a link, or a link in the label
    label = _LINK.sub(lambda inner: _turned(inner, source, places), label)
    path, _, fragment = target.partition("#")
    whole = os.path.normpath(Path(source).parent / path).replace(os.sep, "/")
    place = places.get(whole)
    if place is None and whole.startswith("docs/pictures/"):
        place = whole.removeprefix("docs/")
    if place is None:
        return label
    near = os.path.relpath(place, Path(places[source]).parent).replace(os.sep, "/")
    return f"{mark}[{label}]({near}{'#' + fragment if fragment else ''})"


def links(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every relative link of the written pages, with its page; for tests."""
    for path in sorted(folder.rglob("*.md")):
        is_code = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if _FENCE.match(line):
                is_code = not is_code
            elif not is_code:
                yield from (
                    (path, found[3]) for found in _LINK.finditer(line) if not re.match(r"[a-z]+:", found[3])
                )


if __name__ == "__main__":
    built = Path(sys.argv[1])
    built.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"{write_site(built)} pages\n")

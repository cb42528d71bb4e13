"""The files by which a public project is used and cited: they can be read, and say what the project does."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
YAML = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]


def read(path: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_can_be_read(path: Path) -> None:
    assert read(path)


def test_forms_ask_for_something() -> None:
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) == 2
    for form in forms:
        content = read(form)
        # what the host refuses a form without
        assert {"name", "description", "body"} <= content.keys()
        body = content["body"]
        assert isinstance(body, list)
        names = [part["id"] for part in body]
        assert len(set(names)) == len(names)
        assert all(part["type"] in {"textarea", "input"} and part["attributes"]["label"] for part in body)


def test_workflows_only_call_what_runs_here() -> None:
    """What CI does stands in `.ci/run`, which a developer has, too."""
    for workflow in sorted((ROOT / ".github/workflows").glob("*.yml")):
        jobs = read(workflow)["jobs"]
        assert isinstance(jobs, dict)
        runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        assert set(runs) <= {".ci/run", "make wheel-test sbom"}, workflow.name
        assert ".ci/run" in runs
        # a workflow that says nothing of it may write to the repository
        assert read(workflow)["permissions"] == {"contents": "read"}


def test_every_python_that_the_package_names_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        line.rpartition(" :: ")[2]
        for line in project["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    }
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert isinstance(jobs, dict)
    assert named <= set(jobs["ci"]["strategy"]["matrix"]["python"])
    assert project["requires-python"] == f">={min(named)}"
    assert project["keywords"]


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_pages_that_hosts_look_for_are_there_and_linked(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").startswith("# ")
    if name != "CONTRIBUTING.md":
        assert f"({name})" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


# of the schema of version 1.2.0 of the Citation File Format
CFF_KEYS = frozenset(
    {
        *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers"),
        *("keywords", "license", "license-url", "message", "preferred-citation", "references", "repository"),
        *("repository-artifact", "repository-code", "title", "type", "url", "version"),
    }
)


def test_the_citation_file_keeps_to_its_schema() -> None:
    content = read(ROOT / "CITATION.cff")
    assert {"authors", "cff-version", "message", "title"} <= content.keys() <= CFF_KEYS
    assert content["cff-version"] == "1.2.0"
    assert content["type"] in ("software", "dataset")
    authors = content["authors"]
    assert isinstance(authors, list)
    assert authors
    # an entity has a name, a person has these
    persons = {"family-names", "given-names", "name-particle", "name-suffix", "alias", "orcid", "affiliation"}
    assert all(author.keys() == {"name"} or author.keys() <= persons for author in authors)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert content["license"] == project["license"]
    assert content["version"] == project["version"]
    keywords = content["keywords"]
    assert isinstance(keywords, list)
    assert set(keywords) <= set(project["keywords"])
    for key in ("message", "title", "abstract", "version", "license"):
        assert isinstance(content[key], str), f"{key}: YAML reads it as another kind; put it into quotes"


def test_hooks_before_a_commit_run_what_the_check_runs() -> None:
    repos = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert isinstance(repos, list)
    hooks = {hook["id"]: hook for repo in repos for hook in repo["hooks"]}
    # from the project's own environment: another version of ruff would format otherwise
    assert [repo["repo"] for repo in repos] == ["local"]
    check = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("ruff-check", "ruff-format"):
        entry = hooks[name]["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "")
        assert f"$(BIN)/{entry} ." in check
    assert hooks["generated-pages"]["entry"].endswith("python -m docs.generate")


def test_the_makefile_says_what_its_targets_do() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in phony[1].split():
        assert re.search(rf"^{target}:", text, re.MULTILINE), target
        assert target == "clean" or f"make {target}" in contributing, (
            f"CONTRIBUTING.md does not name make {target}"
        )


def test_the_sbom_lists_what_a_user_can_install() -> None:
    (named,) = re.findall(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(named.split(",")) == project["optional-dependencies"].keys() - {"dev", "minilm", "ranx"}

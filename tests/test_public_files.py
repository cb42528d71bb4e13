"""The files by which a public project is used and cited: they can be read, and say what the project does."""

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
        assert set(runs) <= {".ci/run", "pip install build && python -m build"}, workflow.name
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

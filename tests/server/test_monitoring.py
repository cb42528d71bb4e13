"""The files of deploy/monitoring: they can be read, their PromQL parses, and the server exports what they ask for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import limner
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.serving import toy_engine

MONITORING = Path(limner.__file__).parents[1] / "deploy" / "monitoring"
SCRAPED = {"up"}
"""Metrics that Prometheus makes itself."""


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in read["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return read


def expressions() -> list[str]:
    """Every PromQL expression, with values in the place of Grafana's variables."""
    of_panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [
        *(rule["expr"] for rule in rules()),
        *(text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in of_panels),
    ]


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression selects, with the names of the labels that it compares; raises for no PromQL."""
    parsed = promql_parser.parse(expression)
    # as it is printed anew: one form whatever the blanks and brackets
    for name, labels in re.findall(r"\b((?:limner|process)_\w+|up)\b(?:\{([^}]*)\})?", parsed.prettify()):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of the samples of a server that has answered and refused, with the names of their labels."""
    engine = toy_engine(tmp_path_factory.mktemp("monitored"))
    with running(create_app(Store(engine), ServerSettings())) as url:
        httpx.post(f"{url}/v1/search", json={"text": "a"}, timeout=30).raise_for_status()
        assert httpx.get(f"{url}/nothing").status_code == 404
        text = httpx.get(f"{url}/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_is_one_of_the_servers(exported: dict[str, set[str]]) -> None:
    asked = {name for text in expressions() for name, _ in selectors(text)}
    assert asked - exported.keys() - SCRAPED == set()
    # job and instance are Prometheus's own
    for text in expressions():
        for name, labels in selectors(text):
            assert labels - {"job", "instance"} <= exported.get(name, set()), text


def test_no_metric_is_forgotten(exported: dict[str, set[str]]) -> None:
    asked = {
        re.sub("_(bucket|sum|count)$", "", name) for text in expressions() for name, _ in selectors(text)
    }
    own = {
        re.sub("_(bucket|sum|count)$", "", name)
        for name in exported
        if name.startswith("limner_") and not name.endswith("_created")
    }
    assert own == {name for name in asked if name.startswith("limner_")}


def test_what_no_server_has_is_found(exported: dict[str, set[str]]) -> None:
    """This file's own eyes: a misspelt name and a misspelt label."""
    assert dict(selectors("sum(rate(limner_request_total[5m]))")).keys() - exported.keys()
    ((name, labels),) = selectors('limner_probe_up{prob="store"}')
    assert labels - exported[name] == {"prob"}
    with pytest.raises(ValueError, match=r"\S"):
        list(selectors("rate(limner_requests_total[5m]"))


def test_rules_are_whole() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 5
    for rule in rules():
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert promql_parser.parse(rule["expr"])


def test_the_dashboard_is_whole() -> None:
    read = dashboard()
    ids = [panel["id"] for panel in read["panels"]]
    assert len(set(ids)) == len(ids)
    places: set[tuple[int, int]] = set()
    for panel in read["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        # no panel lies upon another
        assert not cells & places
        places |= cells
        assert panel["targets"]
    assert {variable["name"] for variable in read["templating"]["list"]} == {"datasource", "instance"}


def reasons() -> set[str]:
    texts = (value for rule in rules() for value in re.findall(r'reason=~?"([^"]*)"', rule["expr"]))
    return {reason for text in texts for reason in text.split("|")}


def test_reasons_of_the_rules_are_reasons_of_the_server() -> None:
    """A rule for a reason that nobody counts would never fire."""
    code = "".join(
        path.read_text(encoding="utf-8") for path in (Path(limner.__file__).parent / "server").glob("*.py")
    )
    assert [reason for reason in reasons() if f'"{reason}"' not in code] == []


def test_every_refusal_has_a_rule() -> None:
    """Every reason of a 503 that docs/server.md names, but for those of a server that stops and of its probes."""
    page = (Path(limner.__file__).parents[1] / "docs" / "server.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `limner_refusals_total` .* and for 503 (.*)$", page, re.MULTILINE)
    assert set(re.findall(r"`([a-z]+)`", row)) - {"stopping"} == reasons()

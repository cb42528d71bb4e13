"""docs/performance.md: what is a miss is called so, and claims and result files fit each other."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import NEEDS, OTHER, benchmarks
from benchmarks.claims import CLAIMS, OTHERS, SPEED, Limit
from docs.performance_page import NOT_MEASURED, RESULTS, figures, performance_page, verdict

MISSED = "**missed**"
ONE = Limit("search", ("groups", "*one query", "limner", "ratio"), "× the product", at_most=0.35)


def _groups(**rows: float) -> dict[str, Any]:
    return {"groups": {name.replace("_", " "): {"limner": {"ratio": value}} for name, value in rows.items()}}


def test_a_figure_beyond_its_limit_is_a_miss() -> None:
    for values, said in (([0.35], "met"), ([0.2, 0.351], MISSED), ([], NOT_MEASURED)):
        assert verdict(ONE, values) == said
    least = Limit("speed", ("x",), "×", at_least=40)
    assert verdict(least, [40.0, 400.0]) == "met"
    assert verdict(least, [39.9, 400.0]) == MISSED


def test_figures_are_found_by_their_keys() -> None:
    found = figures(ONE, _groups(small_one_query=0.2, large_one_query=0.4, many_queries=0.9))
    assert found == [
        ("groups · small one query · limner · ratio", 0.2),
        ("groups · large one query · limner · ratio", 0.4),
    ]
    assert figures(ONE, {"groups": {"one query": "not a group"}}) == []


def test_a_limit_may_be_a_multiple_of_another_figure() -> None:
    limit = Limit("p99", ("seen", "limner*", "p99"), "× the median", at_most=3, of=("seen", "limner*", "p50"))
    assert figures(limit, {"seen": {"limner, 64": {"p50": 2.0, "p99": 7.0}}}) == [
        ("seen · limner, 64 · p99", 3.5)
    ]
    assert figures(limit, {"seen": {"limner, 64": {"p99": 7.0}}}) == []


@pytest.mark.parametrize("amx", [True, False])
def test_a_limit_of_another_processor_is_not_measured(amx: bool) -> None:
    limit = Limit("text path", ("x",), "×", at_least=2.5, amx=amx)
    result = {"x": 3.0, "machine": {"native_bf16": ["amx_bf16"] if amx else []}}
    assert figures(limit, result) == [("x", 3.0)]
    result["machine"] = {"native_bf16": [] if amx else ["amx_bf16"]}
    assert figures(limit, result) == []


def test_runner_knows_every_file() -> None:
    """Each file of `benchmarks/` is run, or is known not to be a benchmark or to need something."""
    files = {file.stem for file in RESULTS.parent.glob("[!_]*.py")}
    assert files > OTHER
    assert set(benchmarks()) == files - OTHER
    assert NEEDS.keys() < set(benchmarks())


def test_page_of_other_results(tmp_path: Path) -> None:
    """One file alone: its rows are measured, all others are named as not measured."""
    result = _groups(few_one_query=0.3514, few_64_queries=0.9)
    result |= {"command": "python -m benchmarks.exact_search --rows 7", "machine": {"processor": "abacus"}}
    (tmp_path / "exact_search.json").write_text(json.dumps(result), encoding="utf-8")
    page = performance_page("<!-- -->", tmp_path)
    assert "| 0.351 | **missed** | [exact_search](#exact_search) |" in page
    assert "| 0.9 | met | [exact_search](#exact_search) |" in page
    assert "- Command: `python -m benchmarks.exact_search --rows 7`\n" in page
    assert "- Machine: abacus, date not recorded" in page
    assert page.count("| – | not measured | – |") == sum(len(one.limits) for one in CLAIMS.values()) - 2
    assert "- `python -m benchmarks.mnil`\n" in page


@pytest.mark.parametrize("name", [name for name in CLAIMS if (RESULTS / f"{name}.json").exists()])
def test_each_limit_finds_figures_in_its_file(name: str) -> None:
    """Else a script has renamed what it measures, and the page would call it not measured."""
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    for limit in CLAIMS[name].limits:
        if limit.amx is None:
            assert figures(limit, result), limit


def test_claims_have_scripts_and_bounds() -> None:
    assert not SPEED.keys() & OTHERS.keys()
    for name, claim in CLAIMS.items():
        module = (claim.command or f"python -m benchmarks.{name}").split()[2].replace(".", "/")
        assert (RESULTS.parents[1] / f"{module}.py").exists(), name
        for limit in claim.limits:
            assert (limit.at_most is None) != (limit.at_least is None), limit


@pytest.mark.parametrize("name", [name for name in CLAIMS if (RESULTS / f"{name}.json").exists()])
def test_a_miss_says_what_keeps_it(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    for limit in CLAIMS[name].limits:
        values = [value for _, value in figures(limit, result)]
        assert verdict(limit, values) != MISSED or limit.gap, limit.work


def test_gaps_stand_with_misses_alone(tmp_path: Path) -> None:
    [one, several] = CLAIMS["exact_search"].limits
    result = _groups(few_one_query=0.3514, few_64_queries=0.9)
    (tmp_path / "exact_search.json").write_text(json.dumps(result), encoding="utf-8")
    page = performance_page("<!-- -->", tmp_path)
    assert page.count(f"What keeps it from the target ({one.work}): {one.gap}") == 1
    assert several.gap not in page

"""The page `docs/performance.md`: the claims of `benchmarks.claims` held against the files of `benchmarks/results/`."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.claims import OTHERS, SPEED, Claim, Limit

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
NOT_MEASURED = "not measured"


def performance_page(note: str, results: Path = RESULTS) -> str:
    """Two tables of targets with their results, and a section for each result file."""
    found = {name: _read(results / f"{name}.json") for name in (*SPEED, *OTHERS)}
    measured = [name for name, result in found.items() if result is not None]
    parts = [
        note,
        "# Performance",
        "What limner promises about speed and memory, and what was measured. Each row is a limit of "
        "`benchmarks/claims.py` and a figure of the benchmark's file in `benchmarks/results/`; a row that misses its "
        "target says so, and its section says what keeps it from there. Machines are shared, so most targets are "
        "ratios: the reference and limner take turns in one run. A result is that of its "
        "[machine and date](#how-it-was-measured); where one file has several figures for a row, the range stands "
        "here, and the worst of them counts.",
        "`make bench` runs a short form of all benchmarks that need no data, writes no result, and shows only that "
        "they run.",
        "## Targets",
        _table({name: (claim, found[name]) for name, claim in SPEED.items()}),
        "## Other claims",
        _table({name: (claim, found[name]) for name, claim in OTHERS.items()}),
        "## How it was measured",
        *(_section(name, {**SPEED, **OTHERS}[name], found[name] or {}) for name in measured),
    ]
    missing = [name for name in found if name not in measured]
    if missing:
        commands = "\n".join(f"- {_command(name, {**SPEED, **OTHERS}[name], {})}" for name in missing)
        parts += ["## Not measured yet", f"No result file is there yet of:\n\n{commands}"]
    return "\n\n".join(parts) + "\n"


def _read(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _table(claims: Mapping[str, tuple[Claim, Mapping[str, Any] | None]]) -> str:
    rows = ["| work | target | result | | measured |", "|---|---|---|---|---|"]
    for name, (claim, result) in claims.items():
        for limit in claim.limits:
            values = [value for _, value in figures(limit, result or {})]
            place = f"[{name}](#{name})" if result is not None else "–"
            rows.append(
                f"| {limit.work} | {_target(limit)} | {_range(values)} | {verdict(limit, values)} | {place} |"
            )
    return "\n".join(rows)


def verdict(limit: Limit, values: list[float]) -> str:
    """`met`, `**missed**` or `not measured`, as the page says it."""
    if not values:
        return NOT_MEASURED
    return "met" if all(_holds(limit, value) for value in values) else "**missed**"


def _holds(limit: Limit, value: float) -> bool:
    return (limit.at_most is None or value <= limit.at_most) and (
        limit.at_least is None or value >= limit.at_least
    )


def figures(limit: Limit, result: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What fits a limit in a result file: its keys and its value, in units of the limit."""
    if limit.amx is not None and limit.amx != ("amx_bf16" in _machine(result).get("native_bf16", [])):
        return []
    found = list(_fitting(result, limit.figure))
    if limit.of is None:
        return [(" · ".join(keys), value) for keys, value in found]
    others = [value for _, value in _fitting(result, limit.of)]
    return [(" · ".join(keys), value / min(others)) for keys, value in found] if others else []


def _fitting(content: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if not path:
        if isinstance(content, int | float):
            yield (), float(content)
        return
    if not isinstance(content, Mapping):
        return
    for key, inner in content.items():
        if fnmatchcase(key, path[0]):
            for keys, value in _fitting(inner, path[1:]):
                yield (key, *keys), value


def _section(name: str, claim: Claim, result: Mapping[str, Any]) -> str:
    found = [(limit, keys, value) for limit in claim.limits for keys, value in figures(limit, result)]
    rows = [
        f"| {_key(keys)} | {_number(value)} | {_target(limit)} | {verdict(limit, [value])} |"
        for limit, keys, value in found
    ]
    missed = [limit for limit, _, value in found if limit.gap and not _holds(limit, value)]
    reference = result.get("reference") or claim.reference
    lines = [
        f"### {name}",
        "",
        f"{claim.text[0].upper()}{claim.text[1:]}.",
        "",
        f"- Command: {_command(name, claim, result)}",
        *([f"- Reference: {reference}"] if reference else []),
        f"- Machine: {_told(_machine(result))}",
    ]
    if rows:
        lines += ["", "| figure | value | target | |", "|---|---|---|---|", *rows]
    for gap in dict.fromkeys(limit.gap for limit in missed):
        works = dict.fromkeys(limit.work for limit in missed if limit.gap == gap)
        lines += ["", f"What keeps it from the target ({'; '.join(works)}): {gap}"]
    return "\n".join(lines)


def _command(name: str, claim: Claim, result: Mapping[str, Any]) -> str:
    said = result.get("command")
    typed = said or claim.command or f"python -m benchmarks.{name}"
    return f"`{typed}`" + ("" if said or not result else ", as it is typed now; the file does not say")


def _machine(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A file of 2026-11-26 or before may have the processor alone, or nothing."""
    machine: Mapping[str, Any] = result.get("machine") or {
        key: result[key] for key in ("processor",) if key in result
    }
    return machine


def _told(machine: Mapping[str, Any]) -> str:
    bf16 = machine.get("native_bf16")
    parts = [
        machine.get("processor", "not recorded"),
        *(f"{key}: {machine[key]}" for key in ("cores", "threads", "load") if key in machine),
        *([] if bf16 is None else [f"bf16: {' and '.join(bf16) or 'no'}"]),
        *(
            f"{title} {machine[key]}"
            for key, title in (("torch", "PyTorch"), ("numpy", "NumPy"), ("python", "Python"))
            if key in machine
        ),
        machine.get("date", "date not recorded"),
    ]
    return ", ".join(parts)


def _key(keys: str) -> str:
    return keys.removeprefix("groups · ").removesuffix(" · ratio").replace("|", "\\|")


def _target(limit: Limit) -> str:
    bound = (
        f"≤ {_number(limit.at_most)}" if limit.at_most is not None else f"≥ {_number(limit.at_least or 0)}"
    )
    return f"{bound} {limit.unit}"


def _range(values: list[float]) -> str:
    low, high = (_number(one) for one in (min(values), max(values))) if values else ("–", "–")
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    """Three figures, so that a miss by a hundredth is not rounded away."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"

"""Timing side by side, and results that say on which machine they were measured.

Machines are shared and clocks change, so a claim is a ratio: the reference and what is compared with it take turns
within one run, and the median of the turns counts.
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from limner.inference.provenance import processor

RESULTS = Path(__file__).parent / "results"


def repeats(default: int) -> int:
    """How often each contestant has its turn: `--repeats N`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=default, help=f"turns of each, default {default}")
    given: int = parser.parse_args().repeats
    return max(1, given)


def taking_turns(contestants: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median seconds of each, after one turn that does not count."""
    return {name: statistics.median(values) for name, values in _seconds(contestants, turns).items()}


def paired(contestants: Mapping[str, Callable[[], object]], turns: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each, and the median of its times in one turn divided by the first one's in that turn.

    One turn before does not count. A turn's two times saw the same machine, so the ratio holds beside other programs.
    """
    seconds = _seconds(contestants, turns)
    reference = next(iter(seconds.values()))
    return {
        name: {
            "ms": 1000 * statistics.median(values),
            "ratio": statistics.median(own / other for own, other in zip(values, reference, strict=True)),
        }
        for name, values in seconds.items()
    }


def _seconds(contestants: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """The seconds of each in every turn but the first, which does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def speeds(seconds: Mapping[str, float], items: float, *, reference: str) -> dict[str, dict[str, float]]:
    """Items a second of each, and how many times the reference's speed that is."""
    return {
        name: {"per_second": items / taken, "ratio": seconds[reference] / taken}
        for name, taken in seconds.items()
    }


def publish(
    name: str, *, unit: str, groups: Mapping[str, Mapping[str, Mapping[str, float]]], about: Mapping[str, Any]
) -> None:
    """Print the table and write the JSON; `groups` are `speeds` by what they were measured on."""
    _print(groups, lambda values: f"{values['per_second']:>10,.1f} {unit}/s  {values['ratio']:>6.2f}×")
    _write({"benchmark": name, "unit": unit, **about, "groups": groups})


def publish_pairs(
    name: str, *, groups: Mapping[str, Mapping[str, Mapping[str, float]]], about: Mapping[str, Any]
) -> None:
    """Print the table and write the JSON; `groups` are `paired` by what they were measured on."""
    _print(groups, lambda values: f"{values['ms']:>10,.2f} ms  {values['ratio']:>6.2f} of the time")
    _write({"benchmark": name, **about, "groups": groups})


def _print(
    groups: Mapping[str, Mapping[str, Mapping[str, float]]], told: Callable[[Mapping[str, float]], str]
) -> None:
    width = max(len(label) for rows in groups.values() for label in rows)
    for group, rows in groups.items():
        print(group)
        for label, values in rows.items():
            print(f"  {label:<{width}}  {told(values)}")


def _write(content: Mapping[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({**content, "machine": machine()}, indent=2)
    (RESULTS / f"{content['benchmark']}.json").write_text(text + "\n", encoding="utf-8")


def memory_above(run: Callable[[], object]) -> int:
    """Bytes by which `run` raises the resident memory at its highest above what is resident before it (Linux)."""
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is still resident would take up part of the rise
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew here
    run()
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def machine() -> dict[str, Any]:
    """Processor, cores, versions, date, and how busy the machine was with other things."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "native_bf16": [
            name for name in ("amx_bf16", "avx512_bf16") if torch.cpu.get_capabilities().get(name)
        ],
        "load": round(os.getloadavg()[0], 1),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }

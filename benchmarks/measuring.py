"""Timing side by side, and results that say what is claimed, and on which machine they were measured.

Machines are shared and clocks change, so a claim is a ratio: the reference and what is compared with it take turns
within one run, and the median of the turns counts.

With LIMNER_BENCH_SHORT=1 in the environment (`make bench`) each has one turn, scripts take the smaller of their sizes
(`sized`), and no result file is written: it shows that a script runs, and its figures mean nothing.
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from benchmarks.claims import CLAIMS
from limner.inference.provenance import processor

RESULTS = Path(__file__).parent / "results"
SHORT = os.environ.get("LIMNER_BENCH_SHORT", "") not in ("", "0")
NOT_RUN = 77
"""Exit code of a script that cannot run here; 77 is what test programs take for "skipped"."""
Size = TypeVar("Size")


def sized(whole: Size, short: Size) -> Size:
    """A size of the benchmark: the first one, in a short run the second."""
    return short if SHORT else whole


def cannot_run(why: str) -> NoReturn:
    """End the script with one line that says what it needs."""
    print(f"not run: {why}", file=sys.stderr)
    raise SystemExit(NOT_RUN)


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
    for turn in range(sized(turns, 1) + 1):
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
    write(name, {"unit": unit, **about, "groups": groups})


def publish_pairs(
    name: str, *, groups: Mapping[str, Mapping[str, Mapping[str, float]]], about: Mapping[str, Any]
) -> None:
    """Print the table and write the JSON; `groups` are `paired` by what they were measured on."""
    _print(groups, lambda values: f"{values['ms']:>10,.2f} ms  {values['ratio']:>6.2f} of the time")
    write(name, {**about, "groups": groups})


def _print(
    groups: Mapping[str, Mapping[str, Mapping[str, float]]], told: Callable[[Mapping[str, float]], str]
) -> None:
    width = max(len(label) for rows in groups.values() for label in rows)
    for group, rows in groups.items():
        print(group)
        for label, values in rows.items():
            print(f"  {label:<{width}}  {told(values)}")


def write(name: str, content: Mapping[str, Any]) -> None:
    """Write the result file with claim, limits, command and machine; nothing in a short run.

    The machine is this one, unless `content` says that it was another.
    """
    if SHORT:
        print("a short run: no result file is written")
        return
    RESULTS.mkdir(exist_ok=True)
    claim = CLAIMS[name].content() if name in CLAIMS else {}
    whole = {"benchmark": name, **claim, "command": _command(), "machine": machine(), **content}
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _command() -> str:
    """The command of this process; paths, which are of this machine, as PATH."""
    spec = sys.modules["__main__"].__spec__
    words = ["PATH" if "/" in word or Path(word).exists() else word for word in sys.argv[1:]]
    return " ".join(["python -m", spec.name if spec else Path(sys.argv[0]).stem, *words])


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
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }

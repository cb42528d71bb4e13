"""Says at the end of a test run what was skipped, and fails for it where `LIMNER_SKIP_NOTHING` is set.

A plugin of pytest: `tests/conftest.py` takes its hooks.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable

import pytest
from _pytest.terminal import TerminalReporter

MAY_LACK = re.compile(
    "|".join(
        (
            "no firefox is installed",
            "there is no accelerator",
            "there is no CUDA device",
            "there is a CUDA device",
            "an allocator of another kind",
            "LIMNER_TEST_S3 names no storage",
            "no IPv6 here",
            "this user may mount no disk.*",
            "a file system that takes names in UTF-8 alone",
            "no git, or no checkout of it",
            "the clone is shallow.*",
            # of Prometheus and of Docker, for one check of a file each
            "promtool is not installed",
            "neither docker compose nor docker-compose is installed",
            # 200 MB of LLVM for a comparison that is made with ir-measures, too
            "could not import 'ranx'.*",
            # `make release` builds the website
            "no mkdocs.*",
            # a case of several parameters that is none
            "the type does not hold such numbers",
            "the toy takes all sentences for those of one picture",
        )
    )
)
"""Reasons that are no failure even then: those of the machine, and of a test's own parameters."""


def summary(reasons: Iterable[str]) -> str:
    """What was skipped, by reason, in one line, and how to get it."""
    counted = "; ".join(f"{times} × {' '.join(why.split())}" for why, times in Counter(reasons).most_common())
    return f"skipped: {counted}. How to get what is missing: CONTRIBUTING.md."


def not_allowed(reasons: Iterable[str]) -> list[str]:
    """The reasons for which a run that may skip nothing fails."""
    return sorted({why for why in reasons if not MAY_LACK.fullmatch(why)})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail for a test that was skipped and need not be."""
    if session.exitstatus in _PASSED and _missing(_reasons(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print what was skipped, and which of it may not be."""
    reasons = _reasons(config)
    if reasons:
        terminalreporter.write_line(summary(reasons))
    if missing := _missing(reasons):
        terminalreporter.write_line(f"may not be skipped here: {'; '.join(missing)}", red=True)


_PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def _missing(reasons: list[str]) -> list[str]:
    return not_allowed(reasons) if os.environ.get("LIMNER_SKIP_NOTHING") else []


def _reasons(config: pytest.Config) -> list[str]:
    """The reasons of all reports: a file, a line and a text each."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # a worker of xdist has no reporter: its tests are counted where it was started
    skipped = reporter.stats.get("skipped", ()) if reporter is not None else ()
    return [str(report.longrepr[-1]).removeprefix("Skipped: ") for report in skipped]

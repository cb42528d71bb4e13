"""Short forms of `benchmarks.torture.nets`: what a store promises under trouble, whatever its files are."""

from collections.abc import Iterator

import pytest

from benchmarks.torture import disk, nets
from benchmarks.torture.outcome import Outcome

pytestmark = pytest.mark.skipif(not disk.can_follow(), reason="needs Linux on x86-64 and gcc")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nets.Net]:
    with nets.net(tmp_path_factory.mktemp("nets"), length=5) as one:
        yield one


def expect_nothing(outcome: Outcome, *counted: str) -> None:
    assert not outcome.findings
    for name in counted:
        assert outcome.counts[name], name


def test_killed_at_any_operation_a_step_is_done_or_not_begun(net: nets.Net) -> None:
    """After it the store is sound, and the same command ends where an unkilled one does."""
    expect_nothing(nets.stopped(net, "kill", 10, 1), "add: stopped")


def test_a_full_disk_is_one_line_and_nothing_else(net: nets.Net) -> None:
    expect_nothing(nets.stopped(net, "full", 9, 1), "add: stopped")


def test_a_power_cut_at_any_moment_loses_nothing_that_was_answered(net: nets.Net) -> None:
    """And of the step in which it comes all is there or nothing."""
    outcome = nets.power_cuts(net, 10, 12)
    expect_nothing(outcome, "cuts: drawn", "cuts: synced", "cuts: names")
    assert not outcome.counts["repaired"]


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_no_damage_changes_an_answer_or_ends_a_process(net: nets.Net, killed: bool) -> None:
    """Each answer is right or an error; a repair brings all back or says what is lost."""
    expect_nothing(nets.mutations(net, 3 if killed else 7, 6, killed=killed), "refused")


def test_of_what_was_erased_no_byte_is_left(net: nets.Net) -> None:
    outcome = nets.erasures(net, 10)
    # a kind that is seen nowhere before an erasure is not looked for behind it either
    assert all(number for kind, number in outcome.counts.items() if kind.startswith("visible"))
    assert sum(kind.startswith("visible") for kind in outcome.counts) == 10
    expect_nothing(outcome, "erasures")


def test_a_backup_beside_a_writer_is_the_store_of_one_moment(net: nets.Net) -> None:
    expect_nothing(nets.backups(net, 6), "copies")

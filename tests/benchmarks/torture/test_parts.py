"""The short form of each part of the torture finds nothing: `make torture` runs the long ones."""

import pytest

from benchmarks.torture.__main__ import PARTS
from benchmarks.torture.nets import PARTS as NETS
from benchmarks.torture.workshop import Workshop

# where files of processes and namespaces are as Linux has them
pytest.importorskip("resource")


# the short forms of these are tests of their own, tests/search/test_mutations.py and test_nets.py
@pytest.mark.parametrize("part", sorted(PARTS.keys() - NETS.keys() - {"mutations"}))
def test_a_short_form_finds_nothing(part: str, shop: Workshop) -> None:
    outcome = PARTS[part](shop, short=True)
    assert not outcome.findings
    assert sum(outcome.counts.values())

from pathlib import Path

import pytest

from benchmarks.torture.workshop import Workshop
from limner.data.records import Dataset


@pytest.fixture
def shop(toys: Dataset, reranking_run: Path, toy_run: Path, tmp_path: Path) -> Workshop:
    """The torture's workshop, with the runs that other tests have, too."""
    return Workshop(tmp_path, toys.records[0].image.parent, reranking_run, toy_run)

"""Pictures in memory, and datasets of other libraries, are refused where they enter, in one line with the next step.

In a process of its own: the type checks of the test run would refuse them before limner does.
"""

import subprocess
import sys

import pytest

PICTURES = ("Image.new('RGB', (8, 8))", "np.zeros((8, 8, 3), np.uint8)", "b'bytes'", "3")
RECORD = "limner.Record({}, ('a dog',), 'a')"
INDEX = ("limner.index('RUN', 'STORE', {})", "limner.index('RUN', 'STORE', [{}])")
DATA = (
    "limner.train('dual-path-people', {}, 'OUT')",
    "limner.evaluate('RUN', {})",
    "limner.index('RUN', 'STORE', data={})",
    "limner.open_dataset({})",
)
CODE = """
import sys
import numpy as np
from PIL import Image
import limner
class Foreign(list):
    "Stands for datasets.Dataset, of which limner knows nothing."
for call in sys.argv[1:]:
    try:
        eval(call)
    except limner.LimnerError as error:
        print(type(error).__name__, error)
    else:
        print("taken:", call)
"""


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([RECORD.format(one) for one in PICTURES], "DataError Record: image is a "),
        (
            [call.format(one) for one in PICTURES for call in INDEX],
            "DataError index: the path of a picture or folder (save pictures in memory, or see limner index",
        ),
        (
            [call.format(one) for one in ("Foreign()", *PICTURES) for call in DATA],
            "DataError a dataset as FORMAT:PATH or limner.Dataset was expected, got ",
        ),
    ],
    ids=["record", "index", "data"],
)
def test_refused_where_they_enter(calls: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *calls], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(calls)
    for call, line in zip(calls, lines, strict=True):
        assert line.startswith(said), (call, line)
        assert "save" in line

"""A changed byte of any file of a store or of its run changes no answer: the answer is the same, or there is an error.

LIMNER_MUTATIONS says how many are tried (40 unless given). Each is read in a process of its own, forked from one that
has imported everything: a damaged file of LanceDB may end it with a signal.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.evaluation.calibration import Calibration, Reliability
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import FILE, RunCalibration
from limner.search.calibration import write_store_calibration
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_files import StoreFiles, store_for
from tests.search.fake import draw

COUNT = int(os.environ.get("LIMNER_MUTATIONS", "40"))
SEED = int(os.environ.get("LIMNER_MUTATIONS_SEED", "1"))
RUN = Path(__file__).parents[1] / "inference" / "formats" / "format-4"
SENTENCE = "a red square on white"

READER = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from limner.search.lancedb_import import lancedb
lancedb()
import limner
from limner.errors import LimnerError
import limner.search.store, limner.search.sentences, limner.inference.trained

def answers(folder):
    with limner.open_store(folder + "/store", run=folder + "/run", device="cpu") as store:
        texts = [store.search(SENTENCE, k=20), store.search("blue", k=20, where="camera=7", rerank=0)]
        ids = [item.id for item in store]
        sentences = store.sentences(SENTENCE, k=20)
        like = store.search(like=ids[0], k=20) if ids else None
        small = [store.files.thumbnails([one])[0].hex() for one in ids]
        told = [one.model_dump_json() for one in (*texts, *sentences, *([] if like is None else [like]))]
        return repr((told, ids, small))

for line in sys.stdin:
    folder = line.strip()
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1); os.dup2(quiet, 2)
        try:
            told = "answer " + answers(folder)
        except LimnerError as error:
            told = "error " + str(error)
        except BaseException as error:
            told = "bug " + repr(error)
        with os.fdopen(writable, "w") as file:
            file.write(told.replace(folder, "").replace("\\n", " "))
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as file:
        told = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(told or f"signal {status}", flush=True)
"""


def calibration(fingerprint: str, split: str, offset: float) -> RunCalibration:
    worth = Reliability(
        queries=5, right=0.6, probability=0.5, ece=0.1, brier=0.2, good=0.4, good_right=None, right_good=0.4,
        good_astray=0,
    )  # fmt: skip
    fitted = Calibration(of_score=1, of_lead=4, offset=offset, floor=0.1, right=5, wrong=45)
    return RunCalibration(
        fingerprint=fingerprint, checkpoint="c", data="d", split=split, split_fingerprint="s", images=10,
        sentences=5, reranked=3, embedding=fitted, reranker=fitted, reliability={"embedding": worth},
        versions={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with region features, sentences and a history, and the run that it was built with."""
    folder = tmp_path_factory.mktemp("whole")
    run = folder / "run"
    shutil.copytree(RUN, run)
    model = limner.load(run, device="cpu", precision="fp32")
    files = store_for(model, run, folder / "store", regions=True)
    pictures = [draw(folder / "pictures" / f"{number}.png", number) for number in range(9)]
    for start in range(0, 9, 3):
        metadata = {str(path): {"camera": 7} for path in pictures[start : start + 3]}
        index_pictures(model, files, pictures[start : start + 3], metadata=metadata)
        if start == 3:
            files.compact()
    files.delete([next(iter(files.entries().values())).id])
    for texts in (("a red square", "blue"), ("a green square on white",)):
        SentenceTable(files).index(model, [Sentence(text) for text in texts])
    write_calibration(run, calibration(model.fingerprint, "val", -2.5))
    write_store_calibration(files, calibration(model.fingerprint, "store", -1.5))
    return folder


@pytest.fixture(scope="module")
def reader() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", READER.replace("SENTENCE", repr(SENTENCE))]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def read(reader: "subprocess.Popen[str]", folder: Path) -> str:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(f"{folder}\n")
    reader.stdin.flush()
    return reader.stdout.readline().strip()


def mutate(folder: Path, chance: random.Random) -> str:
    """Change one file below a folder, or two, and say how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "pictures")
    # of each kind of file as often: half of them are LanceDB's
    part = chance.choice(["run", "store", "segments", "pictures-1.lance", "sentences-1.lance"])
    kind = chance.choice(["bit", "byte", "cut", "zeros", "removed", "exchanged", "newest"])
    path = chance.choice([path for path in files if part in path.parts])
    if kind == "newest":
        table = chance.choice(["pictures-1.lance", "sentences-1.lance"])
        path = min((folder / "store" / table / "_versions").glob("*.manifest"))
    told = f"{kind} {path.relative_to(folder)}"
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content)) if content else 0
    if kind == "exchanged":
        other = chance.choice([one for one in files if one != path])
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{told} with {other.relative_to(folder)}"
    if kind == "newest" or (kind == "removed" and path.parent.name + "/" + path.name != f"run/{FILE}"):
        # a run without calibration.json gives no probabilities, which is no damage
        path.unlink()
        return told
    if kind == "cut":
        content = content[:place]
    elif kind == "zeros":
        length = min(chance.randrange(1, 64), len(content) - place)
        content[place : place + length] = bytes(length)
    elif content:
        content[place] ^= 1 << chance.randrange(8) if kind == "bit" else chance.randrange(1, 256)
    path.write_bytes(content)
    return f"{told} at {place}"


def test_no_mutation_changes_an_answer(whole: Path, reader: "subprocess.Popen[str]", tmp_path: Path) -> None:
    # at one path, as the store names its pictures and its run by theirs
    folder = tmp_path / "mutated"
    shutil.copytree(whole, folder)
    right = read(reader, folder)
    assert right.startswith("answer "), right
    assert right.count('"probability":0.') > 10
    chance = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(COUNT):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        told = mutate(folder, chance)
        found = read(reader, folder)
        outcome = "same" if found == right else found.split(" ", 1)[0]
        outcomes[outcome] += 1
        if outcome not in ("same", "error"):
            wrong.append(f"{told}: {found[:300]}")
    print(json.dumps(outcomes))
    assert not wrong, "\n".join(wrong)
    assert outcomes["error"] > COUNT / 3
    np.testing.assert_equal(sum(outcomes.values()), COUNT)
    assert StoreFiles.open(whole / "store").region_shape is not None

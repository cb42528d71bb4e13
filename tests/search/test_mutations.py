"""A changed byte of any file of a store or of its run changes no answer: the answer is the same, or there is an error.

LIMNER_MUTATIONS says how many are tried (40 unless given). Each is read in a process of its own, which it may end.
"""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import limner
from benchmarks.torture.forks import EndedError, Forks, forks
from limner.errors import LimnerError
from limner.evaluation.calibration import Calibration, Reliability
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import FILE, RunCalibration
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.store.calibration import write_store_calibration
from limner.store.files import store_for
from tests.search.fake import calibration, draw

COUNT = int(os.environ.get("LIMNER_MUTATIONS", "40"))
SEED = int(os.environ.get("LIMNER_MUTATIONS_SEED", "1"))
RUN = Path(__file__).parents[1] / "inference" / "formats" / "format-4"
SENTENCE = "a red square on white"


def answers(folder: str) -> str:
    with limner.open_store(f"{folder}/store", run=f"{folder}/run", device="cpu") as store:
        texts = [store.search(SENTENCE, k=20), store.search("blue", k=20, where="camera=7", rerank=0)]
        ids = [item.id for item in store]
        sentences = store.sentences(SENTENCE, k=20)
        like = store.search(like=ids[0], k=20) if ids else None
        small = [store.thumbnail(one).hex() for one in ids]
        told = [one.model_dump_json() for one in (*texts, *sentences, *([] if like is None else [like]))]
        return repr((told, ids, small)).replace(folder, "")


def fitted(fingerprint: str, split: str, offset: float) -> RunCalibration:
    worth = Reliability(
        queries=5, right=0.6, probability=0.5, ece=0.1, brier=0.2, good=0.4, good_right=None, right_good=0.4,
        good_astray=0,
    )  # fmt: skip
    own = Calibration(of_score=1, of_lead=4, offset=offset, floor=0.1, right=5, wrong=45)
    more = {"reranked": 3, "embedding": own, "reranker": own, "reliability": {"embedding": worth}}
    return calibration(fingerprint, split=split, **more)


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
            files.rows.scrub()
    files.delete([next(iter(files.entries().values())).id])
    for texts in (("a red square", "blue"), ("a green square on white",)):
        SentenceTable(files).index(model, [Sentence(text) for text in texts])
    write_calibration(run, fitted(model.fingerprint, "val", -2.5))
    write_store_calibration(files, fitted(model.fingerprint, "store", -1.5))
    files.rows.close()
    return folder


@pytest.fixture(scope="module")
def fork() -> Iterator[Forks]:
    with forks({}) as started:
        yield started


def mutate(folder: Path, chance: random.Random) -> str:
    """Change one file below a folder, or two, and say how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "pictures")
    # those of the run as often as those of the store, and neither a large file nor many small ones have all of it
    part = chance.choice(["run", "store"])
    kind = chance.choice(["bit", "byte", "cut", "zeros", "removed", "exchanged"])
    own = [path for path in files if path.relative_to(folder).parts[0] == part and path.stat().st_size]
    path = chance.choices(own, None if chance.random() < 0.5 else [one.stat().st_size for one in own])[0]
    told = f"{kind} {path.relative_to(folder)}"
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content)) if content else 0
    if kind == "exchanged":
        other = chance.choice([one for one in files if one != path])
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{told} with {other.relative_to(folder)}"
    if kind == "removed" and path.parent.name + "/" + path.name != f"run/{FILE}":
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


def test_no_mutation_changes_an_answer(whole: Path, fork: Forks, tmp_path: Path) -> None:
    # at one path, as the store names its pictures and its run by theirs
    folder = tmp_path / "mutated"
    shutil.copytree(whole, folder)
    right = fork(f"{__name__}:answers", str(folder))
    assert right.count('"probability":0.') > 10
    chance = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(COUNT):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        told = mutate(folder, chance)
        try:
            found = fork(f"{__name__}:answers", str(folder))
            outcomes["same"] += 1
            if found != right:
                wrong.append(f"{told}: {found[:300]}")
        except LimnerError:
            outcomes["error"] += 1
        except EndedError as error:
            wrong.append(f"{told}: {error}")
    print(json.dumps(outcomes))
    assert not wrong, "\n".join(wrong)
    assert outcomes["error"] > COUNT / 3

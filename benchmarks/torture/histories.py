"""Random histories of a store, and a model in Python of what it holds after each step.

Each step is a command of limner, and the store is read as its users read it: by commands and `limner.open_store`. None
of this knows of which files a store consists, so that it holds for any engine. Functions take and return what JSON
holds, as `forks` needs it.
"""

import ctypes
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import limner
from benchmarks.torture.commands import ROOT, Result, called
from limner.errors import LimnerError

RUN = ROOT / "tests" / "inference" / "formats" / "format-4"
"""A run of a tiny model that re-ranks, so that stores have vectors, region features, thumbnails and sentences."""

QUERIES = ("a red square on white", "blue")
NAMES = "abcdefgh"
MOST = 5
"""Most pictures that one step adds or changes."""
_NEAR = 1e-4
"""Most by which a score may differ: batches of another size are summed in another order."""

_WORDS = (
    ("red", "green", "blue", "yellow"),
    ("square", "circle", "bar"),
    ("on white", "on grey", "on black"),
)

Picture = list[Any]
"""Number of its content, identity, note, and its sentences in order."""
State = dict[str, Any]
"""`store`: the name of its folder; `pictures`: a `Picture` by name."""
Step = list[Any]
"""What is done, and of what: `add` and `sentences` take what each picture gets, by name, the others a list of names."""
Answers = dict[str, Any]
"""What a store answers, by question; `{"refused": MESSAGE}` for a refusal."""

START: State = {"store": "store-0", "pictures": {}}


def history(seed: int, length: int, kinds: tuple[str, ...] = ()) -> list[tuple[Step, State]]:
    """Draw steps, of these kinds if given, each with the state that it leaves. The first one adds pictures."""
    rng, state, found = random.Random(seed), START, list[tuple[Step, State]]()
    # no content stands twice in a history
    contents = count()
    chances = {"add": 5, "sentences": 4, "delete": 2, "erase": 2, "compact": 1, "reindex": 1}
    while len(found) < length:
        drawn = rng.choices(kinds or list(chances), None if kinds else list(chances.values()))[0]
        kind = drawn if found else "add"
        there = sorted(state["pictures"])
        names = rng.sample(NAMES if kind == "add" else there, min(rng.randint(2, MOST), len(there) or MOST))
        # some have to stay
        if kind in ("delete", "erase", "sentences"):
            names = names[: 1 if kind == "sentences" else 2]
            if len(there) < 4:
                continue
        given: Any = names
        if kind == "add":
            given = {name: _drawn(rng, state["pictures"].get(name), contents) for name in sorted(names)}
        elif kind == "sentences":
            # one alone: in a batch of several its vector would have other last bits
            words = " ".join(map(rng.choice, _WORDS))
            given = {names[0]: [f"a {words} {rng.randbytes(9).hex()}"]}
        elif kind in ("compact", "reindex"):
            given = []
        step: Step = [kind, given]
        state = after(state, step)
        found.append((step, state))
    return found


def _drawn(rng: random.Random, before: Picture | None, contents: Iterator[int]) -> Picture:
    """Another picture of somebody else, or other facts of the same one."""
    note = f"note {rng.randbytes(9).hex()}"
    if before is not None and rng.random() < 0.5:
        return [before[0], before[1], note]
    return [next(contents), f"person {rng.randbytes(9).hex()}", note]


def after(state: State, step: Step) -> State:
    """The state that a step leaves."""
    kind, given = step
    pictures = dict(state["pictures"])
    for name in given:
        before = pictures.get(name)
        if kind == "add":
            # of somebody else's picture the sentences go
            kept = [] if before is None or before[0] != given[name][0] else before[3]
            pictures[name] = [*given[name], kept]
        elif kind == "sentences":
            pictures[name] = [*pictures[name][:3], given[name]]
        else:
            del pictures[name]
    if kind == "reindex":
        # sentences are indexed again afterwards
        pictures = {name: [*one[:3], []] for name, one in pictures.items()}
    number = int(state["store"].split("-")[1]) + (kind == "reindex")
    return {"store": f"store-{number}", "pictures": pictures}


def draw(path: Path, content: int) -> None:
    """Draw a picture whose thumbnail is larger than a page of any database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(content).integers(0, 256, (48, 96, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def prepare(work: Path, step: Step, state: State) -> tuple[object, ...]:
    """Write the files that a step needs, and return its command. `state` is that before it."""
    kind, given = step
    store, pictures = work / "disk" / state["store"], work / "pictures"
    paths = [pictures / f"{name}.png" for name in given]
    if kind == "add":
        for name, path in zip(given, paths, strict=True):
            draw(path, given[name][0])
        rows = [{"file": f"{name}.png", "identity": one[1], "note": one[2]} for name, one in given.items()]
        notes = _lines(pictures / "notes.jsonl", rows)
        return ("index", RUN, store, *paths, "--metadata", notes, "--regions", "--cpu")
    if kind == "sentences":
        rows = [{"file": f"{name}.png", "captions": texts} for name, texts in given.items()]
        return ("index-sentences", RUN, store, f"folder:{_lines(pictures / 'captions.jsonl', rows)}", "--cpu")
    if kind == "erase":
        return ("store", "erase", store, "--yes", *(part for path in paths for part in ("--path", path)))
    if kind == "reindex":
        # keeps region features as the old one does
        return ("reindex", store, RUN, work / "disk" / after(state, step)["store"], "--cpu")
    return ("store", kind, store, *paths)


def _lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return file


def do(work: str, steps: list[Step], state: State, trouble: tuple[str, str, int, int] | None = None) -> Any:
    """Do steps, and return how many are done, how the last one ended, and the number of operations below `disk`.

    `trouble`: `disk.library()`, the log, the kind of trouble and the operation at which it comes. After each step a
    byte is added to the file `told`.
    """
    disk, told, result = Path(work) / "disk", 0, Result((), 0, "", "")
    disk.mkdir(parents=True, exist_ok=True)
    if trouble is not None:
        library, log, kind, at = trouble
        followed = ctypes.CDLL(library)
        failed = followed.limner_disk(str(disk).encode(), log.encode(), kind, ctypes.c_long(at))
        assert not failed, "the kernel does not let a process follow itself"
    for step in steps:
        result = called(*prepare(Path(work), step, state))
        if result.code:
            break
        state, told = after(state, step), told + 1
        with suppress(OSError), (disk / "told").open("ab", 0) as file:
            file.write(b".")
    well = result.refused or not result.code
    return {
        "told": told,
        "said": str(result),
        "well": well,
        "operations": trouble and followed.limner_disk_done(),
    }


def answers_of(store: str) -> Answers:
    """Ask a store all that its users may ask; each answer is by the name of the picture."""
    found: Answers = {"verify": _json("store", "verify", store), "list": _json("store", "list", store)}
    if isinstance(found["list"], list):
        found["list"] = {
            _name(row["path"]): [row["sha256"], row["identity"], row["metadata"].get("note")]
            for row in found["list"]
        } | ({} if len({row["path"] for row in found["list"]}) == len(found["list"]) else {"twice": True})
    opened = _answered(lambda: limner.open_store(store, device="cpu"))
    if isinstance(opened, dict):
        return {**found, **dict.fromkeys(_QUESTIONS, opened), **dict.fromkeys(QUERIES, opened)}
    for name, ask in _QUESTIONS.items():
        found[name] = _answered(ask, opened)
    for query in QUERIES:
        found[query] = _answered(
            lambda query: {
                _name(hit.path): [hit.score, hit.confidence]
                for hit in opened.search(query, k=1000, rerank="all").hits
            },
            query,
        )
    return found


_QUESTIONS: dict[str, Callable[[limner.Store], Any]] = {
    "items": lambda store: {_name(one.path): [one.identity, one.metadata.get("note")] for one in store},
    "thumbnails": lambda store: {_name(one.path): _digest(store.thumbnail(one.id)) for one in store},
    "sentences": lambda store: sorted(
        [one.text, _name(one.path)] for one in store.sentences(QUERIES[0], k=1000)
    ),
    "numbers": lambda store: [store.info().pictures, store.info().sentences],
}


def expected(state: State, references: Answers) -> Answers:
    """What a store of this state answers, by what a store of each content alone does (`references_of`)."""
    pictures = state["pictures"].items()

    def by_name(question: str) -> dict[str, Any]:
        return {name: references[question][str(one[0])] for name, one in pictures}

    sentences = sorted([text, name] for name, one in pictures for text in one[3])
    return {
        "verify": {"pictures": len(pictures), "sentences": len(sentences), "sound": True},
        "list": {name: [references["list"][str(one[0])][0], *one[1:3]] for name, one in pictures},
        "items": {name: one[1:3] for name, one in pictures},
        "thumbnails": by_name("thumbnails"),
        "sentences": sentences,
        "numbers": [len(pictures), len(sentences)],
        **{query: by_name(query) for query in QUERIES},
    }


def references_of(work: str, contents: int) -> Answers:
    """What a store answers of each content, by its number."""
    folder = Path(work) / "references"
    for number in range(contents):
        draw(folder / f"{number}.png", number)
    result = called("index", RUN, folder / "store", folder, "--regions", "--cpu")
    assert result.code == 0, result
    return answers_of(str(folder / "store"))


def command(*words: str) -> dict[str, Any]:
    """Call a command of limner."""
    result = called(*words)
    return {"code": result.code, "out": result.out, "said": str(result), "refused": result.refused}


def traces_of(store: str) -> dict[str, dict[str, list[str]]]:
    """The bytes, in hex, by which each picture of a store can be known: by `NAME HASH` and by kind.

    Of long values pieces are taken, since a file may hold a value in parts.
    """
    file = Path(store).parent.parent / "temporary" / "exported.jsonl"
    file.unlink(missing_ok=True)
    assert called("store", "export", store, file, "--to", "qdrant-jsonl").code == 0
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    file.unlink()
    found: dict[str, dict[str, list[str]]] = {}
    model = limner.load(RUN, device="cpu")
    with limner.open_store(store, device="cpu") as opened:
        for row in rows:
            facts, vector = row["payload"], np.array(row["vector"], np.float32)
            texts = facts["sentences"]
            pixels = model.prepare_image(facts["path"])[None]
            traces = {
                "path": [facts["path"].encode()],
                "key": [facts["id"].encode()],
                "hash": [facts["sha256"].encode(), bytes.fromhex(facts["sha256"])],
                "identity": [facts["identity"].encode()],
                "metadata": [facts["metadata"]["note"].encode()],
                "vector": [vector.tobytes()],
                "thumbnail": _pieces(opened.thumbnail(facts["id"])),
                "region features": _pieces(model.expect_reranker().region_features(pixels).tobytes()),
                "sentence": [text.encode() for text in texts],
                "vector of a sentence": [model.encode_texts([text])[0].tobytes() for text in texts],
            }
            found[f"{_name(facts['path'])} {facts['sha256'][:12]}"] = {
                kind: [one.hex() for one in some] for kind, some in traces.items()
            }
    return found


def _pieces(content: bytes, size: int = 24) -> list[bytes]:
    # not the head, which those of other pictures share
    start = len(content) // 4
    return [content[at : at + size] for at in range(start, max(start + 1, len(content) - size), 97)]


def state_in(found: Answers, references: Answers, store: str) -> State:
    """The state that a store's answers tell, as far as each of them is taken at its word."""
    contents = {row[0]: int(name) for name, row in references["list"].items()}
    sentences: dict[str, list[str]] = {}
    for text, name in found["sentences"]:
        sentences.setdefault(name, []).append(text)
    return {
        "store": store,
        "pictures": {
            name: [contents.get(row[0]), *row[1:], sorted(sentences.get(name, []))]
            for name, row in found["list"].items()
        },
    }


def strays(now: State, before: State, later: State) -> str:
    """Say why a state is none that a stopped step may leave between two others; empty if it is one.

    A step takes a picture in or out, or changes it, together with all others; sentences may come and go one by one.
    """
    rows = [{name: one[:3] for name, one in state["pictures"].items()} for state in (now, before, later)]
    if rows[0] not in rows[1:]:
        return f"{rows[0]} is neither {rows[1]} nor {rows[2]}"
    for name, one in now["pictures"].items():
        told = [set(state["pictures"].get(name, [0, 0, 0, []])[3]) for state in (before, later)]
        if not told[0] & told[1] <= set(one[3]) <= told[0] | told[1]:
            return f"{name}: {one[3]} is not between {told[0]} and {told[1]}"
    return ""


def differs(found: Answers, right: Answers, near: float = _NEAR) -> str:
    """Say which answer is wrong; empty if all are right. A refusal is no wrong answer: see `refused`."""
    for question, answer in right.items():
        if not _is_refusal(found[question]) and not _equal(found[question], answer, near):
            return f"{question}: {found[question]} in place of {answer}"
    return ""


def refused(found: Answers) -> str:
    """One of the refusals, if there are any; also that of `store verify`, which finds a store damaged."""
    return next((str(answer["refused"]) for answer in found.values() if _is_refusal(answer)), "")


def _is_refusal(answer: Any) -> bool:
    return isinstance(answer, dict) and "refused" in answer


def _equal(one: Any, other: Any, near: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], near) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_equal(*pair, near) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= near
    return bool(one == other)


def _answered(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except LimnerError as error:
        return {"refused": str(error)}


def _json(*command: object) -> Any:
    """What a command says as JSON. One that cannot, or that finds the store damaged, is a refusal."""
    result = called(*command, "--json")
    answer = json.loads(result.out) if result.code in (0, 1) else {"refused": str(result)}
    if "sound" in answer:
        answer = {name: answer[name] for name in ("pictures", "sentences", "sound")}
        answer = answer if answer["sound"] else {"refused": result.out}
    return answer


def _name(path: object) -> str:
    return Path(str(path)).stem


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

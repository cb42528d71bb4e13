"""A store of two checkouts side by side: indexing, opening, searching, changing, erasing, bytes, and cold commands.

    python -m benchmarks.store_before_after BEFORE [AFTER] [--rounds 5] [--rows 100000] [--pictures 20000]

BEFORE and AFTER are folders of checkouts; AFTER is this one if it is not named. In every round each has its turn, the
first one alternating, in processes of its own that import limner from there; the median of the rounds counts, of the
seconds on the clock and of the processors. An encoder of one product stands for a model, so that what is measured is
all that limner does beside it. Pictures are drawn, 64 × 48; rows have 512 numbers, a thumbnail of 2,000 bytes and
facts. The cold commands are those of `benchmarks.cold_search`.
"""

import argparse
import compileall
import hashlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
DIM, EDGE, FEW = 512, 8, 100
WORDS = ("red", "blue", "green", "square", "circle", "bar", "white", "black")


class FewColours:
    """An encoder of one product: of a picture's pixels, 8 × 8, and of the words of a text."""

    fingerprint, dim, reranker, rerank, precision = "a" * 64, DIM, None, 0, None

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._pixels = rng.standard_normal((3 * EDGE * EDGE, DIM), np.float32)
        self._words = {word: rng.standard_normal(DIM, np.float32) for word in WORDS}

    def prepare_image(self, source: Any) -> np.ndarray:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.array(image.convert("RGB").resize((EDGE, EDGE)))

    def encode_pixels(self, pixels: np.ndarray) -> np.ndarray:
        return _unit((pixels.reshape(len(pixels), -1) / np.float32(255) - np.float32(0.5)) @ self._pixels)

    def encode_texts(self, sentences: Any, *, check: bool = True) -> np.ndarray:
        some = [sentences] if isinstance(sentences, str) else sentences
        return _unit(np.stack([sum(self._words[word] for word in text.split()) for text in some]))

    encode_queries = encode_texts

    def encode_images(self, images: Any) -> np.ndarray:
        return self.encode_pixels(np.stack([self.prepare_image(image) for image in images]))

    def check_query(self, sentence: str) -> None:
        pass

    def known_words(self, sentence: str) -> list[str]:
        return sentence.split()

    def unknown_words(self, sentence: str) -> list[str]:
        return []


def _unit(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
    return found


class Measured(dict[str, list[float]]):
    """Seconds by the step: on the clock and of the processors."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self[name] = [time.perf_counter() - wall, time.process_time() - cpu]


def write_rows(folder: Path, pictures: Path, rows: int) -> Measured:
    """Index pictures into one store, and write rows into another."""
    # the names of before and after differ, and this module has them all
    from limner.search.index import StoredImage, StoreFiles, index_pictures  # type: ignore[attr-defined]

    encoder, measured = FewColours(), Measured()
    own: dict[str, Any] = {"fingerprint": encoder.fingerprint, "dim": DIM, "run": "drawn"}
    count = sum(1 for _ in pictures.iterdir())
    with measured.step(f"index {count:,} pictures"):
        index_pictures(encoder, StoreFiles.create(folder / "pictures", **own), [pictures])
    rng, files = np.random.default_rng(0), StoreFiles.create(folder / "rows", **own)
    with measured.step(f"write {rows:,} rows"):
        for start in range(0, rows, 1000):
            numbers = range(start, min(start + 1000, rows))
            files.add(
                [
                    StoredImage(
                        f"/drawn/{number:08}.jpg",
                        hashlib.sha256(str(number).encode()).hexdigest(),
                        1000,
                        1,
                        metadata={"camera": number % 10, "day": number % 365, "note": f"picture {number}"},
                    )
                    for number in numbers
                ],
                _unit(rng.standard_normal((len(numbers), DIM), np.float32)),
                None,
                [rng.bytes(2000) for _ in numbers],
            )
    return measured


def use_rows(folder: Path, pictures: Path, rows: int) -> Measured:
    """Open the store of rows, search it, and change it."""
    import limner.inference.learnt_images  # noqa: F401 - an erasure would import it, and torch with it
    from limner.search.engine import Engine
    from limner.search.index import StoreFiles  # type: ignore[attr-defined]
    from limner.search.store import Store

    measured, some = Measured(), sorted(pictures.iterdir())[:FEW]
    with measured.step(f"open {rows:,} rows"):
        store = Store(Engine(StoreFiles.open(folder / "rows"), FewColours()))
        store.engine.prepare()
    texts = [f"{one} {other}" for one in WORDS for other in WORDS]
    store.search(texts[0], k=10)
    with measured.step("100 searches, one by one"):
        for number in range(100):
            store.search(texts[number % len(texts)], k=10)
    with measured.step("10 batches of 64 searches"):
        for _ in range(10):
            store.search_many(texts, k=10)
    store.search(texts[0], k=10, where="camera=3")
    with measured.step("100 searches with a condition"):
        for number in range(100):
            store.search(texts[number % len(texts)], k=10, where="camera=3")
    with measured.step(f"add {FEW} pictures"):
        store.index(some)
    with measured.step("first search after it"):
        store.search(texts[0], k=10)
    added = {item.path: item.id for item in store}
    with measured.step(f"delete {FEW} pictures"):
        store.files.delete([added[path] for path in some])
    with measured.step(f"erase 1 of {rows:,}"):
        report = store.erase(paths="/drawn/00000000.jpg")
    assert report.pictures == 1
    assert not report.found
    return measured


STEPS: dict[str, Callable[[Path, Path, int], Measured]] = {"write": write_rows, "use": use_rows}


def main() -> None:
    # as a process of another checkout it has no `benchmarks`
    if sys.argv[1] in STEPS:
        print(json.dumps(STEPS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))))
        return
    from benchmarks.measuring import sized

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--rounds", type=int, default=sized(5, 1))
    parser.add_argument("--rows", type=int, default=sized(100_000, 2_000))
    parser.add_argument("--pictures", type=int, default=sized(20_000, 200))
    parser.add_argument("--only", choices=("store", "cold"), help="a part; both if not given")
    options = parser.parse_args()
    trees = {"before": options.before.resolve(), "after": options.after.resolve()}
    # threads of OpenMP that wait for each other would count as work
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        # not in a checkout: Python would import limner from where it is started
        os.chdir(scratch)
        folder = Path(scratch)
        rounds: dict[str, list[dict[str, list[float]]]] = {name: [] for name in trees}
        _drawn(folder / "pictures", options.pictures)
        commands = {} if options.only == "store" else _cold(folder, trees)
        for tree in trees.values():
            compileall.compile_dir(tree / "limner", quiet=2)
        for number in range(options.rounds):
            for name in list(trees)[:: 1 if number % 2 else -1]:
                _chosen(trees[name])
                took = _commands(commands.get(name, {}))
                if options.only != "cold":
                    took |= _round(folder / "stores", folder / "pictures", options.rows)
                rounds[name].append(took)
                print(f"round {number + 1}, {name}: {took}", flush=True)
    _publish(rounds, options)


def _drawn(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        small = rng.integers(0, 256, (6, 8, 3)).astype(np.uint8)
        Image.fromarray(small).resize((64, 48)).save(folder / f"{number:06}.jpg")


def _chosen(tree: Path) -> None:
    """Have processes import limner from a checkout."""
    os.environ["PYTHONPATH"] = str(tree)


def _cold(folder: Path, trees: dict[str, Path]) -> dict[str, dict[str, list[str]]]:
    """A search in a new process, with torch and by each export, of each checkout."""
    from benchmarks.small_run import ENGINES, limner, make_run, quietly

    run, pictures = make_run(folder / "run")
    asked = ("a red circle on white", "-k", "3", "--json", "--cpu")
    commands: dict[str, dict[str, list[str]]] = {}
    for engine in ENGINES:
        quietly("export", run, folder / engine, "--format", engine)
    for name, tree in trees.items():
        _chosen(tree)
        store = folder / f"small-{name}"
        quietly("index", run, store, pictures, "--cpu")
        commands[name] = {"limner search, torch": limner("search", store, *asked)}
        for engine in ENGINES:
            by = limner("search", store, *asked, "--run", folder / engine)
            commands[name][f"limner search, export, {engine}"] = by
    return commands


def _commands(commands: dict[str, list[str]]) -> dict[str, list[float]]:
    from benchmarks.small_run import taken_by

    taken = {name: taken_by(command) for name, command in commands.items()}
    return {name: [one.wall, one.cpu] for name, one in taken.items()}


def _round(stores: Path, pictures: Path, rows: int) -> dict[str, list[float]]:
    shutil.rmtree(stores, ignore_errors=True)
    stores.mkdir()
    found: dict[str, list[float]] = {}
    for step in STEPS:
        # -P: this file's folder holds other modules
        words = [sys.executable, "-P", __file__, step, str(stores), str(pictures), str(rows)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{os.environ['PYTHONPATH']}, {step}: {done.stderr}")
        found |= json.loads(done.stdout)
        for store in ("pictures", "rows"):
            size = sum(path.stat().st_size for path in (stores / store).rglob("*") if path.is_file())
            found[f"MB on disk, {store}, after {step}"] = [size / 1e6, size / 1e6]
    return found


def _publish(rounds: dict[str, list[dict[str, list[float]]]], options: argparse.Namespace) -> None:
    from benchmarks.measuring import write

    def median(name: str, step: str, part: int) -> float:
        return statistics.median(one[step][part] for one in rounds[name])

    steps: dict[str, dict[str, float]] = {}
    print(
        f"{'':<42} {'before':>9} {'after':>9} {'ratio':>6}   {'before':>9} {'after':>9} {'ratio':>6} of CPU time"
    )
    for step in rounds["after"][0]:
        row: dict[str, float] = {}
        for part, unit in enumerate(("wall", "cpu")):
            before, after = (median(name, step, part) for name in ("before", "after"))
            row |= {f"{unit}_before": before, f"{unit}_after": after, f"{unit}_ratio": after / before}
        steps[step] = {key: round(value, 4) for key, value in row.items()}
        told = [
            f"{row[f'{u}_before']:>9.3f} {row[f'{u}_after']:>9.3f} {row[f'{u}_ratio']:>6.2f}"
            for u in ("wall", "cpu")
        ]
        print(f"{step:<42} {'   '.join(told)}", flush=True)
    write(
        "store_before_after",
        {
            "rounds": options.rounds,
            "rows": options.rows,
            "pictures": options.pictures,
            "dim": DIM,
            "steps": steps,
        },
    )


if __name__ == "__main__":
    main()

"""A store that grows: how many bytes are written for those that are kept, and how much memory that takes.

    python -m benchmarks.store_growth [--gigabytes 3] [--calls 6] [--rows 100000] [--folder FOLDER]

Random region features of 7 × 7 × 2048 in half precision (200,704 bytes an image), thumbnails of 10 kB and vectors of
512 are written by calls of `limner.store.files.StoreFiles.changing`, each in batches of 64 with the commits of an
`index` of as many images. After the last call a tenth of the images gets new metadata, another tenth new bytes, six of
ten of the first half of the images are deleted, and `limner store compact` writes the file without them.

A second store has as many rows as 20 GB of such features would have, and region features of 1 × 1 × 1: what grows with
the number of images shows there, what grows with their bytes in the first one.

Written: `wchar` of /proc/self/io, all bytes that the process handed to the system. Kept: bytes on disk at the end of a
call. Memory: peak of the resident set above what it was before the store was opened.
"""

import argparse
import ctypes
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import sized, write
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.path import size_of

SHAPE = (7, 7, 2048)
DIM = 512
BATCH = 64
THUMBNAIL = 10_000
TINY = (1, 1, 1)


def written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def entry(number: int, version: int = 0) -> StoredImage:
    return StoredImage(f"/pictures/{number:08}.jpg", f"{number:064x}", 1000, version, metadata={"n": version})


class Growing:
    """A store that is written to as `limner index` writes, and what that has cost."""

    def __init__(self, folder: Path, shape: tuple[int, int, int], thumbnail: int) -> None:
        self.files = StoreFiles.create(folder, fingerprint="a" * 64, dim=DIM, run="run", region_shape=shape)
        self.shape, self.thumbnail = shape, thumbnail
        self.image = 2 * math.prod(shape) + thumbnail + 4 * DIM
        self.rng = np.random.default_rng(0)
        self.steps: list[dict[str, Any]] = []

    def add(self, numbers: list[int], version: int = 0) -> None:
        """Add images of these numbers as one call of `index` does."""
        with self.files.changing() as writer:
            for start in range(0, len(numbers), BATCH):
                batch = numbers[start : start + BATCH]
                features = self.rng.standard_normal((len(batch), *self.shape), np.float32).astype(np.float16)
                vectors = self.rng.standard_normal((len(batch), DIM), np.float32)
                thumbnails = [self.rng.bytes(self.thumbnail) for _ in batch]
                writer.add([entry(number, version) for number in batch], vectors, features, thumbnails)
                if writer.due:
                    writer.commit()

    def update(self, numbers: list[int]) -> None:
        """Give images of these numbers new metadata."""
        with self.files.changing() as writer:
            for start in range(0, len(numbers), 1024):
                writer.update([entry(number, 1) for number in numbers[start : start + 1024]])
                writer.commit()

    def delete(self, numbers: list[int]) -> None:
        """Delete images of these numbers."""
        self.files.delete([entry(number).id for number in numbers])

    def compact(self) -> None:
        """Do what `limner store compact` does."""
        with self.files.writing():
            self.files.rows.scrub()

    def measured(self, name: str, images: int, step: Any, *arguments: Any) -> None:
        """Do a step and keep what it cost."""
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before, began, start = written(), time.perf_counter(), resident("VmRSS")
        step(*arguments)
        gone = time.perf_counter() - began
        row = {
            "step": name,
            "images": images,
            "brought_mb": round(images * self.image / 1e6, 1),
            "written_mb": round((written() - before) / 1e6, 1),
            "kept_mb": round(size_of(self.files.folder) / 1e6, 1),
            "peak_mb": round((resident("VmHWM") - start) / 1e6, 1),
            "peak_above_beginning_mb": round((resident("VmHWM") - self.beginning) / 1e6, 1),
            "seconds": round(gone, 1),
        }
        self.steps.append(row)
        print(json.dumps(row), flush=True)

    def begin(self) -> None:
        """Take the memory of now as the beginning, with all imports done."""
        self.rng.standard_normal((BATCH, *self.shape), np.float32).astype(np.float16)
        ctypes.CDLL(None).malloc_trim(0)
        self.beginning = resident("VmRSS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=sized(3.0, 0.05))
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--rows", type=int, default=sized(100_000, 1_000), help="images of the second store")
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made, and deleted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        steps = grown(Path(scratch) / "store", options.gigabytes, options.calls)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        rows = Growing(Path(scratch) / "store", TINY, 0)
        rows.begin()
        for call, part in enumerate(np.array_split(np.arange(options.rows), 10), start=1):
            rows.measured(f"{call * options.rows // 10} rows", len(part), rows.add, part.tolist())
    law = {**of_bytes(steps, options.calls), **of_rows(rows.steps, options.rows)}
    law["peak_mb_at_20_gb"] = max(law["peak_mb_of_bytes"], law["peak_mb_of_rows"])
    print(json.dumps(law, indent=2))
    write("store_growth", {"law": law, "steps": steps, "rows": rows.steps})


def grown(folder: Path, gigabytes: float, calls: int) -> list[dict[str, Any]]:
    """Let a store of large region features grow, change and shrink."""
    growing = Growing(folder, SHAPE, THUMBNAIL)
    growing.begin()
    count = int(gigabytes * 1e9 / growing.image)
    for call, part in enumerate(np.array_split(np.arange(count), calls), start=1):
        growing.measured(f"index {call}", len(part), growing.add, part.tolist())
    tenth = count // 10
    growing.measured("metadata", 0, growing.update, list(range(tenth)))
    growing.measured("changed", tenth, growing.add, list(range(tenth, 2 * tenth)), 1)
    doomed = [number for number in range(count // 2) if number % 10 < 6]
    growing.measured("delete", 0, growing.delete, doomed)
    growing.measured("compact", 0, growing.compact)
    return growing.steps


def of_bytes(steps: list[dict[str, Any]], calls: int) -> dict[str, Any]:
    """Bytes written for those that came, by indexing and over the whole life; the memory that it takes."""
    indexing = steps[:calls]
    brought = sum(row["brought_mb"] for row in indexing)
    ratios = [row["written_mb"] / row["brought_mb"] for row in indexing]
    return {
        "written_for_brought_each_call": [round(ratio, 3) for ratio in ratios],
        "written_for_brought_indexing": round(sum(row["written_mb"] for row in indexing) / brought, 3),
        "written_for_brought_whole_life": round(
            sum(row["written_mb"] for row in steps) / sum(row["brought_mb"] for row in steps), 3
        ),
        "peak_mb_of_bytes": max(row["peak_above_beginning_mb"] for row in steps),
    }


def of_rows(steps: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """The memory that as many rows take as a store of 20 GB has, and the bytes written for those of the rows."""
    written = sum(row["written_mb"] for row in steps)
    return {
        "rows": rows,
        "written_mb_of_rows": round(written, 1),
        "written_for_brought_of_rows": round(written / sum(row["brought_mb"] for row in steps), 3),
        "peak_mb_of_rows": max(row["peak_above_beginning_mb"] for row in steps),
    }


if __name__ == "__main__":
    main()

"""A store that is killed again and again: is every picture in it once, and does a reader see whole batches only?

    python -m benchmarks.killed_store RUN PICTURES [--kills 5]

`limner index` of the pictures is ended by SIGKILL at as many moments, spread over the work, and started again each
time. A reader asks for the store's rows all the while. Then a tenth of the pictures is deleted and another tenth
replaced by other bytes, by commands that are killed as well. At the end `limner store verify --hashes` reads
everything. The exit code is 1 where anything is not as it should be.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import RESULTS, machine
from limner.errors import StoreError
from limner.search.find_pictures import find_pictures
from limner.search.store_files import StoreFiles

BATCH = 64


class Reader(threading.Thread):
    """Asks for the rows of a store all the while: `states` are the counts seen, `wrong` what was not whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.states: list[int] = []
        self.wrong: list[str] = []
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(0.05):
            try:
                snapshot = StoreFiles.open(self.folder).snapshot()
            except StoreError as error:
                if "no such store" not in str(error) and "not a store" not in str(error):
                    self.wrong.append(str(error))
                continue
            if len(set(snapshot.keys)) != len(snapshot.keys):
                self.wrong.append(f"{len(snapshot.keys)} rows, some of them twice")
            if not np.allclose(np.linalg.norm(snapshot.matrix, axis=1), 1, atol=1e-3):
                self.wrong.append("a vector that is not of length 1")
            if not self.states or self.states[-1] != len(snapshot.keys):
                self.states.append(len(snapshot.keys))

    def stop(self) -> None:
        self._ends.set()
        self.join()


def limner(*command: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "limner", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def killed(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Kill it after some time; whether it had not ended by itself."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def killed_at(process: "subprocess.Popen[bytes]", folder: Path, rows: int) -> bool:
    """Kill it once the store has so many rows; whether it had not ended by itself."""
    while process.poll() is None:
        try:
            if len(StoreFiles.open(folder)) >= rows:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return True
        except StoreError:
            pass
        time.sleep(0.02)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    complaints: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder, store = Path(scratch) / "pictures", Path(scratch) / "store"
        folder.mkdir()
        for path in find_pictures([options.pictures])[0]:
            shutil.copyfile(path, folder / Path(path).name)
        names = sorted(path.name for path in folder.iterdir())
        index = ("index", options.run, store, folder, "--batch", BATCH, "--cpu")
        began = time.perf_counter()
        reader = Reader(store)
        reader.start()
        kills = 0
        for kill in range(options.kills):
            kills += killed_at(limner(*index), store, round(len(names) * (kill + 0.5) / options.kills))
        limner(*index).wait()
        reader.stop()
        seconds = time.perf_counter() - began
        complaints += reader.wrong
        complaints += [
            f"a reader saw {count} pictures"
            for count in reader.states
            if count % BATCH and count != len(names)
        ]
        if reader.states != sorted(reader.states):
            complaints.append(f"pictures went while they were added: {reader.states}")
        if len(StoreFiles.open(store)) != len(names):
            complaints.append(f"{len(StoreFiles.open(store))} of {len(names)} pictures")

        doomed, changed = names[::10], names[5::10]
        for seconds_left in (0.5, 1.0, 1.5, 2.0, None):
            deletion = limner("store", "delete", store, *(folder / name for name in doomed))
            if seconds_left is None or not killed(deletion, seconds_left):
                deletion.wait()
                break
        for name in doomed:
            (folder / name).unlink()
        for number, name in enumerate(changed):
            shutil.copyfile(folder / names[(10 * number + 7) % len(names)], folder / name)
        kills += killed_at_change(limner(*index), store, len(changed) // 2, names, folder)
        limner(*index).wait()
        left = {Path(path).name for path in StoreFiles.open(store).entries()}
        if left != set(names) - set(doomed):
            complaints.append(f"{len(left)} pictures after deletes, expected {len(names) - len(doomed)}")
        verified = subprocess.run(
            [sys.executable, "-m", "limner", "store", "verify", str(store), "--hashes", "--json"],
            capture_output=True,
            check=False,
        )
        report = json.loads(verified.stdout)
        if verified.returncode or report["found"]:
            complaints.append(f"verify: {report}")
    text = json.dumps(
        {
            "pictures": len(names),
            "batch": BATCH,
            "kills": kills,
            "states_seen": len(reader.states),
            "seconds_with_kills": round(seconds, 1),
            "deleted": len(doomed),
            "updated": len(changed),
            "verified": report,
            "complaints": complaints,
            "machine": machine(),
        },
        indent=2,
    )
    (RESULTS / "killed_store.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if complaints else 0


def killed_at_change(
    process: "subprocess.Popen[bytes]", store: Path, wanted: int, names: list[str], folder: Path
) -> bool:
    """Kill an update once so many changed pictures are written; whether it had not ended by itself."""
    before = {path: entry.sha256 for path, entry in StoreFiles.open(store).entries().items()}
    while process.poll() is None:
        now = StoreFiles.open(store).entries()
        if sum(entry.sha256 != before.get(path) for path, entry in now.items()) >= wanted:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main())

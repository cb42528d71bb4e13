"""Reads what can be read of a damaged LanceDB table, in processes of its own: some damage ends them with a signal.

    python -m limner.search.salvage FOLDER TABLE OUT FIRST SIZE

writes all rows from number FIRST on to the Arrow file OUT, SIZE at a time, and after each part the number of the next
row to OUT.next. `salvaged` starts it, and goes on behind rows that it died of.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from limner.search.lancedb_import import lancedb

SALVAGE = ".salvage-"
"""Beginning of the name of the folder that it works in, below the store's."""

_SIZE = 256
"""Rows that are read at once, as long as nothing is wrong with them."""

_SECONDS = 600
"""Seconds that one process may take; damaged lengths can make LanceDB read for ever."""


def salvaged(store: Path, table: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a damaged table that can be read, of its newest version that can be opened.

    The files themselves are left alone. Rows may still be damaged: compare their digests.
    """
    # beside the table, so that its files can be linked; links, since older versions are tried by removing newer ones
    with tempfile.TemporaryDirectory(dir=store, prefix=SALVAGE) as scratch:
        copy = Path(scratch) / f"{table}.lance"
        _link(store / f"{table}.lance", copy)
        out = Path(scratch) / "rows.arrow"
        while (manifests := sorted((copy / "_versions").glob("*.manifest"))) and not _opens(copy):
            # the newest stands first
            manifests[0].unlink()
        if manifests:
            yield from _parts(copy, out, schema)


def _parts(copy: Path, out: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    first, size, count = 0, _SIZE, _number(copy, "count")
    while count is not None and first < count:
        _run(copy, out, str(first), str(size))
        yield from _written(out, schema)
        reached = _next(out)
        if reached is None or reached == first:
            # died in the first part: smaller ones, and past a single row
            first, size = (first + 1, _SIZE) if size == 1 else (first, size // 4)
        else:
            first = reached
        for file in (out, out.with_suffix(".next")):
            file.unlink(missing_ok=True)


def _written(out: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    # a file that was cut off by a signal gives what is whole of it
    with suppress(OSError, pa.ArrowInvalid), pa.OSFile(str(out)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            if batch.schema.equals(schema):
                yield pa.Table.from_batches([batch])


def _next(out: Path) -> int | None:
    try:
        return int(out.with_suffix(".next").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _opens(copy: Path) -> bool:
    return _number(copy, "count") is not None


def _number(copy: Path, command: str) -> int | None:
    done = _run(copy, copy.parent / "none", command, "0")
    try:
        return int(done)
    except ValueError:
        return None


def _run(copy: Path, out: Path, first: str, size: str) -> str:
    command = [
        sys.executable,
        "-m",
        "limner.search.salvage",
        str(copy.parent),
        copy.stem,
        str(out),
        first,
        size,
    ]
    # where this limner lies, which need not be installed
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _link(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and path.name != "latest_version_hint.json":
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(path)


def main(folder: str, name: str, out: str, first: str, size: str) -> None:
    """Read rows of a table into a file, or print their number; see above."""
    table: Any = lancedb().connect(folder).open_table(name)
    count = int(table.count_rows())
    if first == "count":
        sys.stdout.write(str(count))
        return
    done = Path(out).with_suffix(".next")
    with pa.OSFile(out, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        for start in range(int(first), count, int(size)):
            rows = table.take_offsets(list(range(start, min(start + int(size), count)))).to_arrow()
            writer.write_table(rows.select(table.schema.names).cast(table.schema))
            file.flush()
            done.write_text(str(min(start + int(size), count)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A reader: a folder of images with `captions.tsv`, three columns: split, file, sentence."""

from pathlib import Path

from limner import Dataset, Record
from limner.errors import DataError


def read_tab_lines(path: Path, source: str) -> Dataset:
    """Read the folder, or the file itself; several lines of one file are several sentences of one image.

    `path` exists, `source` is what the user typed. A reader opens no image: `limner data check` does.
    """
    file = path / "captions.tsv" if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"{file}: no such file; a line of it is SPLIT, FILE and SENTENCE with tabs between them"
        )
    sentences: dict[tuple[str, str], list[str]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        parts = line.split("\t")
        if len(parts) != 3:
            raise DataError(
                f"{file}: line {number}: expected SPLIT, FILE and SENTENCE, got {len(parts)} parts"
            )
        sentences.setdefault((parts[0], parts[1]), []).append(parts[2])
    records = [
        Record(file.parent / name, tuple(said), group=name, split=split)
        for (split, name), said in sentences.items()
    ]
    return Dataset(source, "image", tuple(records))

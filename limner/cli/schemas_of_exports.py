"""The models of what `limner export` and `limner site` print with `--json`."""

from pathlib import Path

from pydantic import JsonValue

from limner.cli.schemas import Result


class ExportedRun(Result):
    """The result of `limner export`."""

    folder: Path
    """The folder that was written."""
    format: str
    """Its format."""
    report: dict[str, JsonValue] | None
    """The content of its `export-report.json`; None for sentence-transformers, which holds the run itself."""


class WrittenSite(Result):
    """The result of `limner site`."""

    folder: Path
    """The folder that was written."""
    pictures: int
    """Pictures in it."""
    left_out: int
    """Pictures of the store that are not in it, as no thumbnail of them can be had."""
    without_full: int
    """Pictures that have a thumbnail alone where full pictures were asked for: their file is gone or has changed."""
    bytes: int
    """Size of the folder."""
    picture_bytes: int
    """Size of its pictures."""
    vector_bytes: int
    """Size of its vectors."""
    tower: str
    """Kind of its text tower: int8, int8-tables, fp16 or fp32."""
    tower_bytes: int
    """Size of the text tower."""
    library_bytes: int
    """Size of the libraries."""
    sentences: int
    """Sentences by which the tower was chosen."""
    same: dict[str, float]
    """For each kind of tower that was tried, the share of them with the model's own first ten, in its order."""
    reranks: bool
    """True if a server of this store re-ranks, which the page does not."""

"""The model of `limner export`'s `--json` output."""

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

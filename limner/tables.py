"""Tables of hits: by pyarrow for programs, as text for people."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from limner.errors import SettingsError, install_hint
from limner.one_line import one_line

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    *("rank", "score", "id", "name", "path", "identity", "taken"),
    *("confidence", "probability", "group"),
)
"""Columns of every row, before those of its metadata."""


def require_pyarrow(what: str) -> None:
    """Raise `SettingsError` for what needs pyarrow if it is not installed."""
    try:
        import pyarrow  # noqa: F401 - an extra
    except ImportError:
        raise SettingsError(f"{what} needs pyarrow: {install_hint('parquet')}") from None


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> "pa.Table":
    """Make a pyarrow table of rows; columns of mixed kinds become JSON text. Raises `SettingsError` without pyarrow."""
    require_pyarrow("a table of hits")
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int64()
    # given, not inferred: a column without any value would have no type, and two answers no common schema
    kinds = (whole, number, text, text, text, text, pa.timestamp("us"), number, number, whole)
    columns = {
        name: pa.array([row[name] for row in rows], kind) for name, kind in zip(COLUMNS, kinds, strict=True)
    }
    for name in rows[0] if rows else ():
        if name not in columns:
            values = [row[name] for row in rows]
            try:
                columns[name] = pa.array(values)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                # pyarrow refuses a column of "3" and 3; as JSON text both can still be told apart
                columns[name] = pa.array([None if value is None else json.dumps(value) for value in values])
    return pa.table(columns)


def text_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as a table of text; keys and columns without any value are left out."""
    if not rows:
        return "(no hits)"
    names = [name for name in rows[0] if name != "id" and any(row[name] not in (None, "") for row in rows)]
    # a path ends in the name
    if "path" in names:
        names.remove("name")
    lines = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # a line break in a value would tear its row apart
    return f"{value:.3f}" if isinstance(value, float) else one_line(str(value))

"""How figures look, and how they are written: light, with colours that the colour-blind tell apart."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from limner.errors import SettingsError, install_hint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7"
"""From the palette of Okabe and Ito (2008)."""
# Red comes last: in other figures it means "wrong".
LINES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
INK, FAINT = "#1c2026", "#6e7680"

P = ParamSpec("P")

DIRECTIONS = {"image_to_text": "image → text", "text_to_image": "text → image"}
"""How figures call the directions of a report."""

SUFFIXES = (".png", ".svg", ".pdf")
"""The forms that a figure is written in."""

_DOTS = 160
"""Dots an inch of a PNG."""

_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    # Else the grid is drawn across bars.
    "axes.axisbelow": True,
    "text.parse_math": False,  # Captions hold dollars, which would begin a formula.
    # Text stays text, which can be searched and has the reader's font.
    "svg.fonttype": "none",
    # Else ids in an SVG are random, and no two files of one figure are equal.
    "svg.hashsalt": "limner",
}


def styled(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """Let a function draw in our style. It raises `SettingsError` where matplotlib is not installed."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        try:
            # Here, since matplotlib is an extra and takes long to import.
            from matplotlib import rc_context
        except ImportError:
            raise SettingsError(f"figures need matplotlib: {install_hint('figures')}") from None
        # A context: a notebook's own style is as it was afterwards.
        with rc_context(_STYLE):
            return draw(*args, **kwargs)

    return inside


def panels(
    columns: int = 1,
    rows: int = 1,
    *,
    width: float = 3.4,
    height: float = 2.6,
    grid: bool = True,
    shares: Sequence[float] | None = None,
) -> "tuple[Figure, list[Axes]]":
    """A figure with `rows` × `columns` panels of so many inches each; the panels row by row.

    `shares` are of the width, one a column, where columns differ. To be called by functions that are `styled`.
    """
    # Not pyplot, which picks a window system and keeps every figure until it is closed.
    from matplotlib.figure import Figure

    # "constrained" is what makes room for a legend outside of the panels.
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    drawn = figure.subplots(rows, columns, squeeze=False, width_ratios=shares).ravel().tolist()
    for axes in drawn:
        axes.grid(grid)
    return figure, drawn


def check_path(path: Path) -> Path:
    """The path, where a figure can be written there: before the work that the figure takes.

    Raises `SettingsError` for an ending of no form known here and for a folder that is not there.
    """
    if not path.parent.is_dir():
        raise SettingsError(f"{path.parent}: there is no such folder to write a figure to")
    if path.suffix and path.suffix.lower() not in SUFFIXES:
        raise SettingsError(
            f"{path.name}: a figure ends in {', '.join(SUFFIXES)}, or in nothing for .png and .svg"
        )
    return path


def write_figure(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure to `path`; without an ending, as .png and as .svg. Returns the files.

    The same figure gives the same bytes. Raises `SettingsError` as `check_path`.
    """
    from matplotlib import rc_context

    check_path(path)
    files = [path] if path.suffix else [path.with_suffix(suffix) for suffix in SUFFIXES[:2]]
    # Again: settings such as `svg.hashsalt` are read when a file is written.
    with rc_context(_STYLE):
        for file in files:
            vector = file.suffix.lower() != ".png"
            # SVG and PDF hold the time of writing, each under another name; a PNG has none.
            dates: dict[str, Any] = (
                {"Date": None} if file.suffix.lower() == ".svg" else {"CreationDate": None}
            )
            # White, because a transparent figure is unreadable on a dark page.
            figure.savefig(file, dpi=_DOTS, facecolor="white", metadata=dates if vector else None)
    return files


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Short names of several files that tell them apart: the last parts of their paths, as few as it takes."""
    # Absolute, so that "." has a name, too.
    parts = [path.absolute().with_suffix("").parts for path in paths]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def legend(axes: "Axes") -> None:
    """The legend of what was drawn; matplotlib would leave out names that begin with an underscore."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, [f" {name}" if name.startswith("_") else name for name in labels], fontsize=8)

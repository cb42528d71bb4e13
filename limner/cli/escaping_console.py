"""rich's console, which escapes what it draws: names stand in tables, bars and titles, too.

A file of its own, because rich is imported only where it draws.
"""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from limner.one_line import one_line


class EscapingConsole(Console):
    """A console on which only rich gives commands to the terminal; line breaks in cells stay in their cells."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape the text of each piece; the commands of rich's own are not text."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else piece._replace(text=_escaped(piece.text))


def _escaped(text: str) -> str:
    return "\n".join(map(one_line, text.split("\n")))

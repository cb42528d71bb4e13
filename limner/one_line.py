"""Names, captions and facts as text for people: on one line, and without a command of a terminal.

A file of its own below all that print or log: the command line, tables of hits, and the server's log.
"""

import unicodedata

_KINDS = ("Cc", "Cs", "Zl", "Zp")


def one_line(text: str) -> str:
    """A line that holds the name of a file: control characters in it, a terminal's commands too, as Python spells them.

    Other letters stay, those that only join or space others among them.

    >>> one_line("a\\nb\\x1b[31m.jpg")
    'a\\\\nb\\\\x1b[31m.jpg'
    """
    # nearly all text has none, and a table has thousands of cells
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in _KINDS else letter
        for letter in text
    )

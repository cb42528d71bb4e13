"""The terms that a dataset's own folder states, in `terms.json`; a licence file counts for pictures of one's own.

{"name": "Shop 2026", "licence": "consent of everybody shown, until 2027", "people": "yes"}
"""

from pathlib import Path

from limner.data.readers.parsing import parse_json, shown
from limner.data.terms import OWN, TERMS, TermsOfUse
from limner.errors import DataError, SettingsError
from limner.text_files import read_text

FILE = "terms.json"
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "LICENCE.md")
"""Names of a licence file."""

_LONGEST = 200


def terms_of(format_name: str, path: Path) -> TermsOfUse:
    """The terms of a dataset by its format, and the folder or annotation file that it was read from.

    `terms.json` beside the annotation file goes first. Then come limner's own table for a published format, and for
    others the first line of a licence file. Raises `DataError` for a `terms.json` that cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / FILE).is_file():
        return _stated(folder / FILE)
    # a copy of a published set may hold the licence of somebody's code, as one of Flickr8k's did
    if format_name in TERMS and format_name not in OWN:
        return TERMS[format_name]
    own = TERMS[format_name if format_name in OWN else "folder"]
    for name in LICENCES:
        if (folder / name).is_file():
            text = read_text(folder / name, may_be_empty=True)
            first = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
            if first:
                return own.replace(
                    licence=first if len(first) <= _LONGEST else f"{first[: _LONGEST - 1]}…",
                    checked=f"the first line of {name}, as its owner states it",
                )
    return own


def _stated(file: Path) -> TermsOfUse:
    values = parse_json(read_text(file), file)
    if not isinstance(values, dict):
        raise DataError(f"{file}: an object with 'licence' and the like was expected, got {shown(values)}")
    try:
        return TermsOfUse.parse(
            {"name": "Your own pictures", "checked": f"{FILE}, as its owner states it", **values}
        )
    except SettingsError as error:
        raise DataError(f"{file}: {error}") from None

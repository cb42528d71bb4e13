"""Libraries of npm for the tests: real ones where this machine has them, and drawn ones."""

import base64
import hashlib
import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

from limner.site.libraries import RUNTIME, TOKENIZERS, Library

# the user's own cache, which the session's LIMNER_CACHE hides
PLACES = [
    Path(os.environ.get("LIMNER_NPM", "/nowhere")),
    Path(os.environ.get("LIMNER_CACHE", Path.home() / ".cache/limner")) / "npm",
]


def real(library: Library) -> Path | None:
    """The archive of a library in $LIMNER_NPM or in the cache; None if there is none."""
    return next((place / library.archive for place in PLACES if (place / library.archive).is_file()), None)


def drawn(folder: Path, library: Library) -> tuple[Library, Path]:
    """An archive with the same names and other content, and the library that it is."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in (*library.files, "LICENSE"):
            content = f"{library.name} {name}".encode()
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path = folder / library.archive
    path.write_bytes(file.getvalue())
    digest = base64.b64encode(hashlib.sha512(file.getvalue()).digest()).decode()
    return replace(library, integrity=digest), path


REAL_RUNTIME, REAL_TOKENIZERS = real(RUNTIME), real(TOKENIZERS)

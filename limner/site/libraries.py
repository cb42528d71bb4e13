"""The JavaScript libraries of a site, from the registry of npm: pinned, checked and kept in limner's cache."""

import base64
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from limner.data.image_digests import cache_folder
from limner.durable import write_whole
from limner.errors import SettingsError

_REGISTRY = "https://registry.npmjs.org/"
"""The registry that npm asks unless it is told of another."""

_LONGEST_WAIT = 60
"""Seconds without a byte after which a download is given up."""

_MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True)
class Library:
    """A version of a package of npm, and which of its files a site gets.

    - `integrity`: SHA-512 in base64, as npm's lock files have it.
    - `files`: name in the package to name in the site.
    - `licence`: its terms, or the name of the file in the package that holds them.
    """

    name: str
    version: str
    integrity: str
    files: dict[str, str]
    licence: str

    @property
    def archive(self) -> str:
        """Name of the file that the registry has, and that `npm pack` writes."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def address(self) -> str:
        """Where the registry has it."""
        return f"{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"


# by names of our own: hosts that do not know .mjs would serve a module that no browser takes
RUNTIME = Library(
    "onnxruntime-web",
    "1.30.0",
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    {
        "dist/ort.wasm.min.mjs": "ort.js",
        "dist/ort-wasm-simd-threaded.mjs": "ort-wasm.js",
        "dist/ort-wasm-simd-threaded.wasm": "ort-wasm.wasm",
    },
    f"MIT License\n\nCopyright (c) Microsoft Corporation\n\n{_MIT}",
)
TOKENIZERS = Library(
    "@huggingface/tokenizers",
    "0.2.0",
    "LidMHe1FpcSYH4vcSjXooda34pC0M8m1gmDOv7SQi6Iv+ib1zX7J3sHBCC9/3FPCkn2k1b55FneVqMRxrr99pg==",
    {"dist/tokenizers.min.mjs": "tokenizers.js"},
    "LICENSE",
)


def library_files(library: Library, given: Sequence[Path] = ()) -> tuple[dict[str, bytes], str]:
    """The files of a library by their names in a site, and its licence.

    Taken from an archive that is `given`, else from the cache, else from the registry that npm is set to. Raises
    `SettingsError` if none has it.
    """
    content = _given(library, given) or _kept(library) or _fetched(library)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            files = {name: _read(archive, inside) for inside, name in library.files.items()}
            terms = library.licence
            if "\n" not in terms:
                terms = _read(archive, terms).decode()
    except (tarfile.TarError, KeyError, OSError) as error:
        raise SettingsError(f"{library.archive}: cannot be unpacked ({error})") from None
    return files, f"{library.name} {library.version}\n\n{terms.strip()}\n"


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(f"package/{name}")
    if member is None:
        raise KeyError(name)
    return member.read()


def _matches(library: Library, content: bytes) -> bool:
    return base64.b64encode(hashlib.sha512(content).digest()).decode() == library.integrity


def _given(library: Library, given: Sequence[Path]) -> bytes | None:
    for path in given:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SettingsError(f"--runtime {path}: cannot be read ({error.strerror})") from None
        if _matches(library, content):
            return content
        # a file of another library is looked at by that one
        if path.name.startswith(library.archive[: -len(f"{library.version}.tgz")]):
            raise SettingsError(
                f"--runtime {path}: not {library.name} {library.version} as it was released; get it with `npm pack "
                f"{library.name}@{library.version}`"
            )
    return None


def _cached(library: Library) -> Path:
    return cache_folder() / "npm" / library.archive


def _kept(library: Library) -> bytes | None:
    try:
        content = _cached(library).read_bytes()
    except OSError:
        return None
    return content if _matches(library, content) else None


def _fetched(library: Library) -> bytes:
    address = f"{registry()}{library.address}"
    instead = f"`npm pack {library.name}@{library.version}` gets it elsewhere; name its file with --runtime"
    try:
        with urllib.request.urlopen(address, timeout=_LONGEST_WAIT) as answer:
            content: bytes = answer.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SettingsError(
            f"{library.name} {library.version}: the registry of npm does not hand it out ({reason}); {instead}"
        ) from None
    if not _matches(library, content):
        raise SettingsError(
            f"{library.name} {library.version}: what the registry of npm hands out is not what was released; {instead}"
        )
    target = _cached(library)
    # on a disk that refuses the next site fetches it again
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content)
    return content


def registry() -> str:
    """The address of npm's registry, with a slash: as the environment or npm says, else npm's own."""
    told = next((value for name, value in os.environ.items() if name.lower() == "npm_config_registry"), "")
    if not told and (npm := shutil.which("npm")) is not None:
        try:
            asked = subprocess.run(
                [npm, "config", "get", "registry"], capture_output=True, text=True, timeout=30, check=True
            )
            told = asked.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            told = ""
    # "undefined" is npm's word for nothing; and a file:// would be read as an address, too
    found = told if re.match(r"https?://", told) else _REGISTRY
    return f"{found.rstrip('/')}/"

"""The generations of a store's tables: which of them counts, and which may be removed.

    STORE/pictures-2.lance, STORE/pictures-2.commits.json   a table of generation 2
    STORE/.generation-2.partial                             the mark of a generation that `store.json` does not name yet

The mark is written before the tables of a new generation and removed after `store.json` has named it. So whatever is
newer than `store.json` says and has a mark was never finished, and the next writer removes it. What is newer and has
none was in use: somebody has put back an older `store.json`. Then nothing is read, and nothing is removed.

Nor is anything removed for a `store.json` whose own tables are not there: it is that of another store or copy, or its
tables are lost, and those of another generation may be all that there is.
"""

import re
from pathlib import Path

from limner.errors import StoreError
from limner.search.commits import ENDING
from limner.search.manifest import FILE, PARTIAL, StoreManifest, read_manifest
from limner.search.salvage import SALVAGE
from limner.search.segments import sync_folder
from limner.search.store_path import StorePath, reached, remove

KINDS = ("pictures", "sentences")
"""Kinds of tables."""

_TABLE = re.compile(r"\.?(?:pictures|sentences)(?:-(\d+))?\.(?:lance|commits\.json)(?:\.partial)?")
_MARK = re.compile(r"\.generation-(\d+)\.partial")


def begin(folder: StorePath, generation: int) -> None:
    """Mark a generation as unfinished, before any of its tables is written."""
    mark = folder / f".generation-{generation}.partial"
    with reached(folder):
        mark.write_text("", encoding="utf-8")
    if isinstance(folder, Path):
        # a power cut must not take the mark and leave the tables
        sync_folder(folder)


def newest_manifest(folder: StorePath) -> StoreManifest:
    """Read `store.json`. Raises `StoreError` as `read_manifest` does, and for one that is older than the tables."""
    while True:
        manifest = read_manifest(folder)
        # looked at twice: between the look at a table and that at its mark both may have been removed
        found = newer(folder, manifest.generation) & newer(folder, manifest.generation)
        if not found:
            return manifest
        # a generation that has taken over meanwhile has lost its mark, and the manifest is another
        if manifest == read_manifest(folder):
            raise _older(folder, manifest, max(found))


def newer(folder: StorePath, generation: int) -> set[int]:
    """Later generations that were finished."""
    found = {number for number in map(_number, _names(folder)) if number is not None and number > generation}
    with reached(folder, "read"):
        return {number for number in found if not (folder / f".generation-{number}.partial").exists()}


def earlier_tables(folder: StorePath, manifest: StoreManifest) -> list[str]:
    """Names of the tables of earlier generations: of a writer that ended before it had removed them."""
    found = {name: _number(name) for name in _names(folder) if name.endswith(".lance")}
    return sorted(
        name for name, number in found.items() if number is not None and number < manifest.generation
    )


def remove_unfinished(folder: StorePath, manifest: StoreManifest) -> None:
    """Remove later generations, and files that were never finished; earlier generations stay.

    Raises `StoreError` as `remove_others` does.
    """
    _remove(folder, manifest, earlier=False)


def remove_others(folder: StorePath, manifest: StoreManifest) -> None:
    """Remove tables of other generations, and files that were never finished.

    Raises `StoreError`, and removes nothing, if there is a later generation that was finished, or an earlier one while
    the tables of this one are not there.
    """
    _remove(folder, manifest, earlier=True)


def _remove(folder: StorePath, manifest: StoreManifest, *, earlier: bool) -> None:
    if found := newer(folder, manifest.generation):
        raise _older(folder, manifest, max(found))
    _expect_own_tables(folder, manifest)
    own = {manifest.table(kind) + ending for kind in KINDS for ending in (".lance", ENDING)}
    names = _names(folder)
    marks = {name: int(match[1]) for name in names if (match := _MARK.fullmatch(name))}
    named = [name for name, number in marks.items() if number <= manifest.generation]
    unfinished = [name for name in names if name.startswith((PARTIAL, SALVAGE))]
    tables = [name for name in names if _TABLE.fullmatch(name) and name not in own]
    if not earlier:
        # nor does this generation lose its mark, by which one that was killed while it took over is known
        named = []
        tables = [name for name in tables if (_number(name) or 0) > manifest.generation]
    given_up = sorted(name for name, number in marks.items() if number > manifest.generation)
    # the generation that has taken over loses its mark first, so that an older manifest is found from now on. One that
    # is given up loses it last, or a kill in between would leave what looks finished
    for some in (named, [*unfinished, *tables], given_up):
        with reached(folder):
            for name in some:
                remove(folder / name)
            if some and marks and isinstance(folder, Path):
                sync_folder(folder)


def of_newest(folder: StorePath, manifest: StoreManifest) -> StoreManifest | None:
    """The manifest with the later generation that was finished; None where no later one was.

    Raises `StoreError` where nobody can tell which generation is the store's: the one that the manifest names is there
    as well, or several later ones are, or the later one lacks a table.
    """
    found = newer(folder, manifest.generation)
    if not found:
        return None
    newest = manifest.model_copy(update={"generation": max(found), "calibration": ()})
    names = _names(folder)
    own = sorted(name for name in names if _number(name) == manifest.generation)
    if own or len(found) > 1 or not _is_whole(folder, newest):
        later = sorted(name for name in names if _number(name) in found)
        raise StoreError(
            f"{folder}: {FILE} names generation {manifest.generation} ({', '.join(own) or 'which is not there'}), and "
            f"there is {', '.join(later)}; nothing was changed. Move away the files of a generation that are not the "
            f"store's, or put back the {FILE} and all files that belong together"
        )
    return newest


def _expect_own_tables(folder: StorePath, manifest: StoreManifest) -> None:
    names = _names(folder)
    if f".generation-{manifest.generation}.partial" in names:
        # it is just taking over, perhaps without a table: a repair may have been told to give all rows up
        return
    earlier = sorted(name for name in names if (_number(name) or manifest.generation) < manifest.generation)
    if earlier and not _is_whole(folder, manifest):
        raise StoreError(
            f"{folder}: {FILE} names generation {manifest.generation}, whose tables are not all there, and there is "
            f"{', '.join(earlier)}; nothing was removed. Put back the {FILE} that belongs to these files"
        )


def _is_whole(folder: StorePath, manifest: StoreManifest) -> bool:
    """True if each table that the manifest says was begun is there, with its record, and at least one was."""
    with reached(folder, "read"):
        return bool(manifest.begun) and all(
            (folder / f"{manifest.table(kind)}{ENDING}").exists()
            and (versions := folder / f"{manifest.table(kind)}.lance" / "_versions").is_dir()
            and any(one.name.endswith(".manifest") for one in versions.iterdir())
            for kind in manifest.begun
        )


def _number(name: str) -> int | None:
    """Generation of a table's file by its name; None for other files."""
    match = _TABLE.fullmatch(name)
    # with a dot begins what a killed writer left of a file
    return int(match[1]) if match and match[1] and not name.startswith(".") else None


def _names(folder: StorePath) -> list[str]:
    with reached(folder, "read"):
        return [path.name for path in folder.iterdir()]


def _older(folder: StorePath, manifest: StoreManifest, newest: int) -> StoreError:
    return StoreError(
        f"{folder}: {FILE} is older than the tables (it names generation {manifest.generation}, there is {newest}); "
        f"put back the newer {FILE}, or repair the store with `limner store repair`"
    )

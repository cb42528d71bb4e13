"""Whole files that are gone, of another store or run, or of an earlier day: no answer changes without an error.

Every file of a store and of its run in turn, and every table with its record. Random bytes are in `test_mutations`.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import limner
from limner.errors import LimnerError, StoreError
from limner.inference.calibration import write_calibration
from limner.inference.calibration_file import FILE
from limner.search.calibration import write_store_calibration
from limner.search.erase import erase
from limner.search.index import index_pictures
from limner.search.kept_model import keep
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store_files import StoreFiles, store_for
from limner.search.verify import verify
from tests.search.fake import draw
from tests.search.test_mutations import RUN, calibration, read, reader

__all__ = ["reader"]

# without them nothing is lost: probabilities of a run, LanceDB's history, locks
FREE = {f"run/{FILE}", f"store/model/{FILE}", "store/.store.lock"}


@dataclass(frozen=True)
class Stores:
    """A store with its run; the same earlier; and another of the same model with its run."""

    whole: Path
    earlier: Path
    other: Path


def build(folder: Path, first: int, offset: float, earlier: Path | None = None) -> Path:
    """A store of pictures with its own numbers and its run, copied once on the way."""
    run = folder / "run"
    shutil.copytree(RUN, run)
    model = limner.load(run, device="cpu", precision="fp32")
    files = store_for(model, run, folder / "store", regions=True, keep=lambda place: keep(model, place))
    pictures = [draw(folder / "pictures" / f"{number}.png", number) for number in range(first, first + 6)]
    index_pictures(model, files, pictures[:3], metadata={str(path): {"camera": 7} for path in pictures[:3]})
    SentenceTable(files).index(model, [Sentence("a red square")])
    write_calibration(run, calibration(model.fingerprint, "val", offset - 1))
    write_store_calibration(files, calibration(model.fingerprint, "store", offset))
    if earlier is not None:
        shutil.copytree(folder, earlier)
    # a new generation, new commits of each table, and another calibration
    erase(files, next(iter(files.entries().values())).id)
    index_pictures(model, files, pictures[3:], metadata={str(path): {"camera": 7} for path in pictures[3:]})
    SentenceTable(files).index(model, [Sentence("blue"), Sentence("a green square on white")])
    write_store_calibration(files, calibration(model.fingerprint, "store", offset - 0.2))
    return folder


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("exchanges")
    whole = build(folder / "whole", 0, -1.5, folder / "earlier")
    return Stores(whole, folder / "earlier", build(folder / "other", 20, -3))


def names(folder: Path) -> list[str]:
    """All files of a store and its run, and each table with its record."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "pictures"]
    tables = [path.with_suffix("") for path in (folder / "store").glob("*.lance")]
    return sorted(str(path.relative_to(folder)) for path in [*files, *tables])


def places(folder: Path, name: str) -> list[Path]:
    """The file of a name, or a table and its record."""
    place = folder / name
    return [place.with_suffix(end) for end in (".lance", ".commits.json")] if is_table(name) else [place]


def put(source: Path, target: Path) -> None:
    drop(target)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def drop(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fitting(folder: Path, name: str) -> str | None:
    """The name of the same kind of file in another store, where chance gives the names."""
    if (folder / name).exists() or (folder / f"{name}.lance").exists():
        return name
    place = folder / name
    # of a table, that of its kind in whatever generation
    found = place.parent.glob(f"{place.name.split('-')[0]}-*.lance" if is_table(name) else f"*{place.suffix}")
    names = sorted(str(path.relative_to(folder)) for path in found)
    return (names[0].removesuffix(".lance") if is_table(name) else names[0]) if names else None


def is_table(name: str) -> bool:
    return Path(name).parent.name == "store" and "." not in Path(name).name


Mutation = Callable[[Stores, Path, str], bool]


def removed(stores: Stores, folder: Path, name: str) -> bool:
    for path in places(folder, name):
        drop(path)
    return name not in FREE


def of_another(stores: Stores, folder: Path, name: str) -> bool:
    return taken(stores.other, folder, name)


def of_an_earlier_day(stores: Stores, folder: Path, name: str) -> bool:
    return taken(stores.earlier, folder, name)


def taken(source: Path, folder: Path, name: str) -> bool:
    there = fitting(source, name)
    if there is None or name in FREE:
        return False
    for old, new in zip(places(source, there), places(folder, name), strict=True):
        put(old, new)
    return True


@pytest.mark.parametrize("mutation", [removed, of_another, of_an_earlier_day])
def test_no_exchange_changes_an_answer(
    stores: Stores, reader: "subprocess.Popen[str]", tmp_path: Path, mutation: Mutation
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(stores.whole, folder)
    right = read(reader, folder)
    assert right.startswith("answer "), right
    assert verify(StoreFiles.open(folder / "store")).sound
    wrong, outcomes = [], {"same": 0, "error": 0}
    for name in names(stores.whole):
        shutil.rmtree(folder)
        shutil.copytree(stores.whole, folder)
        if not mutation(stores, folder, name):
            continue
        found = read(reader, folder)
        outcome = "same" if found == right else found.split(" ", 1)[0]
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome not in ("same", "error"):
            wrong.append(f"{name}: {found[:200]}")
        elif outcome == "error" and not name.startswith("run/"):
            wrong += [f"{name}: sound, but {found}"] if is_sound(folder / "store") else []
    print(json.dumps(outcomes))
    assert not wrong, "\n".join(wrong)
    assert outcomes["error"] >= 5


def is_sound(store: Path) -> bool:
    try:
        return verify(StoreFiles.open(store, check=False)).sound
    except LimnerError:
        # without store.json there is nothing to verify
        return False


def test_tables_of_the_store_in_each_others_place(stores: Stores, tmp_path: Path) -> None:
    """An earlier generation under the name of the present one."""
    store = tmp_path / "store"
    shutil.copytree(stores.whole / "store", store)
    for kind in ("pictures", "sentences"):
        for end in (".lance", ".commits.json"):
            put(stores.earlier / "store" / f"{kind}-1{end}", store / f"{kind}-2{end}")
    with pytest.raises(StoreError, match="of another store or table"):
        StoreFiles.open(store)

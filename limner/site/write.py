"""Writes a store as a folder of static files, whose page answers searches in the browser.

OUT/index.html, page/       the page
OUT/library/                ONNX Runtime for the browser, and for some models Hugging Face's tokenizers; their terms
OUT/site.json               what is in it: the day, the number of pictures, the model, the tower
OUT/pictures.json           names and, unless they are left out, identities and times
OUT/vectors.bin             see `limner.site.vectors`
OUT/text.onnx, tokenizer.json
OUT/thumbnails/000/000123.jpg, and with full pictures OUT/full/000/000123.jpg
"""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from limner.data.images import encoded_anew
from limner.documented import Result
from limner.durable import expect_new, whole_folder
from limner.errors import ChangedPictureError, CheckpointError, ImageError, SettingsError, StoreError
from limner.export.report import drawn_sentences, size_of
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.search.foreign_vectors import foreign_model
from limner.search.image_files import open_unchanged, small_bytes
from limner.search.sentences import SentenceTable
from limner.site.libraries import RUNTIME, TOKENIZERS, library_files
from limner.site.tokens import FILE as TOKENIZER_FILE
from limner.site.tokens import tokenizer_for_page
from limner.site.tower import TowerType, write_text_tower
from limner.site.vectors import SmallVectors
from limner.store.contents import thumbnails
from limner.store.files import StoreFiles
from limner.store.path import StorePath, is_remote, store_path
from limner.store.snapshot import Snapshot

FORMAT = 1
"""Version of the folder's layout."""

_PAGE = Path(__file__).parent / "page"
_OF_SERVER = Path(__file__).parent.parent / "server" / "page"
_SHARED = ("style.css", "theme.js", "elements.js", "language.js", "icon.svg")
"""Files that the server's page has, too."""

_COMPARED = 500
"""Sentences by which the tower is chosen, at most."""

_TOGETHER = 256
_A_FOLDER = 1000
"""Pictures in one folder of thumbnails."""

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and its total."""


class SiteReport(Result):
    """The result of `limner site`."""

    folder: Path
    """The folder that was written."""
    pictures: int
    """Pictures in it."""
    left_out: int
    """Pictures of the store that are not in it, as no thumbnail of them can be had."""
    without_full: int
    """Pictures that have a thumbnail alone where full pictures were asked for: their file is gone or has changed."""
    bytes: int
    """Size of the folder."""
    picture_bytes: int
    """Size of its pictures."""
    vector_bytes: int
    """Size of its vectors."""
    tower: TowerType
    """Kind of its text tower."""
    tower_bytes: int
    """Size of the text tower."""
    library_bytes: int
    """Size of the libraries."""
    sentences: int
    """Sentences by which the tower was chosen."""
    same: dict[str, float]
    """For each kind of tower that was tried, the share of them with the model's own first ten, in its order."""
    reranks: bool
    """True if a server of this store re-ranks, which the page does not."""


def write_site(
    store: str | Path | StorePath,
    out: str | Path,
    *,
    run: str | Path | None = None,
    full_pictures: bool = False,
    facts: bool = True,
    tower: TowerType | None = None,
    runtime: Sequence[Path] = (),
    progress: Progress = lambda what, done, total: None,
    doing: Callable[[str], None] = lambda what: None,
) -> SiteReport:
    """Write a store to a new folder, which appears whole or not at all.

    - `full_pictures`: the pictures themselves, too, written anew without their metadata; else thumbnails alone.
    - `facts`: names of files, identities and times; nothing else of a picture's metadata is ever written.
    - `tower`: see `limner.site.tower.TowerType`; None = the smallest that finds what the model finds.
    - `runtime`: archives of `npm pack`, so that nothing is fetched.

    Raises `SettingsError` for a folder that exists, a store on another machine and libraries that cannot be had,
    `StoreError` for a store that is empty, damaged or without a model that limner can run.
    """
    folder = Path(out)
    expect_new(folder, "the site")
    if is_remote(place := store_path(store)):
        raise SettingsError(f"{store}: a site is made of a store on this machine; copy it here first")
    files = StoreFiles.open(place)
    model = _model(files, run)
    snapshot = files.snapshot()
    if not snapshot.keys:
        raise StoreError(f"{files.folder}: holds no picture; index some first")
    described, tokenizer = tokenizer_for_page(model)
    doing("libraries of the page")
    wanted = [RUNTIME, *([TOKENIZERS] if described["kind"] == "pretrained" else [])]
    libraries = [library_files(library, runtime) for library in wanted]
    with whole_folder(folder) as partial:
        _write_page(partial, libraries)
        (partial / TOKENIZER_FILE).write_bytes(tokenizer)
        rows, without_full = _write_pictures(files, snapshot, partial, full_pictures, progress)
        matrix = np.ascontiguousarray(snapshot.vectors[rows])
        vectors = SmallVectors.of(matrix)
        (partial / "vectors.bin").write_bytes(vectors.to_bytes())
        kind, agreement = write_text_tower(
            model, partial / "text.onnx", matrix, vectors, _sentences(files, model), tower, doing
        )
        reranks = model.reranker is not None and files.region_shape is not None
        _write_json(partial / "pictures.json", _pictures(snapshot, rows, facts))
        _write_json(
            partial / "site.json",
            {
                "format": FORMAT,
                "made": datetime.now(UTC).date().isoformat(),
                "pictures": len(rows),
                "dim": files.dim,
                "system": model.model.settings.system,
                "model": files.fingerprint[:12],
                "tower": kind,
                "full": full_pictures,
                "reranks": reranks,
                "tokenizer": described,
                "bytes": {
                    name: (partial / name).stat().st_size
                    for name in (
                        "vectors.bin",
                        "text.onnx",
                        TOKENIZER_FILE,
                        "pictures.json",
                        "library/ort-wasm.wasm",
                    )
                },
            },
        )
        return SiteReport(
            folder=folder,
            pictures=len(rows),
            left_out=len(snapshot.keys) - len(rows),
            without_full=without_full,
            bytes=size_of(partial),
            picture_bytes=sum(
                size_of(partial / name) for name in ("thumbnails", "full") if (partial / name).is_dir()
            ),
            vector_bytes=(partial / "vectors.bin").stat().st_size,
            tower=kind,
            tower_bytes=(partial / "text.onnx").stat().st_size,
            library_bytes=size_of(partial / "library"),
            sentences=agreement.sentences,
            same=agreement.same,
            reranks=reranks,
        )


def _model(files: StoreFiles, run: str | Path | None) -> TrainedModel:
    if run is None and foreign_model(files) is not None:
        raise StoreError(
            f"{files.folder}: holds vectors of another program, and no model that could read a query in the browser"
        )
    try:
        # on the CPU and in fp32: so a tower is recorded, and so a server answers texts
        model = load_model(run or files.run, device="cpu", precision="fp32")
    except CheckpointError as error:
        raise StoreError(
            f"{files.folder}: the model of this store cannot be loaded: {error}; name it with --run"
        ) from None
    files.check_model(model.fingerprint, model.dim)
    return model


def _sentences(files: StoreFiles, model: TrainedModel) -> list[str]:
    """Sentences of the store, or drawn ones if it has none."""
    told, _ = SentenceTable(files).describing()
    texts = sorted({sentence.text for sentence in told if model.known_words(sentence.text)})
    # a fixed seed: two sites of one store have one tower
    return random.Random(0).sample(texts, min(_COMPARED, len(texts))) or drawn_sentences(model, _COMPARED)


def _write_page(folder: Path, libraries: Sequence[tuple[dict[str, bytes], str]]) -> None:
    page, library = folder / "page", folder / "library"
    page.mkdir()
    library.mkdir()
    for file in _PAGE.iterdir():
        shutil.copyfile(file, folder / file.name if file.name == "index.html" else page / file.name)
    for name in _SHARED:
        shutil.copyfile(_OF_SERVER / name, page / name)
    for files, _ in libraries:
        for name, content in files.items():
            (library / name).write_bytes(content)
    (library / "LICENCES.txt").write_text("\n\n".join(terms for _, terms in libraries), encoding="utf-8")


def _write_pictures(
    files: StoreFiles, snapshot: Snapshot, folder: Path, full: bool, progress: Progress
) -> tuple[list[int], int]:
    """Write the pictures that can be had, and return their rows and how many have a thumbnail alone."""
    keys = snapshot.keys
    written: list[int] = []
    only_small: set[int] = set()
    for start in range(0, len(keys), _TOGETHER):
        some = keys[start : start + _TOGETHER]
        for row, key, small in zip(
            range(start, start + len(some)), some, thumbnails(files, some), strict=True
        ):
            content = small or _made(files, key)
            if content is None:
                continue
            _write_picture(folder / "thumbnails", row, content)
            written.append(row)
            if full:
                whole = _whole(files, key)
                _write_picture(folder / "full", row, whole or content)
                if whole is None:
                    only_small.add(row)
        progress("pictures", start + len(some), len(keys))
    # what was deleted or erased meanwhile: no copy of it may come out of this
    there = files.snapshot().places
    gone = [row for row in written if keys[row] not in there]
    for row in gone:
        for kind in ("thumbnails", "full"):
            (folder / kind / _place(row)).unlink(missing_ok=True)
    kept = sorted(set(written) - set(gone))
    if not kept:
        raise StoreError(f"{files.folder}: no picture of it can be read any more")
    return kept, len(only_small & set(kept))


def _made(files: StoreFiles, key: str) -> bytes | None:
    stored = files.entry(key)
    try:
        return None if stored is None else small_bytes(stored)
    except (ChangedPictureError, ImageError):
        return None


def _whole(files: StoreFiles, key: str) -> bytes | None:
    """A picture written anew: where it was taken, by which camera and what else its file tells stays behind."""
    stored = files.entry(key)
    if stored is None:
        return None
    try:
        with open_unchanged(stored) as file:
            return encoded_anew(file.read(stored.size))[0]
    except (ChangedPictureError, ImageError):
        return None


def _place(row: int) -> str:
    # by number: a name would tell a folder's words to the host's log, and may hold what an address cannot
    return f"{row // _A_FOLDER:03d}/{row:06d}.jpg"


def _write_picture(folder: Path, row: int, content: bytes) -> None:
    path = folder / _place(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _pictures(snapshot: Snapshot, rows: Sequence[int], facts: bool) -> dict[str, Any]:
    """Columns, a value for each picture: the number in its files' names, and what the page shows of it."""
    columns: dict[str, Any] = {"number": list(rows)}
    if not facts:
        return columns
    items = snapshot.items(np.array(rows, np.int64))
    columns["name"] = [item.name for item in items]
    if any(item.identity is not None for item in items):
        columns["identity"] = [item.identity for item in items]
    if any(item.taken is not None for item in items):
        columns["taken"] = [None if item.taken is None else item.taken.isoformat() for item in items]
    return columns


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")

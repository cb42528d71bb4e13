"""A store and its model as one object, as `limner.open_store` returns it; `limner.index` makes and fills one.

    with limner.open_store("STORE") as store:
        for hit in store.search("a woman in a green coat", k=5, where={"camera": 3}):
            print(hit.rank, hit.score, hit.path)

`limner.client.Client` has the same methods with the same arguments, so that a program may move from one to the other.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from limner.arguments import PATH, expect, expect_call, several
from limner.conditions import Condition
from limner.counted import counted
from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError, StoreError, UnknownPictureError
from limner.export.exported import ExportedModel
from limner.requests import (
    SearchArguments,
    SearchOptions,
    SearchRequest,
    SentencesOptions,
    requests_of,
    where_strings,
)
from limner.search.engine import Engine
from limner.search.find_pictures import coming_back, find_pictures
from limner.search.foreign_vectors import foreign_model
from limner.search.image_files import shown_bytes, small_bytes
from limner.search.index import check_arguments, index_pictures
from limner.search.index import reindex as encode_again
from limner.search.index_dataset import index_dataset
from limner.search.metadata import read_metadata
from limner.search.open_source import open_source, store_of
from limner.search.query_vectors import Compose
from limner.search.store_info import store_info
from limner.store.calibration import calibration_for
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.erasable import erasable
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.kept_model import as_stored, load_source, load_stored_model
from limner.store.manifest import IN_STORE
from limner.store.path import StorePath, is_remote, store_path
from limner.store_reports import ErasureReport, IndexReport
from limner.types import Encoder
from limner.wire import (
    Answer,
    Explanation,
    FoundSentence,
    ImageInput,
    Item,
    Items,
    StoreInfo,
    Where,
    WordMethodName,
)

if TYPE_CHECKING:
    from limner.inference.trained import TrainedModel

_TOGETHER = 256
"""Number of queries of `search_many` that are encoded at once; a network needs little memory for so many."""

_PAGE = 500
"""Number of images that iteration reads at once."""


class Store:
    """An open search store with the model that it was built with.

    - `engine` answers requests (`limner.requests.SearchRequest`); `files` is the folder without a model.

    `len(store)` is the number of its images, iteration goes through them in the order of their paths.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.files: StoreFiles = engine.files

    def __repr__(self) -> str:
        model = self.files.fingerprint[:12]
        return f"Store({str(self.files.folder)!r}, {counted(len(self), 'pictures')}, model {model})"

    def __len__(self) -> int:
        # as iteration and search have them: without those that wait for their files
        return len(self.files.snapshot().vectors)

    def __iter__(self) -> Iterator[Item]:
        # one snapshot: images that are added or deleted meanwhile shift nothing
        snapshot = self.files.snapshot()
        rows = snapshot.meeting([])
        for start in range(0, len(rows), _PAGE):
            # in parts: an Item for each of a million rows would be made before the first one is used
            yield from snapshot.items(rows[start : start + _PAGE])

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the rows in memory and what was made of them; a later call reads them again."""
        # no more than this: a server may still hold this store
        self.engine.approximate.release()
        self.files.forget()

    def search(self, text: str | None = None, **options: Unpack[SearchArguments]) -> Answer:
        """Find the images that fit best: a text, an `image`, an image of the store (`like`, its key), or two of these.

        `where` is `"camera=3"`, `{"camera": 3}` or several of either; `after` and `before` are times or their text in
        ISO 8601. `marks` says of images of the store that they are "right", "wrong" or "maybe": the first two move the
        query and are left out of the answer (`limner.search.feedback`). The other arguments are those of
        `limner.requests.SearchRequest`. Raises what `Engine.answer` raises.
        """
        return self.engine.answer(SearchRequest.parse({"text": text, **options}))

    def search_many(
        self, queries: str | Iterable[str | Mapping[str, Any]], **options: Unpack[SearchOptions]
    ) -> list[Answer]:
        """Search for each of many queries: texts, or arguments such as `{"like": KEY}`. Texts are encoded together.

        A query's own arguments take precedence. Raises what the first failing query raises.
        """
        # all are parsed before the first is answered: a mistake in the last one costs no waiting
        parsed = requests_of(queries, options)
        answers: list[Answer] = []
        for start in range(0, len(parsed), _TOGETHER):
            for found in self.engine.answers(parsed[start : start + _TOGETHER]):
                if isinstance(found, Exception):
                    # the first error, as a loop over `search` would raise it; `Engine.answers` keeps the others apart
                    raise found
                answers.append(found)
        return answers

    def sentences(self, text: str | None = None, **options: Unpack[SentencesOptions]) -> list[FoundSentence]:
        """Find the sentences of the store that describe an image best, or that are nearest to a text."""
        return self.engine.sentences(SearchRequest.parse({"text": text, **options}))

    def explain(self, text: str, id: str, *, method: WordMethodName = "masked-regression") -> Explanation:
        """Explain an image's score for a text, as `Engine.explain` does; `method` gives words their weights."""
        expect(text, (str,), "explain: a text")
        self._expect_key(id)
        return self.engine.explain(text, id, method)

    def items(self, *, offset: int = 0, limit: int = 50, where: Where = (), newest: bool = False) -> Items:
        """List some of the images that meet conditions, in the order of their paths or the newest first."""
        if offset < 0 or limit < 0:
            raise SettingsError(f"expected offset and limit of at least 0, got {offset} and {limit}")
        snapshot = self.files.snapshot()
        # a list of all is counted, then cut: `total` is that of the conditions, not of the part
        conditions = [Condition.parse(one) for one in where_strings(where)]
        rows = snapshot.meeting(conditions)
        ordered = snapshot.newest_first(rows) if newest else rows
        return Items(
            items=tuple(snapshot.items(ordered[offset : offset + limit])),
            total=len(rows),
            absent=snapshot.metadata.absent(conditions) if conditions else {},
        )

    def item(self, id: str) -> Item:
        """Return one image. Raises `UnknownPictureError`."""
        return self._stored(id).to_item()

    def add(
        self,
        image: ImageInput,
        *,
        name: str | None = None,
        identity: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Item:
        """Add an image file where it lies; one that is there gets the facts that are given, and keeps the others.

        None among the metadata takes a fact away, and so does an empty `identity`. A store keeps no files of its own:
        bytes are for a server with a folder of uploads, and raise a `SettingsError` here. A `name` goes into the
        metadata. Raises what `limner.search.index.index_pictures` raises, and `StoreError` for a file that cannot be
        read.
        """
        # the signature is the client's, which sends bytes; a store that kept files would be a second place for them
        if not isinstance(image, str | Path):
            raise SettingsError(
                "a store keeps no picture files: write the bytes to a file and add that, or add them to a server"
            )
        path = os.path.abspath(image)  # noqa: PTH100 - as indexing spells it: resolve() would follow links
        given = {"name": name, "identity": identity}
        own = {field: value for field, value in given.items() if value is not None}
        if metadata is not None:
            expect(metadata, (Mapping,), "metadata: facts by name, such as {'camera': 3},")
        report = self.index([path], metadata={path: {**(metadata or {}), **own}})
        if report.skipped:
            # indexing lists what it cannot read and goes on; of one file that is the whole result
            raise StoreError(f"{path}: {report.skipped[0][1]}")
        return self.files.entries([path])[path].to_item()

    def index(
        self,
        images: str | Path | Iterable[str | Path],
        *,
        metadata: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
        batch_size: int = 64,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> IndexReport:
        """Add the images of files and folders: see `index`, which takes the same."""
        notes = _facts(metadata)
        expect_call(progress)
        return index_pictures(
            self.engine.encoder,
            self.files,
            find_pictures(images),
            metadata=notes,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
        )

    def delete(self, id: str) -> int:
        """Take an image out of the store; its file is left alone, and its bytes stay until `erase`.

        Return how many of its files lie in folders that the store follows: the next look indexes them again. Raises
        `UnknownPictureError`.
        """
        back = coming_back(self.files, self._stored(id).paths)
        # by the count: to look first would leave a moment in which another writer deletes it
        if not self.files.delete([id]):
            raise self._unknown(id)
        return len(back)

    def erase(
        self,
        ids: str | Iterable[str] = (),
        *,
        identity: str | None = None,
        paths: str | Path | Iterable[str | Path] = (),
        where: Where = (),
    ) -> ErasureReport:
        """Erase images and sentences from the disk, and what was deleted earlier; image files are left alone.

        Those that are named, and those that meet all conditions: see `limner.store.erase.erase`, which can also delete
        a server's uploads. Raises what that raises.
        """
        # what can be read once is asked for twice
        ids = several(ids, (str,), "the key of a picture or sentence")
        paths = several(paths, PATH, "the path of a picture or folder")
        with self.files.writing():
            chosen = erasable(self.files, ids, identity=identity, paths=paths, where=where)
            report = erase(self.files, ids, identity=identity, paths=paths, where=where)
        files = [path for image in chosen.images for path in image.paths]
        return report.model_copy(update={"returning": len(coming_back(self.files, files))})

    def image(self, id: str) -> bytes:
        """Read the file of an image, or make a JPEG of it if browsers would not show it.

        Raises `UnknownPictureError`, and `ChangedPictureError` for a file that is no longer the one that was indexed.
        """
        return shown_bytes(self._stored(id))

    def thumbnail(self, id: str) -> bytes:
        """Return a small JPEG of an image. Raises what `image` raises."""
        # `StoreFiles.add` may be given no thumbnails; an unknown key ends in `_stored`'s error
        return thumbnails(self.files, [id])[0] or small_bytes(self._stored(id))

    def info(self) -> StoreInfo:
        """Describe the store, its model and its limits."""
        return store_info(self.engine)

    def _stored(self, id: str) -> StoredImage:
        self._expect_key(id)
        stored = self.files.entry(id)
        if stored is None:
            raise self._unknown(id)
        return stored

    @staticmethod
    def _expect_key(id: str) -> None:
        expect(id, (str,), "the key of a picture (`id` of a hit or item)")

    def _unknown(self, id: str) -> UnknownPictureError:
        # a key is no path, and whoever gives one means the picture there
        place = os.path.abspath(id)  # noqa: PTH100 - as indexing spells it
        if (there := self.files.snapshot().key_at(place)) is not None:
            hint = f"; the picture of this path has the key {there!r}"
        else:
            hint = ", by this path or key" if os.sep in id else ""
        return UnknownPictureError(f"{self.files.folder}: holds no picture {id[:200]!a}{hint}")


def open_store(
    folder: str | Path | StorePath,
    *,
    run: "TrainedModel | ExportedModel | str | Path | None" = None,
    device: str | None = None,
    approximate_from: int | None = None,
) -> Store:
    """Open a store together with the model that it was built with.

    The model is that in the store's folder, or the run that the store names, or `run`; hits have match probabilities if
    `limner calibrate` has been run for the store or for the run. Stores of `approximate_from` images and more are
    searched by a graph (see `limner.search.engine.Engine`). Raises `StoreError` for a folder that is no store, a run
    that cannot be found, and a model that the store was not built with.
    """
    # the store before the model: a wrong folder is told at once, where loading takes seconds
    files = StoreFiles.open(folder)
    # vectors that another program has computed have no model that could be loaded
    if run is None and (foreign := foreign_model(files)) is not None:
        return Store(Engine(files, foreign, approximate_from=approximate_from))
    # a model that is loaded already may serve several stores
    model = (
        _model(files, run, device) if run is None or isinstance(run, str | Path) else as_stored(run, files)
    )
    # by the fingerprint, too: probabilities that were fitted to other weights would be wrong without a sign
    calibration = calibration_for(files, model, model.path)
    return Store(
        Engine(files, model, calibration, compose=_compose(files, model), approximate_from=approximate_from)
    )


def _model(files: StoreFiles, run: str | Path | None, device: str | None) -> "TrainedModel | ExportedModel":
    if run is None and files.manifest.run == IN_STORE and is_remote(files.folder):
        raise StoreError(
            f"{files.folder}: holds its model, which is read from a disk only; copy {files.run} to this machine and "
            "name it with run="
        )
    try:
        return load_stored_model(run or files.run, files, device=device)
    except CheckpointError as error:
        raise StoreError(
            f"{files.folder}: the model of this store cannot be loaded: {error}; name its run by --run (in Python run=)"
        ) from None


def _compose(files: StoreFiles, model: "TrainedModel | ExportedModel") -> Compose | None:
    if isinstance(model, ExportedModel):
        return None
    from limner.store.kept_model import inversion_for

    inversion = inversion_for(files, model)
    return None if inversion is None else partial(inversion.compose, model.model, model.tokenizer)


def index(
    model: Encoder | str | Path,
    store: Store | StoreFiles | StorePath | str,
    images: str | Path | Iterable[str | Path] | None = None,
    *,
    data: str | Dataset | None = None,
    split: str | None = None,
    metadata: Mapping[str, Mapping[str, Any]] | str | Path | None = None,
    keep_model: bool = True,
    batch_size: int = 64,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Add images to a store, which is made if it does not exist: `limner index` as a function.

    - `model`: a model as `limner.load` returns it, a run folder, an export of one, `hf:ORG/NAME` of the hub, or the
      folder of a pretrained model, which is imported into the store's; `store`: a folder, `s3://…`, or an open store.
    - `images`: files, and folders of them.
    - `data`: in place of `images` and `metadata`, a dataset or its FORMAT:PATH; its identities, metadata and sentences
      go into the store, too (`limner.search.index_dataset`). `split`: only the records of this split.
    - `metadata`: facts by path, or a CSV or JSON Lines file (`limner.search.metadata`).
    - `keep_model`: a new store holds the model's checkpoint (`limner.store.kept_model`); otherwise it needs the run.

    The other arguments and the errors are those of `index_pictures`; `SettingsError` for arguments that exclude each
    other.
    """
    check_arguments(images is not None, data is not None, split is not None, metadata is not None)
    # before the model is loaded: a mistyped source is refused at once
    dataset = None if data is None else open_dataset(data)
    notes = _facts(metadata)
    expect_call(progress)
    # and a store is not made before there is a picture for it
    found = None if images is None else find_pictures(images)
    encoder, files = _with_model(model, store, keep_model)
    if dataset is not None:
        return index_dataset(
            encoder,
            files,
            dataset,
            split=split,
            batch_size=batch_size,
            workers=workers,
            progress=progress and partial(_of_pictures, progress),
        )
    assert found is not None
    return index_pictures(
        encoder,
        files,
        found,
        metadata=notes,
        batch_size=batch_size,
        workers=workers,
        progress=progress,
    )


def reindex(
    store: Store | StoreFiles | StorePath | str,
    model: Encoder | str | Path,
    new: Store | StoreFiles | StorePath | str,
    *,
    delete: bool = False,
    keep_model: bool = True,
    batch_size: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Encode the images of a store again by another model, into a new store: `limner reindex` as a function.

    Identities, capture times and metadata go along. `delete` takes out of the new store what the old one no longer
    holds. The other arguments are those of `index`, the errors those of `limner.search.index.reindex`.
    """
    expect_call(progress)
    # before the model is loaded: a store that is not there is told at once
    old = store_files(store)
    encoder, files = _with_model(model, new, keep_model)
    return encode_again(old, encoder, files, delete=delete, batch_size=batch_size, progress=progress)


def store_files(store: Store | StoreFiles | StorePath | str) -> StoreFiles:
    """The files of a store that is there, open or not. Raises `StoreError`."""
    if isinstance(store, Store):
        return store.files
    return store if isinstance(store, StoreFiles) else StoreFiles.open(store_path(store))


def _with_model(
    model: Encoder | str | Path, store: Store | StoreFiles | StorePath | str, keep_model: bool
) -> tuple[Encoder, StoreFiles]:
    if isinstance(model, str | Path) and isinstance(store, str | StorePath):
        return open_source(model, store_path(store), keep_model=keep_model)
    encoder = load_source(model) if isinstance(model, str | Path) else model
    # by one of its names: a protocol asks for all, a reranker's graphs among them
    if not hasattr(encoder, "encode_images"):
        expect(model, PATH, "index: a loaded model, a run's folder or the name of a model")
    return encoder, _opened(store, encoder, keep_model)


def _facts(metadata: Any) -> Mapping[str, Mapping[str, Any]] | None:
    """Facts by path, of a file too. Raises `DataError` for anything else."""
    if isinstance(metadata, str | Path):
        return read_metadata(metadata)
    if metadata is not None:
        expect(metadata, (Mapping,), "metadata: facts by path, or a .csv or .jsonl file,")
        for path, facts in metadata.items():
            expect(path, PATH, "metadata: the path of a picture")
            expect(facts, (Mapping,), f"metadata of {path!a}: a mapping, e.g. {{'place': 'gate'}},")
    found: Mapping[str, Mapping[str, Any]] | None = metadata
    return found


def _of_pictures(progress: Callable[[int, int], None], what: str, done: int, total: int) -> None:
    # two numbers alone cannot say that they count sentences
    if what == "pictures":
        progress(done, total)


def _opened(store: Store | StoreFiles | StorePath | str, encoder: Encoder, keep_model: bool) -> StoreFiles:
    if isinstance(store, StoreFiles):
        return store
    if isinstance(store, Store):
        return store.files
    path = getattr(encoder, "path", None)
    if path is None:
        raise SettingsError("a model without a path cannot make a store; make it with StoreFiles.create")
    return store_of(encoder, path, store_path(store), keep_model=keep_model)

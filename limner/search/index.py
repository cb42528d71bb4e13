"""Index images into a store: threads decode, one thread encodes batches, and those before are written meanwhile.

Batches are committed together: when 1,024 images or 64 MB are pending, or 30 seconds have gone. Indexing that was
killed leaves whole batches; the same call adds the rest. A file of the same path, size and time is not read again, and
one whose bytes the store has is not decoded (`limner.search.places`).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from limner.conditions import local_time, wrong_name
from limner.errors import DataError, LimnerError, SettingsError
from limner.export.exported import ExportedModel
from limner.names import Spelling
from limner.search.batch_look import EncodedBatch, Looked, Workers, encode_batch, skips
from limner.search.find_pictures import FoundPictures, find_pictures
from limner.search.image_look import Seen, Task, Told, is_another, look_at
from limner.search.places import Plan, plan, stats_of
from limner.search.sentences import SentenceTable
from limner.store.entry import StoredImage, to_json
from limner.store.files import StoreFiles
from limner.store.folders import folders_of, follow_folders
from limner.store.kept_model import as_stored
from limner.store.writer import StoreWriter
from limner.store_reports import IndexReport
from limner.types import Encoder

_T = TypeVar("_T")

_KEPT_BATCH = 1024  # rows rewritten at once with the vectors that they have


def check_arguments(images: bool, data: bool, split: bool, metadata: bool) -> None:
    """Raise `SettingsError` for what does not go together, by what was given: for `index` and for `limner index`."""
    if images and data:
        raise SettingsError(
            "give pictures or a dataset, not both: a dataset names its pictures; index the others by a second call"
        )
    if not images and not data:
        raise SettingsError(
            "expected pictures, or a dataset as FORMAT:PATH, e.g. 'folder:pictures'; got neither"
        )
    if data and metadata:
        raise SettingsError(
            "metadata goes with pictures; a dataset has its own, in the columns of its captions file"
        )
    if split and not data:
        raise SettingsError("split goes with a dataset; pictures alone have none")


def index_pictures(
    encoder: Encoder,
    store: StoreFiles,
    paths: Iterable[str | Path] | FoundPictures,
    *,
    metadata: Mapping[str, Mapping[str, Any] | Told] | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    cluster: Workers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Add the images of files and folders (see `limner.search.index`) to a store of the same model.

    `metadata` gives facts by path (see `limner.search.metadata`), among them "identity" and "taken", the time in
    ISO 8601. None takes a fact away; facts that are not given stay, also when the bytes of the image change. What was
    read from its file follows the file, and its time comes from there if none is told (`limner.data.capture_time`). An
    image whose file has moved keeps all, its key, too; files of equal bytes are places of one image, of which stands
    what is told last (`limner.search.places`).
    `batch_size` images are encoded at once, `workers` threads decode (default: one a core), and at most four batches
    are in memory, decoded or encoded. Several batches are committed together; an error or Ctrl-C commits what is whole.
    With a `cluster` (`limner.search.cluster`) its workers read, decode and encode lists of `batch_size` images; this
    process only looks which images are known, and writes. `progress` is called with the images done and their total.
    The store is held for writing from first to last.

    Raises `StoreError` for another model's store and for one that another process writes to, `DataError` for
    paths that do not exist and metadata that JSON cannot hold, `SettingsError` for sizes below 1. An image that
    cannot be read is skipped and listed.
    """
    # threads are enough for decoding: the JPEG decoders release the GIL, and processes would have to copy the pixels
    workers = workers if workers is not None else os.cpu_count() or 1
    if batch_size < 1 or workers < 1:
        raise SettingsError(f"expected batch size and workers of at least 1, got {batch_size} and {workers}")
    store.check_model(encoder.fingerprint, encoder.dim)
    encoder = as_stored(encoder, store)
    if isinstance(encoder, ExportedModel):
        encoder.expect_to_index(regions=store.region_shape is not None)
    told = told_by(metadata or {})
    # before the first look: a second writer is refused at once, not after an hour of encoding
    with store.writing():
        found = paths if isinstance(paths, FoundPictures) else find_pictures(paths)
        pictures = found.pictures
        # first: what a kill leaves undone, `limner store sync` does
        follow_folders(store, found.folders)
        told = spelled_as(pictures, told)
        done = 0

        def tell(count: int) -> None:
            nonlocal done
            done = min(len(pictures), done + count)
            if progress and count:
                progress(done, len(pictures))

        skipped = list(found.unlisted)
        # one thread encodes: a second batch at the same time would share its cores with the first one
        with (
            ThreadPoolExecutor(workers) as threads,
            ThreadPoolExecutor(1) as encoding,
            store.changing() as changes,
        ):
            files = stats_of(pictures, threads)
            images = store.images([*files], {file.size for file in files.values()})
            followed = [one.path for one in folders_of(store)]
            planned = plan(pictures, files, images, told, threads, followed, tell)
            writer = _Writer(encoder, store, changes, planned, batch_size, encoding)
            try:
                writer.take_kept()
                if cluster is not None:
                    tasks = planned.tasks
                    lists = (tasks[start : start + batch_size] for start in range(0, len(tasks), batch_size))
                    for looked in cluster.looks(lists):
                        skipped += looked.skipped
                        writer.take_looked(looked)
                        tell(len(looked))
                else:
                    # two batches decoded ahead, one that is encoded, one that is written: the four that memory holds
                    for task, seen in _ahead(threads, encoder, planned.tasks, 2 * batch_size):
                        if isinstance(seen, str):
                            skipped += skips(task, seen)
                        else:
                            writer.take(seen)
                        tell(1 + len(task.others))
                writer.finish()
            except BaseException:
                # what is whole stays; on a full disk, as a rule, that fails, too
                with suppress(LimnerError):
                    changes.commit()
                raise
    if cluster is not None:
        # answers come in any order
        places = {path: -1 for path, _ in skipped}
        places |= {path: place for place, path in enumerate(pictures) if path in places}
        skipped.sort(key=lambda one: places[one[0]])
    # told, not refused: one file of metadata may serve several folders
    unused = tuple(sorted(told.keys() - set(pictures)))
    return IndexReport(
        **writer.counts,
        copies=planned.copies,
        contradicted=tuple(planned.contradicted),
        replaced=len(planned.replaced) + len(planned.fading),
        skipped=tuple(skipped),
        cut_off=tuple(sorted(writer.cut_off)),
        passed_over=found.passed_over,
        unused_metadata=unused,
        left_out=found.left_out,
    )


class _Writer:
    """Gathers images into batches, encodes each in a separate thread, and writes the one before meanwhile."""

    def __init__(
        self,
        encoder: Encoder,
        store: StoreFiles,
        changes: StoreWriter,
        planned: Plan,
        batch_size: int,
        thread: ThreadPoolExecutor,
    ) -> None:
        self.encoder, self.store, self.batch_size = encoder, store, batch_size
        self.counts = {"added": 0, "updated": 0, "unchanged": 0, "moved": 0, "forgotten": 0}
        self.cut_off: list[str] = []
        self._planned = planned
        self._stored = {task.path: task.stored for task in planned.tasks}
        # images of which a file is a new one's as soon as that is written
        held = [*filter(None, self._stored.values()), *(seen.entry for seen in planned.kept)]
        self._held = {one.id: one for one in [*planned.fading, *(one for one in held if one.others)]}
        fresh = {path for task in planned.tasks for path in (task.path, *(one.path for one in task.others))}
        self._holders = {path: row.id for row in self._held.values() for path in row.paths if path in fresh}
        self._thread = thread
        self._writer = changes
        self._fresh: list[Seen] = []
        self._kept: list[StoredImage] = []
        self._encoding: Future[EncodedBatch] | None = None

    def take_kept(self) -> None:
        """Write what has become of the images whose bytes are in the store, in one commit."""
        planned = self._planned
        if planned.replaced:
            self._writer.delete(planned.replaced)
        if planned.left:
            self._writer.update(planned.left)
        for seen in planned.kept:
            self.take(seen)
        self._rewrite()
        SentenceTable(self.store).move(self._writer, planned.moves)
        self._commit_if_due()

    def take(self, seen: Seen) -> None:
        self.counts[seen.outcome] += 1
        if seen.pixels is not None:
            self._fresh.append(seen)
        elif seen.write:
            self._kept.append(seen.entry)
        if len(self._fresh) == self.batch_size:
            self._pass_on()
        if len(self._kept) == _KEPT_BATCH:
            self._rewrite()

    def take_looked(self, looked: Looked) -> None:
        """Take what a worker made of a list of images."""
        for seen in looked.settled:
            self.take(seen)
        if looked.batch is not None:
            for seen in looked.batch.seen:
                self.counts[seen.outcome] += 1
            self._add(looked.batch)

    def finish(self) -> None:
        self._pass_on()
        self._write_encoded()
        self._rewrite()
        self._writer.commit()

    def _pass_on(self) -> None:
        """Begin to encode the images at hand, and write those that were encoded before."""
        if self._fresh:
            # submitted first, so that the network works on this batch while the one before is written
            before, self._encoding = self._encoding, self._thread.submit(self._encoded, self._fresh)
            self._fresh = []
            if before is not None:
                self._add(before.result())

    def _write_encoded(self) -> None:
        if self._encoding is not None:
            self._add(self._encoding.result())
            self._encoding = None

    def _encoded(self, seen: list[Seen]) -> EncodedBatch:
        return encode_batch(self.encoder, seen, regions=self.store.region_shape is not None)

    def _rewrite(self) -> None:
        if self._kept:
            self._writer.update(self._kept)
            self._kept = []

    def _add(self, batch: EncodedBatch) -> None:
        entries = [seen.entry for seen in batch.seen]
        self.cut_off += [seen.entry.path for seen in batch.seen if seen.is_cut]
        self.counts["forgotten"] += self._writer.delete_sentences(
            paths=[entry.path for entry in entries if is_another(self._stored.get(entry.path), entry)]
        )
        thumbnails = [seen.thumbnail for seen in batch.seen]
        self._take_from_others(entries)
        self._writer.add(entries, batch.vectors, batch.region_features, thumbnails)
        self._commit_if_due()

    def _take_from_others(self, entries: Sequence[StoredImage]) -> None:
        """Take the files of new images, in the commit of these, from the images that had them before."""
        for entry in entries:
            self._held.pop(entry.id, None)
        paths = {path for entry in entries for path in entry.paths}
        keys = {self._holders[path] for path in paths & self._holders.keys()} & self._held.keys()
        if not self._writer.is_free([*keys, *(entry.id for entry in entries)]):
            self._writer.commit()
        for row in [self._held.pop(key) for key in keys]:
            if left := [place for place in row.places if place.path not in paths]:
                self._held[row.id] = row.at(left)
                self._writer.update([self._held[row.id]])
            else:
                self._writer.delete([row.id])

    def _commit_if_due(self) -> None:
        if self._writer.due:
            self._writer.commit()


def _ahead(
    threads: ThreadPoolExecutor, encoder: Encoder, tasks: list[Task], window: int
) -> Iterator[tuple[Task, Seen | str]]:
    """Look at files, and yield the results in order, with at most `window` of them begun and not yet taken."""
    waiting: deque[tuple[Task, Future[Seen | str]]] = deque()
    try:
        for task in tasks:
            waiting.append((task, threads.submit(look_at, task, encoder.prepare_image)))
            if len(waiting) == window:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            # after an error or Ctrl-C the images that nobody has begun need not be decoded
            future.cancel()


def spelled_as(paths: Iterable[str], notes: Mapping[str, _T]) -> dict[str, _T]:
    """Facts by the paths of pictures as these are spelled: of the exact path, else of the canonically equal one."""
    spelling = Spelling(paths)
    found = {spelling.of(path): note for path, note in notes.items()}
    return {**found, **{path: note for path, note in notes.items() if path in found}}


def told_by(metadata: Mapping[str, Mapping[str, Any] | Told]) -> dict[str, Told]:
    """The facts that are told of images by path, from metadata as `index_pictures` takes them. Raises `DataError`."""
    told = {}
    for path, values in metadata.items():
        absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
        if isinstance(values, Told):
            told[absolute] = values
            continue
        facts = dict(values)
        for name in [name for name, value in facts.items() if value is not None]:
            if wrong := wrong_name(name):
                raise DataError(f"metadata of {path!a}: {wrong}")
        if facts.get("identity") is not None:
            # an identity without a sign is none, as an empty cell of a table
            facts["identity"] = given if (given := str(facts["identity"])).strip() else None
        try:
            to_json({name: value for name, value in facts.items() if name != "taken"})
        except (TypeError, ValueError):
            raise DataError(
                f"metadata of {path!a}: expected values that JSON can hold, whole numbers within ±2^63"
            ) from None
        if (taken := facts.get("taken")) is not None:
            try:
                facts["taken"] = local_time(str(taken))
            except ValueError:
                raise DataError(
                    f"metadata of {path!a}: expected a time in ISO 8601 under 'taken', got {str(taken)[:40]!a}"
                ) from None
        told[absolute] = Told(facts)
    return told


def reindex(
    old: StoreFiles,
    encoder: Encoder,
    new: StoreFiles,
    *,
    delete: bool = False,
    batch_size: int = 64,
    cluster: Workers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Index the images of one store into another, with the identity, capture time and metadata that were told of them.

    Embeddings of two models cannot be compared, so all images are read and encoded again: their files must still be
    there. After a kill the same call goes on, as with `index_pictures`; images whose files are gone, or are no files
    any more, are listed as skipped. Those that the new store alone has, as after a deletion between two calls, are
    counted, and with `delete` taken out. Sentences are not moved: index them anew (`limner.search.sentences`). Raises
    what `index_pictures` raises.
    """
    images = [image for image in old.images() if image.gone is None]
    held = {image.id: image.sha256 for image in new.images()}
    with ThreadPoolExecutor() as threads:
        files = stats_of([path for image in images for path in image.paths], threads)
    facts, changed = dict[str, Told](), dict[str, Told]()
    for image in images:
        own = {**image.metadata, "identity": image.identity, "taken": image.taken_told}
        # in a store of other pictures another one may have its key
        key = image.id if held.get(image.id, image.sha256) == image.sha256 else None
        for path, mtime in image.places:
            # a copy that is gone is none of the new store's
            if path in files or path == image.path:
                told = facts if files.get(path) == (image.size, mtime) else changed
                told[path] = Told(own, key, whole=True)
    # what is told last stands: that of a file which may have another image's bytes by now comes first
    facts = {**changed, **facts}
    report = index_files(
        encoder,
        new,
        facts,
        missing="its file is gone",
        batch_size=batch_size,
        cluster=cluster,
        progress=progress,
    )
    follow_folders(new, folders_of(old))
    others = [image.id for image in new.images() if facts.keys().isdisjoint(image.paths)]
    if delete:
        new.delete(others)
    return report.model_copy(update={"others": len(others)})


def index_files(
    encoder: Encoder,
    store: StoreFiles,
    facts: Mapping[str, Mapping[str, Any] | Told],
    *,
    missing: str,
    batch_size: int = 64,
    workers: int | None = None,
    cluster: Workers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Index the image files that `facts` names by absolute path, with these facts.

    Other than in `index_pictures`, a path without a file does not end it: it is skipped, with `missing` as the reason.
    """
    # files only: a folder of such a name would be searched through
    present = [path for path in facts if Path(path).is_file()]
    gone = [
        (path, "not a regular file" if Path(path).exists() else missing)
        for path in facts.keys() - set(present)
    ]
    if not present:
        return IndexReport(skipped=tuple(sorted(gone)))
    summary = index_pictures(
        encoder,
        store,
        present,
        metadata=facts,
        batch_size=batch_size,
        workers=workers,
        cluster=cluster,
        progress=progress,
    )
    return summary.model_copy(update={"skipped": (*summary.skipped, *sorted(gone)), "unused_metadata": ()})

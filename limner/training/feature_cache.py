"""What a frozen backbone gives, computed once for several views of each picture and kept on disk.

While the backbone is frozen, its pooled feature of a given crop never changes; while it learns from some layer on, the
map that this layer reads does not. A stage therefore draws from a fixed number of views a picture instead of running
the backbone in every epoch: first those that testing averages (the centre crop, and its mirror image unless pictures
are not to be mirrored), then random crops and flips. Values are float16: the cache of 6,000 pictures × 10 views × 1,280
channels takes 154 MB, maps of 7 × 7 × 160 six times that.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Float, UInt8

from limner.errors import DataError
from limner.models.backbones import BackboneSettings, ImageEncoder
from limner.runs.backbone_pass import BackbonePass, halved
from limner.runs.checkpoint import write_text
from limner.runs.precision import Precision
from limner.training.pictures import Pictures, ahead

Report = Callable[[int, int], None]
"""Called with pictures done and pictures in all."""

_CHUNK = 32

_FORMAT = 2
"""Raised when the same settings come to give other views or values."""


def cache_folder() -> Path:
    """Where features are kept: `$LIMNER_CACHE`, else `limner` in the user's cache folder."""
    chosen = os.environ.get("LIMNER_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "limner"


def cache_limit() -> int:
    """Largest size of the cache in bytes: `$LIMNER_CACHE_GB` (default 20)."""
    text = os.environ.get("LIMNER_CACHE_GB", "20")
    try:
        return int(float(text) * 1e9)
    except ValueError:
        raise DataError(f"LIMNER_CACHE_GB must be a number of gigabytes, got {text!r}") from None


def cached_views(
    backbone: ImageEncoder,
    described: BackboneSettings,
    pictures: Pictures,
    views: int,
    *,
    seed: int,
    precision: Precision,
    until: str | None = None,
    report: Report | None = None,
    folder: Path | None = None,
) -> Float[np.ndarray, "images views ..."]:
    """Features of `views` ≥ 1 views of each picture, memory-mapped float16; read from the cache or computed.

    Their shape is (images, views, channels); with `until`, they are the maps that this layer of the backbone reads:
    (images, views, height, width, channels). `described` are the settings that the backbone was
    built from. The key covers the weights that take part, the transform, the seed, the
    arithmetic and each file's path, size and time of change. An interrupted computation continues where it
    stopped. Older entries are removed when the cache would exceed `cache_limit()`. Raises `DataError` for a single
    entry above it, a disk without room for it, and a folder that cannot be written.
    """
    folder = folder or cache_folder()
    with _refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        key = _key(backbone, described, pictures, views, seed, precision, until)
        final, part = folder / f"{key}.npy", folder / f"{key}.part"
        with _lock(folder, key):  # another run that wants the same waits and then reads it
            if not final.exists():
                encoding = BackbonePass(backbone, precision)
                shape = (
                    len(pictures),
                    views,
                    *_encode(encoding, pictures.centred(range(1)), until).shape[1:],
                )
                _reserve(folder, shape, key)
                _compute(encoding, pictures, shape, seed, until, part, report)
                part.replace(final)
            os.utime(final)
            found: Float[np.ndarray, "images views ..."] = np.load(final, mmap_mode="r")
    return found


def _reserve(folder: Path, shape: tuple[int, ...], key: str) -> None:
    """Make room for an entry; `DataError` where the cache may not hold it."""
    size = 2 * int(np.prod(shape))
    if size > cache_limit():
        raise DataError(
            f"features of {shape[0]} pictures × {shape[1]} views take {size / 1e9:.1f} GB, the cache may hold "
            f"{cache_limit() / 1e9:.1f}; set LIMNER_CACHE_GB higher or the stage's views lower (0 = no cache)"
        )
    _make_room(folder, size, keep=key)


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """What the system refuses in the cache, as `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: no features can be kept here ({error.strerror or error}); set LIMNER_CACHE "
            "to a folder that can be written, or the stage's views to 0 (no cache)"
        ) from None


def _compute(
    encoding: BackbonePass,
    pictures: Pictures,
    shape: tuple[int, ...],
    seed: int,
    until: str | None,
    part: Path,
    report: Report | None,
) -> None:
    """Fill the file chunk by chunk; `.done` beside it counts the pictures that are complete."""
    progress = part.with_suffix(".done")
    done = _complete(progress) if part.exists() else 0
    if not done:
        progress.unlink(missing_ok=True)  # of a part that is gone: this one begins anew
        np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=shape)
        _claim_disk(part)
    store = np.lib.format.open_memmap(part, mode="r+")

    def prepare(start: int) -> tuple[int, list[np.ndarray]]:
        numbers = range(start, min(start + _CHUNK, shape[0]))
        centred = pictures.centred(numbers)
        tested = [centred, centred[:, :, ::-1]][: pictures.settings.test_views]
        drawn = [pictures.random(numbers, seed, 7, view) for view in range(len(tested), shape[1])]
        return start, (tested + drawn)[: shape[1]]

    for start, views in ahead(range(done, shape[0], _CHUNK), prepare):
        complete = min(start + _CHUNK, shape[0])
        for view, pixels in enumerate(views):
            store[start:complete, view] = _encode(encoding, pixels, until)
        if (start // _CHUNK) % 16 == 15 or complete == shape[0]:
            store.flush()
            write_text(progress, str(complete))
        if report is not None:
            report(complete, shape[0])
    progress.unlink(missing_ok=True)


def _complete(progress: Path) -> int:
    try:
        return int(progress.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def _claim_disk(path: Path) -> None:
    """Take the file's blocks now, where the system can: a memory map that finds the disk full kills the process."""
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            path.unlink()
            raise


def _encode(
    encoding: BackbonePass, pixels: UInt8[np.ndarray, "images height width 3"], until: str | None
) -> Float[np.ndarray, "images ..."]:
    found = encoding.pool(pixels) if until is None else encoding.map_until(pixels, until)
    return halved(found)


def _key(
    backbone: ImageEncoder,
    described: BackboneSettings,
    pictures: Pictures,
    views: int,
    seed: int,
    precision: Precision,
    until: str | None,
) -> str:
    settings = pictures.settings
    if views <= settings.test_views:  # nothing random in them
        seed, settings = 0, settings.replace(train_crop="random", pad=0)
    digest = hashlib.sha256(f"{_FORMAT} {views} {seed} {precision} {settings.model_dump_json()}".encode())
    digest.update(described.replace(weights=None).model_dump_json().encode())
    before: tuple[str, ...] = ("",)
    if until is not None:
        digest.update(until.encode())
        before = tuple(f"{name}." for name, _ in backbone.layers_before(until))
    for name, tensor in sorted(backbone.state_dict().items()):
        if not name.startswith(before):
            continue  # what other layers know changes no map before them
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    for path in pictures.paths:
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{path}: missing picture ({error.strerror}); run `limner data check`") from None
        digest.update(f"{path.resolve()}\x1f{status.st_size}\x1f{status.st_mtime_ns}\x1e".encode())
    return digest.hexdigest()[:32]


def _make_room(folder: Path, needed: int, *, keep: str) -> None:
    entries = []
    for path in folder.iterdir():
        if path.suffix in {".npy", ".part"}:  # parts that were given up count as well
            with suppress(FileNotFoundError):  # another run may remove or rename it meanwhile
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, path in entries if path.stem != keep)
    for _, size, path in sorted(entries):
        if total + needed <= cache_limit():
            return
        if path.stem == keep:
            continue
        with (
            suppress(Timeout),
            _lock(folder, path.stem, wait=False),
        ):  # a part that is being written is locked
            path.unlink(missing_ok=True)
            total -= size


def _lock(folder: Path, key: str, *, wait: bool = True) -> FileLock:
    return FileLock(folder / f"{key}.lock", blocking=wait)

import errno
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from limner.data import image_digests
from limner.data.image_digests import cache_folder
from limner.data.kept_rows import KeptRows
from limner.data.records import Dataset
from limner.data.transforms import ImageSettings
from limner.errors import DataError, SettingsError
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP, BackboneSettings
from limner.models.registry import build_network
from limner.training import feature_cache as module
from limner.training.cache_entries import Report, cache_limit
from limner.training.feature_cache import cached_views
from limner.training.pictures import Pictures
from tests.toy import toy_recipe

CHANNELS = 64
SIZE = 20


@pytest.fixture
def model() -> DualEncoder:
    torch.manual_seed(0)
    return build_network(toy_recipe().model, 10)


@pytest.fixture
def pictures(toys: Dataset, tmp_path: Path) -> Pictures:
    """Copies, so that a test may change them."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    paths = [Path(shutil.copy(record.image, folder)) for record in toys.records[:SIZE]]
    return Pictures(paths, toy_recipe().images)


def _direct(model: DualEncoder, pixels: np.ndarray) -> np.ndarray:
    model.eval()
    with torch.no_grad():
        return model.pool_images(torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2)).numpy()


def _views(model: DualEncoder, pictures: Pictures, folder: Path, views: int = 3, **more: object) -> KeptRows:
    arguments = {"seed": 5, "precision": "fp32", **more}
    return cached_views(model.backbone, model.settings.backbone, pictures, views, folder=folder, **arguments)  # type: ignore[arg-type]


def _entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix not in {".lock", ".crc32"}}


def test_views_are_the_plain_the_flipped_and_random_crops(
    model: DualEncoder, pictures: Pictures, tmp_path: Path
) -> None:
    model.train()
    found = _views(model, pictures, tmp_path / "cache", 4)
    assert found.shape == (SIZE, 4, CHANNELS)
    assert found.dtype == np.float16
    assert model.training
    centred = pictures.centred(range(SIZE))
    np.testing.assert_allclose(found[:, 0], _direct(model, centred), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found[:, 1], _direct(model, centred[:, :, ::-1]), rtol=2e-3, atol=2e-3)
    other = [np.asarray(found[:, view], dtype=np.float32) for view in (0, 2, 3)]
    assert not np.allclose(other[0], other[1], atol=2e-3)
    assert not np.allclose(other[1], other[2], atol=2e-3)


def test_without_flips_no_view_is_mirrored(model: DualEncoder, pictures: Pictures, tmp_path: Path) -> None:
    pictures = Pictures(pictures.paths, pictures.settings.replace(flip=False))
    found = _views(model, pictures, tmp_path, 2)
    centred = pictures.centred(range(SIZE))
    np.testing.assert_allclose(found[:, 0], _direct(model, centred), rtol=2e-3, atol=2e-3)
    drawn = pictures.random(range(SIZE), 5, 7, 1)
    np.testing.assert_allclose(found[:, 1], _direct(model, drawn), rtol=2e-3, atol=2e-3)


def test_test_views_are_shared_by_all_seeds_and_training_crops(
    model: DualEncoder, pictures: Pictures, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    _views(model, pictures, cache, 2, seed=1)
    other = Pictures(
        pictures.paths, pictures.settings.replace(train_crop="pad", pad=3, train_area=(0.1, 0.2))
    )
    _views(model, other, cache, 2, seed=2)
    assert len(_entries(cache)) == 1


def test_second_call_reads_what_the_first_wrote(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array(_views(model, pictures, tmp_path / "cache"))

    def never(*arguments: object) -> None:
        pytest.fail("computed again")

    monkeypatch.setattr(module, "_compute", never)
    np.testing.assert_array_equal(_views(model, pictures, tmp_path / "cache"), first)
    assert len(_entries(tmp_path / "cache")) == 1


def test_runs_that_want_the_same_at_once_compute_it_once(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    compute = module._compute

    def counted(*arguments: object) -> None:
        computed.append("once")
        compute(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_compute", counted)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: np.array(_views(model, pictures, tmp_path / "cache")), range(3)))
    assert computed == ["once"]
    np.testing.assert_array_equal(found[0], found[2])


def test_key_changes_with_whatever_changes_the_features(
    model: DualEncoder, pictures: Pictures, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def is_new(**more: object) -> bool:
        before = _entries(cache) if cache.exists() else set()
        _views(model, pictures, cache, **more)  # type: ignore[arg-type]
        return _entries(cache) != before

    assert is_new()
    assert not is_new()
    assert is_new(views=2)
    assert is_new(seed=6)
    with torch.no_grad():
        next(iter(model.text.parameters())).add_(1.0)
    assert not is_new(), "the text path has no part in it"
    with torch.no_grad():
        next(iter(model.backbone.parameters()))[0, 0, 0, 0] += 0.01
    assert is_new()
    other = Pictures(pictures.paths[::-1], pictures.settings)
    pictures, pictures_before = other, pictures
    assert is_new(), "views are drawn by an image's number"
    pictures = Pictures(pictures_before.paths, pictures.settings.replace(test_scales=(1.0, 1.25)))
    assert not is_new(), "the cache holds no view at another size"
    changed = pictures.settings.replace(flip=False)
    assert isinstance(changed, ImageSettings)
    pictures = Pictures(pictures.paths, changed)
    assert is_new()


def _again(pictures: Pictures) -> Pictures:
    """As another run would open them: nothing decoded or hashed yet."""
    return Pictures(pictures.paths, pictures.settings)


@pytest.mark.parametrize("how", ["in place", "replaced", "replaced by a link"])
@pytest.mark.parametrize("settled", [True, False])
def test_another_image_of_equal_size_and_time_is_never_served_stale_features(
    model: DualEncoder,
    pictures: Pictures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    settled: bool,
) -> None:
    if settled:  # so that its digest is remembered, and only the table's key tells of the change
        monkeypatch.setattr(image_digests, "_SETTLED", 0)
        time.sleep(0.05)
    # bitmaps without compression: all of one size have as many bytes
    path, files = tmp_path / "image.bmp", []
    for colour in ("red", "blue"):
        files.append(tmp_path / f"{colour}.bmp")
        Image.new("RGB", (40, 36), colour).save(files[-1])
    shutil.copy(files[0], path)
    os.utime(path, ns=(10**18, 10**18))
    time.sleep(0.05)
    paths = [*pictures.paths[:3], path]
    before = np.array(_views(model, Pictures(paths, pictures.settings), tmp_path / "cache"))
    status = path.stat()
    if how == "in place":
        path.write_bytes(files[1].read_bytes())
    elif how == "replaced":
        Path(shutil.copy(files[1], tmp_path / "beside.bmp")).replace(path)
    else:
        path.unlink()
        os.utime(files[1], ns=(10**18, 10**18))
        path.symlink_to(files[1])
    os.utime(path, ns=(10**18, 10**18))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = np.array(_views(model, Pictures(paths, pictures.settings), tmp_path / "cache"))
    fresh = _views(model, Pictures(paths, pictures.settings), tmp_path / "empty")
    np.testing.assert_array_equal(after, fresh)
    np.testing.assert_array_equal(after[:3], before[:3])
    assert np.abs(after[3] - before[3]).max() > 0.01


@pytest.mark.parametrize("how", ["copied", "moved", "relative", "touched", "renamed"])
def test_the_same_images_elsewhere_are_not_computed_anew(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before = np.array(_views(model, pictures, tmp_path / "cache"))
    folder, paths = pictures.paths[0].parent, list(pictures.paths)
    if how == "copied":
        shutil.copytree(folder, tmp_path / "copy")
        paths = [tmp_path / "copy" / path.name for path in paths]
    elif how == "moved":
        folder.rename(tmp_path / "moved")
        paths = [tmp_path / "moved" / path.name for path in paths]
    elif how == "relative":
        monkeypatch.chdir(folder)
        paths = [Path(path.name) for path in paths]
    elif how == "touched":
        for path in paths:
            os.utime(path, ns=(1, 1))
    else:
        paths = [path.rename(path.with_name(f"{place}é.jpg")) for place, path in enumerate(paths)]

    def never(*arguments: object) -> None:
        pytest.fail("computed again")

    monkeypatch.setattr(module, "_compute", never)
    found = _views(model, Pictures(paths, pictures.settings), tmp_path / "cache")
    np.testing.assert_array_equal(found, before)
    assert len(_entries(tmp_path / "cache")) == 1


def test_an_image_that_changes_meanwhile_leaves_no_entry(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 1)
    # the last one, which is not decoded yet when it changes: its features are of the other content
    last, cache = pictures.paths[-1], tmp_path / "cache"
    content = last.read_bytes()

    def meanwhile(done: int, total: int) -> None:
        if done == 4:
            Image.new("RGB", (40, 36), "purple").save(last)

    with pytest.raises(DataError, match="was changed since training began, 1 pictures in all"):
        _views(model, pictures, cache, report=meanwhile)
    assert not list(cache.glob("*.npy"))
    last.write_bytes(content)
    np.testing.assert_array_equal(
        _views(model, _again(pictures), cache), _views(model, _again(pictures), tmp_path / "empty")
    )


def test_maps_are_what_a_layer_reads(model: DualEncoder, pictures: Pictures, tmp_path: Path) -> None:
    found = _views(model, pictures, tmp_path / "cache", until="layer4.0")
    assert found.shape == (SIZE, 3, 2, 2, 32)
    features = _views(model, pictures, tmp_path / "cache")
    model.eval().backbone.set_frozen(False, until="layer4.0")
    with torch.no_grad():
        pooled = model.pool_cached(torch.from_numpy(np.array(found[:, 2]))).numpy()
    np.testing.assert_allclose(pooled, features[:, 2], rtol=5e-3, atol=5e-3)
    model.backbone.set_frozen(False)
    with pytest.raises(SettingsError, match="frozen up to some layer"):
        model.pool_cached(torch.from_numpy(np.array(found[:, 2])))


def test_last_maps_pool_to_the_features(model: DualEncoder, pictures: Pictures, tmp_path: Path) -> None:
    found = _views(model, pictures, tmp_path / "cache", until=LAST_MAP)
    features = _views(model, pictures, tmp_path / "cache")
    model.eval().backbone.set_frozen(True)
    pooled = model.pool_cached(torch.from_numpy(np.array(found[:, 1]))).numpy()
    np.testing.assert_allclose(pooled, features[:, 1], rtol=5e-3, atol=5e-3)


def test_key_of_maps_leaves_out_the_layers_behind(
    model: DualEncoder, pictures: Pictures, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    _views(model, pictures, cache, until="layer4.0")
    with torch.no_grad():
        model.backbone.get_parameter("layer4.1.conv1.weight").add_(1.0)
    _views(model, pictures, cache, until="layer4.0")
    assert len(_entries(cache)) == 1
    with torch.no_grad():
        model.backbone.get_parameter("layer3.1.conv1.weight").add_(1.0)
    _views(model, pictures, cache, until="layer4.0")
    assert len(_entries(cache)) == 2
    _views(model, pictures, cache, until="layer4.1")
    assert len(_entries(cache)) == 3


def test_interrupted_computation_goes_on_where_it_stopped(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 1)  # progress is noted every sixteenth chunk
    whole = np.array(_views(model, pictures, tmp_path / "whole"))

    def stop(done: int, total: int) -> None:
        if done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _views(model, pictures, tmp_path / "cache", report=stop)
    assert not list((tmp_path / "cache").glob("*.npy"))
    reported: list[int] = []
    again = _views(model, pictures, tmp_path / "cache", report=lambda done, total: reported.append(done))
    assert reported == [17, 18, 19, 20]
    np.testing.assert_array_equal(again, whole)
    assert len(_entries(tmp_path / "cache")) == 1


def test_note_of_progress_without_its_part_is_not_believed(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 1)
    cache = tmp_path / "cache"

    def stop_at(number: int) -> Report:
        def report(done: int, total: int) -> None:
            if done == number:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        _views(model, pictures, cache, report=stop_at(18))
    next(cache.glob("*.part")).unlink()
    with pytest.raises(KeyboardInterrupt):
        _views(model, pictures, cache, report=stop_at(4))
    found = np.array(_views(model, pictures, cache))
    assert np.abs(found).sum(axis=(1, 2)).min() > 0


def test_damaged_note_of_progress_is_not_believed(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 1)
    cache = tmp_path / "cache"

    def stop(done: int, total: int) -> None:
        if done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _views(model, pictures, cache, report=stop)
    next(cache.glob("*.done")).write_text("")
    whole = np.array(_views(model, pictures, tmp_path / "whole"))
    np.testing.assert_array_equal(_views(model, pictures, cache), whole)


def test_full_disk_is_said_before_anything_is_computed(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        DataError, match=r"no features can be kept here \(No space left on device\); set LIMNER_CACHE"
    ):
        _views(model, pictures, tmp_path / "cache")
    assert not _entries(tmp_path / "cache")


def test_oldest_entries_make_room(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    size = 2 * SIZE * 3 * CHANNELS + 128  # float16 values and NumPy's header
    monkeypatch.setenv("LIMNER_CACHE_GB", str(2.5 * size / 1e9))
    names: list[str] = []
    for seed in (0, 1):
        _views(model, pictures, cache, seed=seed)
        names.append(next(iter(_entries(cache) - set(names))))
        os.utime(cache / names[-1], (1000 + seed, 1000 + seed))
    _views(model, pictures, cache, seed=0)  # used again: now the younger of the two
    _views(model, pictures, cache, seed=2)
    assert names[0] in _entries(cache)
    assert names[1] not in _entries(cache)
    assert sum(path.stat().st_size for path in cache.iterdir()) <= cache_limit()


def test_abandoned_parts_count_and_make_room(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    size = 2 * SIZE * 3 * CHANNELS + 128
    monkeypatch.setenv("LIMNER_CACHE_GB", str(1.5 * size / 1e9))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _views(model, pictures, cache, seed=1, report=stop)
    _views(model, pictures, cache, seed=2)
    assert sum(path.stat().st_size for path in cache.iterdir()) <= cache_limit()


def test_part_that_another_run_is_writing_is_not_taken_for_abandoned(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    size = 2 * SIZE * 3 * CHANNELS + 128
    monkeypatch.setenv("LIMNER_CACHE_GB", str(1.5 * size / 1e9))
    whole: list[np.ndarray] = []

    def meanwhile(done: int, total: int) -> None:
        if not whole:
            whole.append(np.array(_views(model, pictures, cache, seed=2)))

    found = np.array(_views(model, pictures, cache, seed=1, report=meanwhile))
    np.testing.assert_array_equal(found, _views(model, pictures, tmp_path / "other", seed=1))


def test_key_of_maps_leaves_out_what_lies_behind_the_last_map(pictures: Pictures, tmp_path: Path) -> None:
    """fc6 and fc7 of VGG are no layers of the map, yet they learn; a resumed run must find its entry."""
    settings = toy_recipe().model.replace(backbone=BackboneSettings(name="vgg-16", width=0.02))
    model = build_network(settings, 10)
    _views(model, pictures, tmp_path, until="features.28")
    with torch.no_grad():
        model.backbone.get_parameter("classifier.0.weight").add_(1.0)
    _views(model, pictures, tmp_path, until="features.28")
    assert len(_entries(tmp_path) - {"pictures"}) == 1


def test_refusals(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMNER_CACHE_GB", "0.000001")
    with pytest.raises(DataError, match=r"20 pictures × 3 views .* set LIMNER_CACHE_GB higher"):
        _views(model, pictures, tmp_path / "cache")
    monkeypatch.setenv("LIMNER_CACHE_GB", "much")
    with pytest.raises(DataError, match="must be a number of gigabytes, got 'much'"):
        cache_limit()


def test_a_folder_that_cannot_be_written_is_named(
    model: DualEncoder, pictures: Pictures, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    with pytest.raises(DataError, match=r"file/cache: no features .* \(Not a directory\); set LIMNER_CACHE"):
        _views(model, pictures, cache)


@pytest.mark.parametrize("number", [0, 2])
def test_missing_picture_is_named(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, number: int
) -> None:
    pictures.paths[number].unlink()
    with pytest.raises(DataError, match=r"missing picture .*limner data check"):
        _views(model, pictures, tmp_path / "cache")


def test_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMNER_CACHE", "there")
    assert cache_folder() == Path("there")
    monkeypatch.delenv("LIMNER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "limner"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for not_absolute in ("", "own"):
        monkeypatch.setenv("XDG_CACHE_HOME", not_absolute)
        assert cache_folder() == tmp_path / "home" / ".cache" / "limner"


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LIMNER_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(DataError, match=r"no home folder .* LIMNER_CACHE"):
        cache_folder()


@pytest.mark.parametrize("how", ["cut", "bit", "no checksum", "another checksum"])
@pytest.mark.parametrize("seed", range(4))
def test_an_entry_that_is_damaged_is_computed_anew(
    model: DualEncoder, pictures: Pictures, tmp_path: Path, how: str, seed: int
) -> None:
    expected = np.array(_views(model, pictures, tmp_path / "cache"))
    (entry,) = (tmp_path / "cache").glob("*.npy")
    content, rng = bytearray(entry.read_bytes()), np.random.default_rng(seed)
    place = int(rng.integers(len(content)))
    if how == "cut":
        content = content[:place]
    elif how == "bit":
        content[place] ^= 1 << int(rng.integers(8))
    elif how == "no checksum":
        entry.with_suffix(".crc32").unlink()
    else:
        entry.with_suffix(".crc32").write_text(str(place))
    entry.unlink()  # the array above is mapped no more, but others may be
    entry.write_bytes(content)
    np.testing.assert_array_equal(_views(model, pictures, tmp_path / "cache"), expected)

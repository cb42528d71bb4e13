from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from limner.errors import ChangedPictureError, SettingsError
from limner.search.contact_sheet import CAPTION, FALSE, FRAME, GAP, MARGIN, NAME, NEUTRAL, TRUE, contact_sheet
from limner.wire import Hit
from tests.search.fake import hit_of

TILE = 80
BLUE = (0, 0, 255)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    path = tmp_path / "wide.png"
    Image.new("RGB", (120, 40), BLUE).save(path)
    return path


def hits_of(path: Path, identities: list[str | None]) -> list[Hit]:
    return [
        hit_of(path, rank, score=1 - rank / 100, identity=identity)
        for rank, identity in enumerate(identities, start=1)
    ]


def sheet_of(hits: list[Hit], **options: Any) -> Image.Image:
    """A sheet of hits whose thumbnails are their files."""
    paths = {hit.id: hit.path for hit in hits}

    def thumbnail(key: str) -> bytes:
        path = paths[key]
        if path is None or not path.exists():
            raise ChangedPictureError("gone")
        return path.read_bytes()

    return contact_sheet(hits, thumbnail=thumbnail, **options)


def corner(sheet: Image.Image, place: int, count: int, columns: int) -> tuple[int, int]:
    """Where a tile begins, counted from the lower edge, since the header's height depends on the query."""
    rows = -(-count // columns)
    row, column = divmod(place, columns)
    top = sheet.height - MARGIN - rows * (TILE + CAPTION) - (rows - 1) * GAP
    return MARGIN + column * (TILE + GAP), top + row * (TILE + CAPTION + GAP)


def test_frames_say_what_is_true(wide: Path) -> None:
    identities = ["7", "8", None, "7", "9"]
    hits = hits_of(wide, identities)
    known = sheet_of(hits, query="a coat", truth="7", columns=3, tile=TILE)
    unknown = sheet_of(hits, query="a coat", columns=3, tile=TILE)
    assert known.width == 2 * MARGIN + 3 * TILE + 2 * GAP
    for place, colour in enumerate([TRUE, FALSE, NEUTRAL, TRUE, FALSE]):
        left, top = corner(known, place, 5, 3)
        far = TILE - 1
        for x, y in ((0, 0), (far, 0), (0, far), (far, far), (FRAME - 1, TILE // 2)):
            assert known.getpixel((left + x, top + y)) == colour
            assert unknown.getpixel((left + x, top + y)) == NEUTRAL
        assert known.getpixel((left - 1, top)) == (255, 255, 255)


def test_pictures_keep_their_proportions(wide: Path) -> None:
    sheet = sheet_of(hits_of(wide, [None]), query="a coat", columns=3, tile=TILE)
    left, top = corner(sheet, 0, 1, 3)
    pixels = np.asarray(sheet)[top : top + TILE, left : left + TILE]
    rows, columns = np.nonzero((pixels == BLUE).all(axis=2))
    assert np.ptp(columns) + 1 == TILE - 2 * FRAME
    assert np.ptp(rows) + 1 == round((TILE - 2 * FRAME) / 3)
    assert rows.min() + rows.max() == pytest.approx(TILE - 1, abs=1)


def test_a_picture_that_cannot_be_read_has_its_tile(tmp_path: Path, wide: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    hits = [*hits_of(tmp_path / "missing.jpg", ["7"]), *hits_of(tmp_path / "broken.jpg", [None])]
    sheet = sheet_of(hits, query="a coat", truth="7", tile=TILE)
    assert sheet.getpixel(corner(sheet, 0, 2, 3)) == TRUE
    assert sheet.getpixel(corner(sheet, 1, 2, 3)) == NEUTRAL
    assert len(sheet.crop((*corner(sheet, 0, 2, 3), MARGIN + TILE, sheet.height)).getcolors(10_000) or []) > 5


def test_ranks_and_scores_are_drawn(wide: Path) -> None:
    first, second = hits_of(wide, [None]), [hit_of(wide, score=0.123)]
    one, other = (sheet_of(hits, query="a coat", columns=3, tile=TILE) for hits in (first, second))
    left, top = corner(one, 0, 1, 3)
    difference = np.nonzero((np.asarray(one) != np.asarray(other)).any(axis=2))
    assert difference[0].min() >= top + TILE
    assert difference[1].max() < left + TILE


def test_a_long_query_makes_a_taller_sheet(wide: Path) -> None:
    hits = hits_of(wide, [None] * 3)
    short = sheet_of(hits, query="a coat", tile=TILE)
    long = sheet_of(hits, query="a coat of many colours " * 5, tile=TILE)
    endless = sheet_of(hits, query="a coat of many colours " * 5000, tile=TILE)
    assert short.height < long.height <= endless.height < short.height + 300
    assert short.width == long.width == endless.width


def test_a_picture_as_query_stands_at_the_left(wide: Path) -> None:
    sheet = sheet_of(hits_of(wide, [None]), query=wide, tile=TILE)
    assert sheet.getpixel((MARGIN, MARGIN)) == NEUTRAL
    assert sheet.getpixel((MARGIN + TILE // 2, MARGIN + TILE // 2)) == BLUE


def test_no_hits_and_no_words(wide: Path) -> None:
    assert sheet_of([], query="", tile=TILE).height > 2 * MARGIN


@pytest.mark.parametrize(("columns", "tile"), [(0, 200), (5, 10)])
def test_sizes_that_make_no_sheet_are_refused(columns: int, tile: int) -> None:
    with pytest.raises(SettingsError, match="at least 1 column"):
        sheet_of([], query="a", columns=columns, tile=tile)


def test_names_and_probabilities_are_written_below(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    draw = ImageDraw.ImageDraw.text

    def seen(self: ImageDraw.ImageDraw, at: tuple[float, float], text: str, **how: Any) -> None:
        written.append(text)
        draw(self, at, text, **how)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", seen)
    (hit,) = hits_of(wide, [None])
    sheets = [
        sheet_of([hit.model_copy(update={"probability": sure})], query="a coat", names=names)
        for sure, names in ((None, False), (0.87, True))
    ]
    assert written[-4:] == [
        "best first, with the probability of a match and the score",
        "1",
        "p=0.87  0.990",
        "wide.png",
    ]
    assert written.index("1") == 2
    assert "0.990" in written
    # a line more, and the tile stays
    assert sheets[1].height - sheets[0].height == NAME

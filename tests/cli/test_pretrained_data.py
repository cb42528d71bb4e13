import json
import shutil
from pathlib import Path

from tests.cli.command import Limner, refused
from tests.data.trees import ROWS, Row, write_karpathy

MINILM = "all-MiniLM-L6-v2"
# d1 is the test picture; the other set has it under its other name, in its training split
NUMBERED = tuple(
    Row(f"{10_000 + place}_0123456789.jpg", row.captions, row.split, row.identity)
    for place, row in enumerate(ROWS)
)


def test_data_check_says_what_a_tower_has_seen(limner: Limner, toy_run: Path, tmp_path: Path) -> None:
    data = write_karpathy(tmp_path / "data", ROWS)
    known = limner("data", "check", data, "--fast", "--pretrained", MINILM)
    assert f"{MINILM}: trained to put the captions of a picture together" in " ".join(known.out.split())
    seen = json.loads(limner("data", "check", data, "--fast", "--pretrained", MINILM, "--json").out)
    assert [one["name"] for one in seen["pretrained"]["seen"]] == [MINILM]
    assert (seen["pretrained"]["compared_with"], seen["pretrained"]["shared"]) == (None, [])
    unknown = limner("data", "check", data, "--fast", "--pretrained", "openai/clip-vit-base-patch32")
    assert "unknown whether these pictures" in " ".join(unknown.out.split())
    clean = limner("data", "check", data, "--fast", "--pretrained", "bert-base-uncased")
    assert "Flickr8k is not among it" in clean.out
    # a run of toys, which has no tower
    assert "no card says anything of Flickr8k" in limner(
        "data", "check", data, "--fast", "--pretrained", toy_run
    ).out.replace("\n", " ")
    refused(limner("data", "check", data, "--pretrained", "all-MinLM"), "neither a run, nor weights")
    assert json.loads(limner("data", "check", data, "--fast", "--json").out)["pretrained"] is None


def test_data_check_counts_what_a_towers_own_set_shares(limner: Limner, tmp_path: Path) -> None:
    data = write_karpathy(tmp_path / "data", NUMBERED)
    _, _, _, _, test = NUMBERED
    other = Row("10004.jpg", ("Two dogs run in the snow.", "snow"), "train", "1")
    elsewhere = write_karpathy(tmp_path / "other", (other, *ROWS[1:4]))
    shutil.copy(tmp_path / "data" / "images" / test.file, tmp_path / "other" / "images" / other.file)
    asked = ("data", "check", data, "--pretrained-data", elsewhere)
    told = " ".join(limner(*asked).out.split())
    assert (
        "test: 1 of 1 picture by the number in the file name (train 1), 1 by their bytes; 1 of 1 caption"
        in told
    )
    rows = {row["split"]: row for row in json.loads(limner(*asked, "--json").out)["pretrained"]["shared"]}
    assert rows["test"]["in_splits"] == {"train": 1}
    assert (rows["train"]["same_number"], rows["train"]["numbered"]) == (0, 3)
    # the captions of a2 and b1 stand in both sets
    assert (rows["train"]["captions"], rows["train"]["same_caption"]) == (4, 2)
    fast = json.loads(limner(*asked, "--fast", "--json").out)["pretrained"]["shared"]
    assert [row["same_bytes"] for row in fast] == [None, None, None]

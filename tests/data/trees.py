"""Tiny datasets in every published form, with real pictures, for the readers and the doctor to read."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


@dataclass(frozen=True)
class Row:
    file: str
    captions: tuple[str, ...]
    split: str | None
    identity: str


ROWS = (
    Row("a1.jpg", ("a man in a red coat", "the coat of the man is red"), "train", "1"),
    Row("a2.jpg", ("a tall man with a bag",), "train", "1"),
    Row("b1.jpg", ("a woman in a blue dress",), "train", "2"),
    Row("c1.jpg", ("a boy on a bike", "he rides a bike"), "val", "3"),
    Row("d1.jpg", ("two dogs run in the snow",), "test", "4"),
)
"""Without any fault."""


def draw(file: Path, seed: int = 0) -> None:
    """A picture that no other seed gives, noisy enough that half of its file is visibly cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file)


def write_karpathy(root: Path, rows: Sequence[Row]) -> str:
    images = [
        {
            "filename": row.file,
            "imgid": number,
            "split": row.split,
            "sentences": [{"raw": text, "tokens": text.split()} for text in row.captions],
        }
        for number, row in enumerate(rows)
    ]
    _pictures(root / "images", rows)
    (root / "dataset_flickr8k.json").write_text(json.dumps({"images": images, "dataset": "flickr8k"}))
    return f"flickr8k:{root}"


def write_flickr8k_text(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root / "Flicker8k_Dataset", rows)
    _token_file(root / "Flickr8k.token.txt", rows)
    for split, name in (("train", "train"), ("val", "dev"), ("test", "test")):
        listed = [f"{row.file}\n" for row in rows if row.split == split]
        (root / f"Flickr_8k.{name}Images.txt").write_text("".join(listed))
    return f"flickr8k:{root}"


def write_flickr30k_text(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root / "flickr30k-images", rows)
    _token_file(root / "results_20130124.token", rows)
    for split in ("train", "val", "test"):
        listed = [f"{Path(row.file).stem}\n" for row in rows if row.split == split]
        (root / f"{split}.txt").write_text("".join(listed))
    return f"flickr30k:{root}"


def _token_file(file: Path, rows: Sequence[Row]) -> None:
    lines = [f"{row.file}#{n}\t{text}\n" for row in rows for n, text in enumerate(row.captions)]
    file.write_text("".join(lines))


def write_cuhk_pedes(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "reid_raw.json", "file_path", "cam_a")
    return f"cuhk-pedes:{root}"


def write_icfg_pedes(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "annotations/ICFG-PEDES.json", "file_path", "train/0001")
    return f"icfg-pedes:{root}"


def write_rstpreid(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "data_captions.json", "img_path", ".")
    return f"rstpreid:{root}"


def write_ufine6926(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "UFine6926_Annotations.json", "file_path", "images", pictures=".")
    return f"ufine6926:{root}"


def write_vn3k(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "data_captions_vn3k.json", "file_path", ".")
    return f"vn3k:{root}"


def write_prw_tps_cn(root: Path, rows: Sequence[Row]) -> str:
    _pedestrians(root, rows, "prw_cn_caption_crops.json", "file_path", ".")
    return f"prw-tps-cn:{root}"


def write_synth_pedes(root: Path, rows: Sequence[Row]) -> str:
    entries = [
        {
            "id": int(row.identity),
            "file_path": f"Part1/{row.identity}/{row.file}",
            "attributes": ["man,black hair"],
            "captions": list(row.captions),
            "prompt_caption": ["A man with black hair."],
        }
        for row in rows
    ]
    for seed, row in enumerate(rows):
        draw(root / "Part1" / row.identity / row.file, seed)
    (root / "synthpedes_dataset.json").write_text(json.dumps(entries))
    return f"synth-pedes:{root}"


def write_mals(root: Path, rows: Sequence[Row]) -> str:
    """One annotation file a picture folder, as published; pictures with several captions are entries with the first."""
    (root / "gene_attrs").mkdir(parents=True, exist_ok=True)
    for part, name in ((rows[:2], "4x"), (rows[2:], "c_g_a_0")):
        entries = [
            {
                "image": f"gene_crop/{name}/{row.file}",
                "caption": row.captions[0],
                "image_id": f"{name}_{number}",
                "label": [1, 0, -1],
            }
            for number, row in enumerate(part)
        ]
        (root / "gene_attrs" / f"g_{name}_attrs.json").write_text(json.dumps(entries))
        for row in part:
            draw(root / "gene_crop" / name / row.file, rows.index(row))
    return f"mals:{root}"


def write_luperson_mllm(root: Path, rows: Sequence[Row]) -> str:
    (root / "caption").mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(("Ts-qwen", "Td-qwen", "Ts-shikra", "Td-shikra")):
        captions = {
            f"some/where/{row.file}": text for row in rows for text in row.captions[number : number + 1]
        }
        (root / "caption" / f"{name}.json").write_text(json.dumps(captions))
    _pictures(root / "LUPerson-MLLM", rows)
    return f"luperson-mllm:{root}"


def write_webperson_json(root: Path, rows: Sequence[Row]) -> str:
    entries = [{row.file: {"caption1": row.captions[0], "caption2": row.captions[-1]}} for row in rows]
    _pictures(root / "images", rows)
    (root / "100w.json").write_text(json.dumps(entries))
    return f"webperson:{root}"


def picture(seed: int = 0) -> bytes:
    """The bytes of a JPEG that no other seed gives."""
    noise = np.random.default_rng(seed).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


def write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return file


def write_parquet(root: Path, rows: Sequence[Row]) -> str:
    for split, name in (("train", "train"), ("val", "validation"), ("test", "test")):
        held = [
            {
                "image": {"bytes": picture(number), "path": row.file},
                "captions": list(row.captions),
                "identity": row.identity,
            }
            for number, row in enumerate(rows)
            if row.split == split
        ]
        write_table(root / "data" / f"{name}-00000-of-00001.parquet", held)
    return f"parquet:{root}"


def write_tar(file: Path, members: Sequence[tuple[str, bytes]], mode: str = "w") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode) as tar:  # type: ignore[call-overload]
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


def write_webdataset(root: Path, rows: Sequence[Row]) -> str:
    for split in ("train", "val", "test"):
        members = []
        for number, row in enumerate(rows):
            if row.split == split:
                values = {"captions": list(row.captions), "identity": row.identity}
                members += [
                    (row.file, picture(number)),
                    (f"{Path(row.file).stem}.json", json.dumps(values).encode()),
                ]
        write_tar(root / f"{split}-000000.tar", members)
    return f"webdataset:{root}"


def _pedestrians(
    root: Path, rows: Sequence[Row], file: str, key: str, folder: str, pictures: str = "imgs"
) -> None:
    entries = [
        {
            key: Path(folder, row.file).as_posix(),
            "id": int(row.identity),
            "captions": list(row.captions),
            **({"split": row.split} if row.split else {}),
        }
        for row in rows
    ]
    _pictures(root / pictures / folder, rows)
    (root / file).parent.mkdir(exist_ok=True)
    (root / file).write_text(json.dumps(entries))


def write_cub(root: Path, rows: Sequence[Row]) -> str:
    names = {row.identity: f"{int(row.identity):03}.Bird_{row.identity}" for row in rows}
    _reed(root / "cvpr2016_cub", rows, names)
    for seed, row in enumerate(rows):
        draw(root / "CUB_200_2011" / "images" / names[row.identity] / row.file, seed)
    return f"cub:{root}"


def write_flowers(root: Path, rows: Sequence[Row]) -> str:
    _reed(root, rows, {row.identity: f"class_{int(row.identity):05}" for row in rows})
    _pictures(root / "jpg", rows)
    return f"flowers:{root}"


def _reed(root: Path, rows: Sequence[Row], names: Mapping[str, str]) -> None:
    for row in rows:
        texts = (root / "text_c10" / names[row.identity] / row.file).with_suffix(".txt")
        texts.parent.mkdir(parents=True, exist_ok=True)
        texts.write_text("".join(f"{text}\n" for text in row.captions))
    for split in ("train", "val", "test"):
        classes = sorted({names[row.identity] for row in rows if row.split == split})
        (root / f"{split}classes.txt").write_text("".join(f"{name}\n" for name in classes))


def write_csv(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root, rows)
    with (root / "captions.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "caption", "identity", "split"])
        for row in rows:
            for text in row.captions or ("",):
                table.writerow([row.file, text, row.identity, row.split or ""])
    return f"folder:{root}"


def write_jsonl(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root, rows)
    lines = [
        json.dumps({"file": row.file, "captions": list(row.captions), "split": row.split}) for row in rows
    ]
    (root / "captions.jsonl").write_text("\n".join(lines))
    return f"folder:{root}"


FORMS: dict[str, Callable[[Path, Sequence[Row]], str]] = {
    "karpathy": write_karpathy,
    "flickr8k_text": write_flickr8k_text,
    "flickr30k_text": write_flickr30k_text,
    "cuhk_pedes": write_cuhk_pedes,
    "icfg_pedes": write_icfg_pedes,
    "rstpreid": write_rstpreid,
    "ufine6926": write_ufine6926,
    "vn3k": write_vn3k,
    "prw_tps_cn": write_prw_tps_cn,
    "cub": write_cub,
    "flowers": write_flowers,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
"""Each writes a tree and returns what opens it."""

SHARDS: dict[str, Callable[[Path, Sequence[Row]], str]] = {
    "parquet": write_parquet,
    "webdataset": write_webdataset,
}
"""The same of shards, whose pictures are unpacked into the cache."""

FOR_TRAINING: dict[str, Callable[[Path, Sequence[Row]], str]] = {
    "synth_pedes": write_synth_pedes,
    "mals": write_mals,
    "luperson_mllm": write_luperson_mllm,
    "webperson_json": write_webperson_json,
}
"""The same of sets without splits, all of which are for training."""

WITH_CLASSES = ("cub", "flowers")
"""Groups are classes, each of which is in one split."""

PEDESTRIANS = ("cuhk_pedes", "icfg_pedes", "rstpreid", "ufine6926", "vn3k", "prw_tps_cn")

WITH_IDENTITIES = (*PEDESTRIANS, "csv", *WITH_CLASSES)

WITH_LISTS = ("flickr8k_text", "flickr30k_text", *WITH_CLASSES)
"""Splits are lists of names, none of which may be empty."""

A_LINE_A_SENTENCE = ("flickr8k_text", "flickr30k_text")
"""A picture without a sentence is only found where a list names it."""


def _pictures(folder: Path, rows: Sequence[Row]) -> None:
    for seed, file in enumerate(dict.fromkeys(row.file for row in rows)):
        draw(folder / file, seed)

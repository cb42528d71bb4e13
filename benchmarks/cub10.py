"""CUB's ten classes with Reed's sentences as a `folder:` dataset: classes 001–005 train, 006–007 val, 008–010 test.

python -m benchmarks.cub10 CUB10 FOLDER     CUB10: captions.json beside images/; FOLDER is made

The pictures are linked, not copied. Limner selects on validation, so two of the seven training classes are for that.
"""

import argparse
import json
from pathlib import Path

SPLITS = {
    **dict.fromkeys(range(1, 6), "train"),
    **dict.fromkeys((6, 7), "val"),
    **dict.fromkeys(range(8, 11), "test"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    try:
        entries = json.loads((given.source / "captions.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{given.source}: captions.json was expected here ({error.strerror})") from None
    given.folder.mkdir(parents=True)
    (given.folder / "images").symlink_to((given.source / "images").resolve(), target_is_directory=True)
    lines = [
        json.dumps(
            {
                "file": f"images/{entry['file_path']}",
                "captions": entry["captions"],
                "identity": Path(entry["file_path"]).parent.name,
                "split": SPLITS[int(entry["class_id"])],
            }
        )
        for entry in entries
    ]
    (given.folder / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} pictures; use them as folder:{given.folder}")


if __name__ == "__main__":
    main()

"""Sets of pedestrians that are published as one list of pictures with an identity each, beside a folder of pictures.

    [{"split": "train", "captions": ["A pedestrian with …", …], "file_path": "CUHK01/0363004.png", "id": 1,
      "processed_tokens": […]}, …]

Ours of generated people have `labels` too, what can be seen on a picture, and `languages`, one for each of `captions`,
if any is not English. RSTPReid has `img_path` in place of
`file_path`. The first release of CUHK-PEDES, `caption_all.json`, has no `split`. Which identities are for testing is
known from `reid_raw.json` alone, so its records get none: training and evaluation then refuse the set and say so.
ICFG-PEDES is published without a validation split, see `hold_out`.

The others have the same list and differ in a few names, see `FORMS`: UFine6926 and UFine3C, VN3K (3000VnPersonSearch,
whose `en_captions` are translations), PRW-TPS-CN as cropped pictures, and SYNTH-PEDES, all of which is for training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from limner.data.readers.parsing import (
    ANNOTATIONS,
    ANOTHER_FORM,
    AnnotationEntry,
    is_there,
    locate,
    parse_json,
    roots_of,
    shown,
    split_name,
)
from limner.data.records import Dataset, Record
from limner.data.splits import hold_out
from limner.errors import DataError
from limner.text_files import read_text


@dataclass(frozen=True)
class Form:
    """How one of these sets is published.

    - `files`: names of its file; the one with splits, or with the published sentences, comes first.
    - `picture`: the key of a picture's path.
    - `captions`: the keys of sentences, each with their language where it is known.
    - `split`: the split of an entry that names none; None for sets that name it.
    - `hold_out`: whether a validation split is held out if the file has none.
    """

    files: tuple[str, ...]
    picture: str = "file_path"
    captions: tuple[tuple[str, str | None], ...] = (("captions", None),)
    split: str | None = None
    hold_out: bool = False


FORMS: Mapping[str, Form] = {
    # In this order: `caption_all.json` has no splits, so it is read only where the other is missing.
    "cuhk-pedes": Form(("reid_raw.json", "caption_all.json")),
    # Copies of the set go round with a hyphen and with an underscore.
    "icfg-pedes": Form(("ICFG-PEDES.json", "ICFG_PEDES.json"), hold_out=True),
    "rstpreid": Form(("data_captions.json",), "img_path"),
    "ufine6926": Form(("UFine6926_Annotations.json", "UFine3C_Annotations.json"), hold_out=True),
    "vn3k": Form(
        # The last one also has the English sentences: the Vietnamese ones are those that were published.
        ("data_captions_vn3k.json", "vn3k.json", "data_captions.json"),
        captions=(("captions", "vi"), ("en_captions", "en")),
        hold_out=True,
    ),
    "prw-tps-cn": Form(("prw_cn_caption_crops.json",), captions=(("captions", "zh"),), hold_out=True),
    # The readme has an underscore, the archive that people use a hyphen.
    "synth-pedes": Form(("synthpedes-dataset.json", "synthpedes_dataset.json"), split="train", hold_out=True),
}

_READ = {"split", "id", "processed_tokens", "labels", "languages"}


def read_pedestrians(path: Path, source: str, *, format_name: str) -> Dataset:
    """Read a folder or an annotation file; pictures lie in `imgs/` or `images/` beside it, or where they are found.

    The file may lie in `annotations/`. A group is "id-" and the identity. Metadata holds `folder`, the part of the set
    that a picture comes from (a source dataset or a camera), and every key beyond the published ones. Raises
    `DataError` naming the file and the entry.
    """
    form = FORMS[format_name]
    file = _find(path, form) if path.is_dir() else path
    top = parse_json(read_text(file), file)
    # Elsewhere the top level is an object, so that another set's file is recognised here.
    if not isinstance(top, list):
        raise DataError(
            f"{file}: a list of entries was expected at the top level, got {shown(top)}; {ANOTHER_FORM}"
        )
    if not top:
        raise DataError(f"{file}: the list holds no picture")
    entries = [AnnotationEntry.of(file, f"[{index}]", item) for index, item in enumerate(top)]
    paths = [entry.path(form.picture) for entry in entries]
    picture = locate(file, paths, roots=roots_of(file))
    read = {*_READ, form.picture, *(key for key, _ in form.captions)}
    records = []
    for entry, relative in zip(entries, paths, strict=True):
        # Keys beyond the published ones are somebody's own and must not be lost.
        metadata = {key: value for key, value in entry.values.items() if key not in read}
        if len(relative.parts) > 1:
            # In front, so that a key of the file itself wins.
            metadata = {"folder": str(relative.parent), **metadata}
        group, split = f"id-{entry.name('id')}", split_name(entry) or form.split
        sentences, languages = _sentences(entry, form)
        records.append(
            Record(
                *(picture(relative), sentences, group, split, metadata, entry.labels()), languages=languages
            )
        )
    dataset = Dataset(source, "identity", tuple(records))
    # The others publish a validation split, and a missing one is a fault to report.
    return hold_out(dataset) if form.hold_out else dataset


def _sentences(entry: AnnotationEntry, form: Form) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """The sentences of all keys that an entry has, and their languages; no languages where none is known."""
    # Of a set with two keys a file may have either; the first one is named where both are missing.
    keys = [pair for pair in form.captions if pair[0] in entry.values] or form.captions[:1]
    texts = [(entry.texts(key), language) for key, language in keys]
    sentences = tuple(sentence for found, _ in texts for sentence in found)
    languages = tuple(language for found, language in texts for _ in found)
    if entry.values.get("languages") is not None:
        languages = entry.languages()
        if len(languages) != len(sentences):
            entry.fail(
                f"'languages' must have one for each caption, got {len(languages)} for {len(sentences)}"
            )
    return sentences, languages if any(languages) else ()


def _find(folder: Path, form: Form) -> Path:
    for name in form.files:
        # Both places of one name before the next name: the form with splits wins wherever it lies.
        for file in (folder / name, folder / ANNOTATIONS / name):
            if is_there(file):
                return file
    raise DataError(
        f"{folder}: {form.files[0]} was expected here or in {ANNOTATIONS}/, found none of {', '.join(form.files)}"
    )

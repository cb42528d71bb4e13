import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from limner.data.check import KINDS, Problem, Report, check_dataset, render
from limner.data.readers import open_dataset
from limner.data.records import Dataset, Record
from tests.data import trees
from tests.data.trees import (
    A_LINE_A_SENTENCE,
    FORMS,
    PEDESTRIANS,
    ROWS,
    WITH_CLASSES,
    WITH_IDENTITIES,
    WITH_LISTS,
    Row,
)

every_form = pytest.mark.parametrize("form", FORMS)


def examine(form: str, root: Path, rows: tuple[Row, ...] = ROWS) -> Report:
    return check_dataset(open_dataset(FORMS[form](root, rows)))


def picture(root: Path, name: str) -> Path:
    return next(root.rglob(name))


def found(report: Report) -> dict[str, tuple[str, int]]:
    kinds = [problem.kind for problem in report.problems]
    assert len(kinds) == len(set(kinds)), "named once"
    return {problem.kind: (problem.severity, problem.count) for problem in report.problems}


@every_form
def test_nothing_is_found_where_nothing_is_wrong(form: str, tmp_path: Path) -> None:
    report = examine(form, tmp_path)
    assert report.problems == ()
    assert report.sound
    facts = report.facts
    assert (facts.pictures, facts.sentences) == (5, 7)
    assert facts.groups == (4 if form in WITH_IDENTITIES else 5)
    assert {name: (split.pictures, split.sentences) for name, split in facts.splits.items()} == {
        "train": (3, 4),
        "val": (1, 2),
        "test": (1, 1),
    }


def test_sentences_by_language(tmp_path: Path) -> None:
    dataset = open_dataset(FORMS["csv"](tmp_path, ROWS))
    assert check_dataset(dataset).facts.languages == {}
    assert "by language" not in render(check_dataset(dataset))
    records = [
        replace(record, languages=("de", "en")[: len(record.sentences)]) if place else record
        for place, record in enumerate(dataset.records)
    ]
    report = check_dataset(replace(dataset, records=tuple(records)))
    whole = report.facts.languages
    assert sum(whole.values()) == report.facts.sentences
    assert list(whole.values()) == sorted(whole.values(), reverse=True)
    assert set(whole) == {"de", "en", "none"}
    for language, count in whole.items():
        assert sum(split.languages.get(language, 0) for split in report.facts.splits.values()) == count
    assert f"Sentences by language: de {whole['de']}, " in render(report)
    assert report.facts.languages == whole


Plant = Callable[[Path], None]


def spoil(change: Callable[[Path], object], *names: str) -> Plant:
    def plant(root: Path) -> None:
        for name in names:
            change(picture(root, name))

    return plant


def same(first: str, second: str) -> Plant:
    def plant(root: Path) -> None:
        picture(root, second).write_bytes(picture(root, first).read_bytes())

    return plant


def beside(name: str) -> Plant:
    return lambda root: trees.draw(picture(root, "a1.jpg").parent / name, 99)


def resized(first: str, second: str) -> Plant:
    """One picture in two sizes in the places of both; those that `trees` draws are noise, which no other size has."""

    def plant(root: Path) -> None:
        with Image.open(picture(root, first)) as image:
            smooth = image.resize((6, 5)).resize((240, 200))
        for name, size in ((first, (240, 200)), (second, (120, 100))):
            smooth.resize(size).save(picture(root, name), quality=80)

    return plant


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


@every_form
@pytest.mark.parametrize(
    ("plant", "kind", "severity", "count", "example"),
    [
        (spoil(Path.unlink, "a2.jpg", "d1.jpg"), "missing-picture", "error", 2, "a2.jpg"),
        (spoil(cut, "b1.jpg"), "unreadable-picture", "error", 1, "b1.jpg: cut off or damaged"),
        (
            spoil(lambda file: file.write_bytes(b""), "b1.jpg"),
            "unreadable-picture",
            "error",
            1,
            "b1.jpg: not a picture",
        ),
        (same("a1.jpg", "b1.jpg"), "duplicate-picture", "warning", 1, "a1.jpg (train) = b1.jpg (train)"),
        (
            resized("a1.jpg", "d1.jpg"),
            "near-duplicate-across-splits",
            "warning",
            1,
            "a1.jpg (train) = d1.jpg (test)",
        ),
        (same("a1.jpg", "d1.jpg"), "duplicate-across-splits", "error", 1, "a1.jpg (train) = d1.jpg (test)"),
        (beside("extra.PNG"), "unlisted-picture", "warning", 1, "extra.PNG"),
    ],
)
def test_each_fault_of_a_file_is_found_and_nothing_else(
    form: str, plant: Plant, kind: str, severity: str, count: int, example: str, tmp_path: Path
) -> None:
    dataset = open_dataset(FORMS[form](tmp_path, ROWS))
    plant(tmp_path)
    report = check_dataset(dataset)
    assert found(report) == {kind: (severity, count)}
    assert example in re.sub(r"00\d\.Bird_\d/", "", report.problems[0].example)  # CUB's folders
    assert report.sound == (severity == "warning")


@every_form
@pytest.mark.parametrize(
    ("index", "change", "kind", "severity", "example"),
    [
        (1, {"captions": ("a tall man", ".")}, "empty-caption", "error", "a2.jpg, sentence 2 of 2: '.'"),
        (3, {"captions": ()}, "split-without-caption", "error", "val"),
        (4, {"captions": ()}, "split-without-caption", "warning", "test"),
        (
            3,
            {"captions": ROWS[2].captions},
            "shared-caption",
            "warning",
            '"a woman in a blue dress" (2 groups)',
        ),
        (3, {"captions": ("穿红色大衣的男人",)}, "unspaced-caption", "warning", "c1.jpg: '穿红色大衣的男人'"),
        (4, {"split": "val"}, "split-missing", "warning", "test"),
        (3, {"split": "test"}, "split-missing", "error", "val"),
    ],
)
def test_each_fault_of_a_row_is_found_and_nothing_else(
    form: str, index: int, change: dict[str, object], kind: str, severity: str, example: str, tmp_path: Path
) -> None:
    no_line = form in A_LINE_A_SENTENCE and kind == "split-without-caption"
    if no_line or (form in WITH_LISTS and kind == "split-missing"):
        form = "karpathy"  # An empty list is refused by the reader.
    rows = list(ROWS)
    rows[index] = replace(rows[index], **change)  # type: ignore[arg-type]
    report = examine(form, tmp_path, tuple(rows))
    assert found(report) == {kind: (severity, 1)}
    assert report.problems[0].example == example


NOT_A_LINE_A_SENTENCE = [form for form in FORMS if form not in A_LINE_A_SENTENCE]


@pytest.mark.parametrize("form", NOT_A_LINE_A_SENTENCE)
def test_a_training_group_without_a_caption_is_an_error(form: str, tmp_path: Path) -> None:
    rows = tuple(replace(row, captions=()) if row.file == "b1.jpg" else row for row in ROWS)
    report = examine(form, tmp_path, rows)
    assert found(report) == {"group-without-caption": ("error", 1)}
    groups = {record.image.name: record.group for record in open_dataset(report.source).records}
    assert report.problems[0].example == groups["b1.jpg"]


@pytest.mark.parametrize(
    ("form", "split"),
    [
        *((form, split) for form in NOT_A_LINE_A_SENTENCE for split in ("val", "test")),
        *((form, "train") for form in WITH_IDENTITIES),
    ],
)
def test_a_picture_without_a_caption_beside_others_is_a_warning(
    form: str, split: str, tmp_path: Path
) -> None:
    rows = (*ROWS, Row("e1.jpg", (), split, "2" if split == "train" else "9"))
    report = examine(form, tmp_path, rows)
    assert found(report) == {"no-caption": ("warning", 1)}
    assert report.problems[0].example == "e1.jpg"


def test_what_has_no_caption_is_named_once_at_its_largest() -> None:
    def bare(name: str, split: str | None, group: str) -> Record:
        return Record(Path(name), (), group, split)

    records = (
        Record(Path("1"), ("a dog",), "spoken of", "train"),
        bare("2", "train", "spoken of"),
        bare("3", "train", "silent"),
        bare("4", "train", "silent"),
        bare("5", "val", "x"),
        bare("6", "test", "y"),
        bare("7", None, "z"),
    )
    report = check_dataset(Dataset("x", "identity", records), open_images=False)
    without = {problem.kind: problem for problem in report.problems if "caption" in problem.kind}
    assert {
        kind: (problem.severity, problem.count, problem.example) for kind, problem in without.items()
    } == {
        "split-without-caption": ("error", 2, "val"),
        "group-without-caption": ("error", 1, "silent"),
        "no-caption": ("warning", 2, "2"),
    }


@pytest.mark.parametrize("form", [form for form in WITH_IDENTITIES if form not in WITH_CLASSES])
def test_an_identity_in_two_splits_is_an_error(form: str, tmp_path: Path) -> None:
    rows = (*ROWS[:4], replace(ROWS[4], identity="1"))
    report = examine(form, tmp_path, rows)
    assert found(report) == {"identity-across-splits": ("error", 1)}
    assert report.problems[0].example.endswith("1 (train, test)")


@pytest.mark.parametrize("form", WITH_IDENTITIES)
def test_an_identity_may_repeat_a_caption(form: str, tmp_path: Path) -> None:
    rows = (ROWS[0], replace(ROWS[1], captions=ROWS[0].captions), *ROWS[2:])
    assert examine(form, tmp_path, rows).problems == ()


@pytest.mark.parametrize("form", ["karpathy", *PEDESTRIANS])
def test_a_file_listed_twice_is_one_problem(form: str, tmp_path: Path) -> None:
    report = examine(form, tmp_path, (*ROWS, ROWS[0], ROWS[0]))
    assert found(report) == {"listed-twice": ("error", 1)}
    assert report.problems[0].example == "a1.jpg (3 times)"


@pytest.mark.parametrize("form", [*PEDESTRIANS, "csv", "jsonl", *WITH_LISTS])
def test_pictures_without_a_split_are_counted(form: str, tmp_path: Path) -> None:
    rows = (*ROWS, Row("e1.jpg", ("an old chair",), None, "9"))
    report = examine(form, tmp_path, rows)
    assert found(report) == {"no-split": ("warning", 1)}
    assert report.facts.splits["none"].pictures == 1


def test_a_set_without_any_split_cannot_be_trained_on(tmp_path: Path) -> None:
    report = examine("cuhk_pedes", tmp_path, tuple(replace(row, split=None) for row in ROWS))
    assert found(report) == {"no-split": ("error", 5)}


def test_many_faults_are_each_named_once_and_errors_come_first(tmp_path: Path) -> None:
    trees.write_cuhk_pedes(tmp_path, (*ROWS[:4], replace(ROWS[4], captions=("?", "", "a dog")), ROWS[0]))
    for name in ("a2.jpg", "b1.jpg"):
        cut(picture(tmp_path, name))
    trees.draw(tmp_path / "imgs" / "cam_a" / "z.jpg", 50)
    report = check_dataset(open_dataset(f"cuhk-pedes:{tmp_path}"))
    assert found(report) == {
        "unreadable-picture": ("error", 2),
        "listed-twice": ("error", 1),
        "empty-caption": ("error", 2),
        "unlisted-picture": ("warning", 1),
    }
    severities = [problem.severity for problem in report.problems]
    assert severities == sorted(severities)


def test_more_than_two_same_pictures_count_each_but_the_first(tmp_path: Path) -> None:
    dataset = open_dataset(trees.write_karpathy(tmp_path, ROWS))
    for name in ("a2.jpg", "b1.jpg", "d1.jpg"):
        same("a1.jpg", name)(tmp_path)
    report = check_dataset(dataset)
    assert found(report) == {"duplicate-across-splits": ("error", 3)}
    assert report.problems[0].example == "a1.jpg (train) = d1.jpg (test)"


def test_unopened_pictures_are_only_looked_for(tmp_path: Path) -> None:
    dataset = open_dataset(trees.write_karpathy(tmp_path, ROWS))
    same("a1.jpg", "d1.jpg")(tmp_path)
    cut(picture(tmp_path, "b1.jpg"))
    picture(tmp_path, "c1.jpg").unlink()
    report = check_dataset(dataset, open_images=False)
    assert found(report) == {"missing-picture": ("error", 1)}
    assert "not opened" in render(report)


def test_a_captions_folder_is_searched_to_its_depth_without_hidden_files(tmp_path: Path) -> None:
    dataset = open_dataset(trees.write_csv(tmp_path, ROWS))
    for name in ("deep/down/x.jpg", "._a1.jpg", "notes.txt"):
        trees.draw(tmp_path / "tmp.png", 70)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tmp.png").rename(tmp_path / name)
    report = check_dataset(dataset)
    assert found(report) == {"unlisted-picture": ("warning", 1)}
    assert report.problems[0].example == "deep/down/x.jpg"


@every_form
def test_threads_find_the_same(form: str, tmp_path: Path) -> None:
    dataset = open_dataset(FORMS[form](tmp_path, ROWS))
    same("a1.jpg", "b1.jpg")(tmp_path)
    cut(picture(tmp_path, "d1.jpg"))
    calls: list[tuple[int, int]] = []
    threaded = check_dataset(dataset, workers=3, progress=lambda done, total: calls.append((done, total)))
    assert threaded == check_dataset(dataset)
    assert calls == [(done, 5) for done in range(1, 6)]


def sentences(split: str, *texts: str) -> Record:
    return Record(Path(f"{split}.jpg"), texts, split, split)


def test_lengths_and_known_words() -> None:
    dataset = Dataset(
        "by hand",
        "image",
        (
            sentences("train", "A red coat.", "the red hat"),
            sentences("val", "a blue, blue coat"),  # a, coat of four; of three different ones
            sentences("test", "...", ""),
        ),
    )
    facts = check_dataset(dataset, open_images=False).facts
    assert facts.vocabulary == 5  # a red coat the hat
    assert facts.splits["val"].known_tokens == pytest.approx(2 / 4)
    assert facts.splits["val"].known_types == pytest.approx(2 / 3)
    assert facts.splits["train"].known_tokens is None
    assert facts.splits["test"].known_types is None
    assert facts.median_length == 3  # 0 0 3 3 4


def test_98_of_100_sentences_fit_the_long_length() -> None:
    texts = [" ".join(["word"] * length) for length in range(1, 101)]
    facts = check_dataset(Dataset("x", "image", (sentences("train", *texts),)), open_images=False).facts
    assert facts.long_length == 98
    assert facts.median_length == 50.5


def test_a_dataset_of_nothing_has_a_report() -> None:
    report = check_dataset(Dataset("x:y", "image", ()))
    assert report.facts.pictures == 0
    assert report.facts.median_length is None
    assert render(report).startswith("x:y: 0 pictures")


def test_a_line_break_in_a_name_stays_out_of_the_report(tmp_path: Path) -> None:
    record = Record(tmp_path / "a\nb.jpg", ("a dog",), "a", "train")
    (missing, _) = check_dataset(Dataset("x", "image", (record,))).problems
    assert missing.example == "a b.jpg"


def test_the_report_as_json_and_as_text(tmp_path: Path) -> None:
    dataset = open_dataset(trees.write_cuhk_pedes(tmp_path, ROWS))
    same("a1.jpg", "d1.jpg")(tmp_path)
    beside("extra.jpg")(tmp_path)
    report = check_dataset(dataset)
    values = json.loads(report.to_json())
    assert values["source"] == dataset.source
    assert values["sound"] is False
    assert values["facts"]["splits"]["train"]["groups"] == 2
    assert [problem["kind"] for problem in values["problems"]] == [
        "duplicate-across-splits",
        "unlisted-picture",
    ]
    text = render(report)
    assert "5 pictures, 7 sentences, 4 groups (identities)" in text
    assert (
        "Errors\n  1 pictures with the same bytes as one of another split, e.g. a1.jpg (train) = d1.jpg (test)"
        in text
    )
    assert "Warnings\n  1 pictures in the folder that are not listed, e.g. extra.jpg" in text
    assert "No problem found." in render(report.replace(problems=()))


def test_every_kind_can_be_rendered() -> None:
    facts = check_dataset(Dataset("x", "image", ())).facts
    report = Report(
        source="x",
        sound=False,
        facts=facts,
        problems=tuple(Problem(kind=kind, severity="error", count=3, example="here") for kind in KINDS),
    )
    assert all(f"3 {text}, e.g. here" in render(report) for text in KINDS.values())

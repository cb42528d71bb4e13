import io
import json

import numpy as np
import pytest
from rich.console import Console

import limner
from limner.evaluation.arrays import Results
from limner.evaluation.report import LanguageReport, Report, render


def report(**changes: object) -> Report:
    counts = {
        "images": 1000,
        "sentences": 5000,
        "groups": 1000,
        "images_without_match": 0,
        "sentences_without_match": 0,
    }
    values = {"R@1": 12.345, "R@5": 30.0, "R@10": 41.7, "MedR": 17.5, "MeanR": 1234.56, "mAP": 20.04}
    provenance = {"split_fingerprint": "ab12", "selection_split": "val", "seed": 0}
    fields = {
        "protocol": "flickr8k",
        "split": "test",
        "counts": counts,
        "image_to_text": values,
        "text_to_image": {**values, "MedR": 9.0},
        "provenance": provenance,
    }
    return Report(**{**fields, **changes})


def text(shown: Report) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(shown))
    return capture.get()


def test_json_has_the_documented_form() -> None:
    values = json.loads(report().to_json())
    assert list(values) == ["protocol", "split", "counts", "image_to_text", "text_to_image", "provenance"]
    assert list(values["image_to_text"]) == ["R@1", "R@5", "R@10", "MedR", "MeanR", "mAP"]
    assert values["image_to_text"]["R@1"] == 12.345
    assert values["provenance"]["selection_split"] == "val"
    assert values == report().model_dump()


def test_values_that_json_has_not_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        report(provenance={"loss": float("nan")}).to_json()


def test_table_shows_every_number() -> None:
    shown = text(report())
    for part in (
        *("flickr8k · test", "image → text", "5,000", "12.3", "MedR", "17.5", "1,234.6", "mAP", "20.0"),
    ):
        assert part in shown
    forward, backward = (line for line in shown.splitlines() if "→" in line)
    assert "17.5" in forward
    assert " 9 " in backward
    assert "without a true match" not in shown


def test_many_measures_stand_below_each_other() -> None:
    values = {f"R@{k}": float(k) for k in range(1, 10)}
    lines = text(report(image_to_text=values, text_to_image=values)).splitlines()
    assert any("measure" not in line and "R@9" in line and line.count("9.0") == 2 for line in lines)
    assert sum("→" in line for line in lines) == 1


def test_table_says_that_it_is_a_mean_over_folds() -> None:
    shown = " ".join(text(report(counts={**report().counts, "folds": 5})).split())
    assert "each value is the mean over 5 folds" in shown


def test_curves_are_in_the_json_and_not_in_the_table() -> None:
    curves = {"image_to_text": {"scope-curve": {"scope": (1, 2), "precision": (0.5, 0.25)}}}
    drawn = report(curves=curves)
    assert drawn.model_dump(mode="json")["curves"] == {
        "image_to_text": {"scope-curve": {"scope": [1, 2], "precision": [0.5, 0.25]}}
    }
    assert "scope" not in text(drawn)


def test_a_second_table_has_the_languages() -> None:
    own = LanguageReport(
        counts={**report().counts, "sentences": 77}, image_to_text={"R@1": 61.25}, text_to_image={"R@1": 9.0}
    )
    spoken = report(languages={"de": own, "vi": LanguageReport(counts={"sentences": 3}, problem="too [few]")})
    assert list(spoken.model_dump())[-2:] == ["languages", "provenance"]
    assert spoken.model_dump()["languages"]["de"] == own.model_dump()
    assert "problem" not in own.model_dump()
    lines = text(spoken).splitlines()
    assert any("de" in line and "image → text" in line and "61.2" in line for line in lines)
    assert any("de" in line and "text → image" in line and " 77 " in line and "9.0" in line for line in lines)
    assert sum("vi" in line and "–" in line for line in lines) == 2
    assert "vi: too [few]" in " ".join(text(spoken).split())
    assert "by language" not in text(report())
    many = {f"R@{k}": float(k) for k in range(1, 10)}
    turned = text(
        report(
            image_to_text=many,
            text_to_image=many,
            languages={"de": own.replace(image_to_text=many, text_to_image=many)},
        )
    ).splitlines()
    assert any("de" in line and "R@9" in line and line.count("9.0") == 2 for line in turned)


def test_table_says_what_was_not_scored() -> None:
    counts = {
        "images": 3,
        "sentences": 4,
        "groups": 4,
        "images_without_match": 1,
        "sentences_without_match": 2,
    }
    shown = text(report(counts=counts, protocol="[bold]odd[/]"))
    assert "[bold]odd[/]" in shown
    assert "1 image without a true match" in shown
    said = " ".join(shown.split())
    assert "3 images, 4 sentences, 4 groups;" in said
    assert "2 sentences without a true match" in said


def test_the_table_says_what_towers_had_seen_before() -> None:
    lines = ["all-MiniLM-L6-v2: trained on these captions", "a tower: unknown"]
    shown = " ".join(text(report(provenance={"seen_before": lines})).split())
    assert all(f"seen before by {line}" in shown for line in lines)
    assert "seen before" not in text(report())


def test_the_rsum_of_papers_stands_below_the_table() -> None:
    results = Results([5, 7], [7, 5, 5], scores=np.array([[0.1, 0.9, 0.2], [0.8, 0.2, 0.1]]))
    report = limner.evaluate(results, measures="rsum mAP")
    written = io.StringIO()
    Console(width=200, file=written).print(render(report))
    total = report.image_to_text["rsum"] + report.text_to_image["rsum"]
    assert f"rsum of both directions: {total:.1f}" in " ".join(written.getvalue().split())

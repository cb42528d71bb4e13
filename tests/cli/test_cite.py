import json
from pathlib import Path

import pytest

from limner.inference.import_model import import_model
from tests import towers
from tests.cli.command import Limner, refused


def keys(limner: Limner, *arguments: object) -> list[str]:
    """The BibTeX keys of what the command prints, in both its forms."""
    told = limner("cite", *arguments)
    assert told.code == 0, told.err
    found = [line.partition("{")[2].rstrip(",") for line in told.out.splitlines() if line.startswith("@")]
    listed = json.loads(limner("cite", *arguments, "--json").out)
    assert [work["key"] for work in listed] == found
    assert "\n\n".join(work["bibtex"] for work in listed) == told.out.strip()
    return found


def test_limner_comes_first_and_stands_alone(limner: Limner) -> None:
    assert keys(limner) == ["limner"]
    works = ["limner", "zhang2017multi", "he2016deep", "russakovsky2015imagenet", "lin2014microsoft"]
    assert keys(limner, "mnil-mscoco") == works


def test_the_data_can_be_another(limner: Limner) -> None:
    birds = keys(limner, "mnil-mscoco", "--data", "cub:somewhere/CUB")
    assert birds[-2:] == ["wah2011caltech", "reed2016learning"]
    assert "lin2014microsoft" not in keys(limner, "mnil-mscoco", "--data", "people")


def test_a_file_of_a_recipe(limner: Limner, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(limner("recipes", "show", "hgan-cub").out)
    assert keys(limner, file) == keys(limner, "hgan-cub")


def test_a_run_cites_the_recipe_and_the_data_that_trained_it(limner: Limner, toy_run: Path) -> None:
    found = keys(limner, toy_run)
    assert found[:2] == ["limner", "zheng2020dual"]
    # its pictures are the user's own
    assert not {work for work in found if work.startswith(("young", "lin20"))}
    assert keys(limner, toy_run, "--data", "flickr30k") == [*found, "young2014image"]


def test_mistakes(limner: Limner, tmp_path: Path) -> None:
    refused(limner("cite", "dual-path", "--data", "flikr30k"), "no such format")
    refused(limner("cite", "--data", "flickr30k"), "--data: is of no use alone; give RECIPE")
    refused(limner("cite", "dual-pth"), "dual-pth")
    refused(limner("cite", tmp_path), "no trained run")


def test_an_imported_run_has_its_own_card(limner: Limner, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "pair").mkdir()
    towers.save_clip(tmp_path / "pair")
    import_model(str(tmp_path / "pair"), tmp_path / "run")
    refused(limner("cite", tmp_path / "run"), "imported run")

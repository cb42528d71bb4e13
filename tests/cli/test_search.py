"""`limner search` with conditions and groups, `limner explain`, `limner reindex`."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

import limner as library
from limner.requests import SearchRequest
from limner.store.files import StoreFiles
from tests.cli.command import Limner, refused

QUERY = "a red square on white"


def found(limner: Limner, *command: object) -> list[dict[str, object]]:
    hits: list[dict[str, object]] = json.loads(limner("search", *command, "--json").out)["hits"]
    return hits


def test_the_same_as_the_library(limner: Limner, store: Path, pictures: Path) -> None:
    engine = library.open_store(store, device="cpu")
    picture = pictures / "05-0.png"
    key = next(entry.id for entry in engine.files.entries().values() if entry.path == str(picture))
    both = SearchRequest(text=QUERY, image=picture, text_weight=0.3, k=4)
    for query, command in (
        (SearchRequest(text=QUERY), [QUERY]),
        (both, [QUERY, "--image", picture, "--text-weight", 0.3, "-k", 4]),
        (SearchRequest(like=key), ["--like", picture]),
        (SearchRequest(text=QUERY, marks={key: "right"}), [QUERY, "--right", picture]),
        (SearchRequest(text=QUERY, marks={key: "wrong"}), [QUERY, "--wrong", key]),
        (SearchRequest(like=key, k=2), ["--like", key, "-k", 2]),
        (
            SearchRequest(text=QUERY, where=("identity~red*",), group="near"),
            [QUERY, "--where", "identity~red*", "--group", "near"],
        ),
    ):
        answer = engine.engine.answer(query).model_dump(mode="json")
        assert found(limner, store, *command, "--cpu") == answer["hits"]


def test_conditions_and_groups(limner: Limner, store: Path, pictures: Path) -> None:
    red = found(limner, store, QUERY, "--where", "identity~red*", "-k", 30)
    assert {str(hit["identity"]).split()[0] for hit in red} == {"red"}
    assert found(limner, store, QUERY, "--after", "2026-01-01") == []
    none = limner("search", store, QUERY, "--where", "shelf=99")
    assert (none.code, none.out) == (0, "")
    assert "no picture meets the conditions" in none.err
    assert "conditions can ask for path, identity, taken, shelf" in none.err
    misspelt = limner("search", store, QUERY, "--where", "shelve=9")
    assert "no picture has 'shelve' (is it 'shelf'?); conditions can ask for path" in misspelt.err
    lines = limner("search", store, QUERY, "--group", "identity").out.splitlines()
    assert len(lines) == len({line.split("[")[1] for line in lines}) == 10
    refused(limner("search", store, QUERY, "--group", "colour"), "'identity' or 'near'")
    refused(limner("search", store, QUERY, "--where", "shelf"), "NAME=VALUE")
    refused(limner("search", store, QUERY, "--before", "soon"), "a time in ISO 8601")
    refused(limner("search", store, "--like", "nobody.png"), "holds no picture of this path or key")
    refused(limner("search", store, QUERY, "--wrong", "nobody.png"), "holds no picture of this path or key")
    refused(limner("search", store, QUERY, "--text-weight", 2), "text_weight: expected at most 1, got 2.0")
    both = limner("search", store, QUERY, "--right", pictures / "05-0.png", "--wrong", pictures / "05-0.png")
    refused(both, "is marked both right and wrong")


def test_words_that_the_model_does_not_know_are_said(limner: Limner, store: Path, pictures: Path) -> None:
    sentence = "a red xylophone and a zither"
    said = "the model does not know, and left out: xylophone, and, zither"
    assert said in limner("search", store, sentence).err
    assert json.loads(limner("search", store, sentence, "--json").out)["unknown"] == [
        "xylophone",
        "and",
        "zither",
    ]
    assert said in limner("explain", store, sentence, pictures / "05-0.png").err
    assert "left out" not in limner("search", store, QUERY).err


def test_what_each_word_adds(limner: Limner, store: Path, pictures: Path) -> None:
    command = ("explain", store, QUERY, pictures / "05-0.png")
    said = limner(*command).out.splitlines()
    assert said[0].startswith("cosine ")
    told = json.loads(limner(*command, "--json").out)
    assert told["words"] == QUERY.split()
    assert [phrase["text"] for phrase in told["phrases"]] == ["a", "red square", "on", "white"]
    lines = {line.split("  ")[1].removeprefix("without ").strip(): line for line in said[1:]}
    for phrase in told["phrases"]:
        if abs(phrase["weight"]) <= phrase["noise"]:
            assert phrase["text"] in lines[next(line for line in lines if line.startswith("within noise: "))]
        else:
            does = "falls" if phrase["weight"] > 0 else "rises"
            assert f"{does} by {abs(phrase['weight']):.3f}" in lines[phrase["text"]]
    assert told["attention"] is None
    left_out = json.loads(limner(*command, "--method", "leave-one-out", "--json").out)
    assert (left_out["method"], len(left_out["weights"])) == ("leave-one-out", 5)
    refused(limner(*command, "--method", "guess"), "--method: expected leave-one-out")
    alone = limner("explain", store, "red", pictures / "05-0.png")
    assert len(alone.out.splitlines()) == 1
    refused(limner("explain", store, QUERY, "nothing"), "holds no picture")
    refused(limner("search", store, "--like", "\udcff.jpg"), "holds no picture")
    refused(limner("search", store, QUERY, "--truth", "p1"), "--truth: .*--sheet")


def test_another_model(
    limner: Limner, store: Path, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = StoreFiles.open(store)
    new = tmp_path / "new"
    assert "36 added" in limner("reindex", store, toy_run, new).out
    moved = StoreFiles.open(new).entries()
    assert moved == old.entries()
    assert "36 unchanged" in limner("reindex", store, toy_run, new).out
    refused(limner("reindex", store, toy_run, tmp_path), "not empty")


def test_sentences_of_a_picture(
    limner: Limner, store: Path, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(store, tmp_path / "store"))
    picture = pictures / "05-0.png"
    none = limner("search", own, "--image", picture, "--sentences")
    assert (none.code, none.out) == (0, "")
    assert "holds no sentences" in none.err
    command = ("index-sentences", toy_run, own)
    assert "added, 0 unchanged, 0 left out" in limner(*command, f"folder:{pictures}", "--split", "test").out
    (tmp_path / "own.txt").write_text("a red bar\n\nzebra\na blue circle on black\n", encoding="utf-8")
    said = limner(*command, tmp_path / "own.txt")
    assert "2 added, 0 unchanged, 1 left out" in said.out
    assert "knows no word of it: zebra" in said.err
    lines = limner("search", own, "--image", picture, "--sentences", "-k", 4).out.splitlines()
    told = json.loads(limner("search", own, "--like", picture, "--sentences", "-k", 4, "--json").out)[
        "sentences"
    ]
    assert [line.split()[1] for line in lines] == [f"{hit['score']:+.3f}" for hit in told]
    assert all(hit["text"] in line for hit, line in zip(told, lines, strict=True))
    refused(limner("search", own, "red", "--sentences", "--group", "near"), "goes with TEXT, --image")
    refused(limner(*command, tmp_path / "own.txt", "--split", "val"), "has no splits")
    refused(limner(*command, tmp_path / "none.txt"), "No such file")


def test_an_engine_for_indexing(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    # not imported here: limner keeps its telemetry out
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("openvino is not installed")
    store = tmp_path / "store"
    assert "36 added" in limner("index", toy_run, store, pictures, "--engine", "openvino").out
    assert limner("search", store, QUERY).code == 0
    refused(
        limner("index", toy_run, store, pictures, "--engine", "steam"),
        "expected torch, openvino, got 'steam'",
    )


def test_conditions_alone_list_pictures(limner: Limner, store: Path) -> None:
    listed = limner("search", store, "--where", "path~*", "-k", 3, "--cpu")
    assert (listed.code, len(listed.out.splitlines())) == (0, 3)
    assert "pictures that meet the conditions, the newest first" in listed.err
    told = json.loads(limner("search", store, "--where", "path~*", "-k", 2, "--json", "--cpu").out)
    assert (len(told["hits"]), told["matching"]) == (2, told["total"])
    nothing = limner("search", store, "--where", "identiy=7", "--cpu")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no picture has 'identiy' (is it 'identity'?)" in nothing.err
    assert limner("search", store, "--after", "2200-01-01", "--cpu").out == ""
    refused(limner("search", store, "--cpu"), "give a TEXT, --image, --like or --queries, or --where alone")

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from limner.wire import Answer, Attention, Explanation, FoundSentence, Hit, Item, Items
from tests.search.fake import answer_of


def hit(**values: Any) -> Hit:
    plain: dict[str, Any] = {
        "rank": 1,
        "score": 0.5,
        "id": "a" * 32,
        "name": "x.jpg",
        "identity": None,
        "metadata": {},
        "taken": None,
        "confidence": None,
        "probability": None,
        "group": None,
    }
    return Hit(**{**plain, **values})


def test_an_answer_is_a_sequence_of_its_hits() -> None:
    answer = answer_of((hit(), hit(rank=2, score=0.25)), 3, 2)
    assert [one.rank for one in answer] == [1, 2]
    assert (len(answer), answer[1].rank) == (2, 2)
    assert not answer_of((), 3, 0)


def test_reprs_are_one_short_line() -> None:
    long = hit(metadata={"text": "word " * 1000}, path=Path("/home/ann/x.jpg"))
    answer = answer_of((long,) * 100, 3, 2)
    words = ("word",) * 100
    item = Item(id="b" * 32, name="b.jpg", identity=None, metadata={"text": "word " * 1000}, taken=None)
    items = Items(items=(item,) * 100, total=300)
    assert (len(items), [one.id for one in items], repr(items)) == (
        100,
        ["b" * 32] * 100,
        "Items(100 of 300)",
    )
    attention = Attention(
        words=words, of_regions=None, of_words=None, reader="step", crop=(0.0, 0.0, 1.0, 1.0)
    )
    explanation = Explanation(
        words=words,
        weights=None,
        phrases=(),
        method="leave-one-out",
        attention=attention,
        score=0.5,
        confidence=None,
        unknown=(),
    )
    sentence = FoundSentence(rank=1, score=0.5, text="word " * 1000, id=None, key="0" * 32)
    for one in (long, answer, answer_of((), 0, 0), item, items, attention, explanation, sentence):
        assert len(repr(one)) < 120
        assert "\n" not in repr(one)


def test_a_table_has_a_column_for_each_name_of_the_metadata() -> None:
    hits = (
        hit(metadata={"camera": 3, "mixed": 1}, taken=datetime(2026, 11, 20, 8)),
        hit(rank=2, metadata={"mixed": "two"}, path=Path("/a/b.jpg")),
    )
    answer = answer_of(hits, 2, 2)
    rows = answer.to_rows()
    assert [row["metadata.camera"] for row in rows] == [3, None]
    table = answer.to_table()
    assert table.column_names == list(rows[0])
    assert table["metadata.mixed"].to_pylist() == ["1", '"two"']
    assert table["taken"].to_pylist() == [datetime(2026, 11, 20, 8), None]
    assert answer_of((), 0, 0).to_table().schema.names[:3] == ["rank", "score", "id"]
    first, *lines = str(answer).splitlines()
    assert first.split() == ["rank", "score", "path", "taken", "metadata.camera", "metadata.mixed"]
    assert len(lines) == 2
    assert str(answer_of((), 0, 0)) == "(no hits)"


def test_json_and_back() -> None:
    answer = answer_of((hit(taken=datetime(2026, 11, 20, 8, 15)),), 1, 1)
    values = json.loads(answer.model_dump_json())
    assert values["hits"][0]["taken"] == "2026-11-20T08:15:00"
    assert not {"path", "attention"} & values["hits"][0].keys()
    assert Answer.read(values) == answer
    assert Answer.read({**values, "later": 1, "hits": [{**values["hits"][0], "later": 2}]}) == answer


def test_the_types_need_neither_torch_nor_arrow() -> None:
    code = (
        "import sys, limner.client, limner.requests, limner.wire; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'pyarrow', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

"""`POST /v1/export`: judged searches as files, with where they come from."""

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from limner.judgements import Judgements
from limner.search.contact_sheet import FALSE, TRUE
from limner.search.engine import Engine
from limner.search.judgement_files import cell, query_name
from limner.search.store import Store
from limner.server import routes_export
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.settings import ServerSettings
from limner.server.tokens import add_token
from tests.server.serving import HOME, problem

TEXT = "a red coat"


def searches(engine: Engine) -> list[dict[str, Any]]:
    keys = engine.files.snapshot().keys
    return [
        {
            "text": TEXT,
            "where": ["camera=1"],
            "pictures": [
                {
                    "id": keys[0],
                    "mark": "right",
                    "note": "=HYPERLINK(1)",
                    "rank": 1,
                    "score": 0.5,
                    "probability": 0.75,
                },
                {"id": keys[1], "mark": "wrong", "note": "no, “another”\nshoe"},
                {"id": keys[2], "mark": "maybe"},
                {"id": keys[3]},
            ],
        }
    ]


def exported(client: TestClient, form: str, of: Any) -> bytes:
    answer = client.post("/v1/export", json={"form": form, "searches": of})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith('attachment; filename="limner-')
    content: bytes = answer.content
    assert HOME.encode() not in content
    assert str(Path.cwd()).encode() not in content
    return content


def test_json_says_what_and_where_from(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(engine), "languages", ("English",))
    found = Judgements.model_validate_json(exported(client, "json", searches(engine)))
    (search,) = found.searches
    assert (search.query, search.text, search.where) == (query_name(TEXT, None), TEXT, ("camera=1",))
    assert [one.mark for one in search.pictures] == ["right", "wrong", "maybe", None]
    assert [one.name for one in search.pictures] == ["0.png", "1.png", "2.png", "3.png"]
    assert search.pictures[0].probability == 0.75
    origin = found.provenance
    assert (origin.who, origin.total, origin.store) == (None, 8, engine.files.manifest.id)
    assert origin.model.model_dump(mode="json") == client.get("/v1/info").json()["model"]
    assert origin.version == engine.files.snapshot().version
    assert origin.exported.utcoffset() is not None
    assert origin.model.languages == ("English",)
    assert origin.store == client.get("/v1/info").json()["id"]


def test_csv_is_a_row_a_picture_and_runs_no_formula(client: TestClient, engine: Engine) -> None:
    text = exported(client, "csv", searches(engine)).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["mark"] for row in rows] == ["right", "wrong", "maybe", ""]
    assert rows[0]["note"] == "'=HYPERLINK(1)"
    assert rows[1]["note"] == "no, “another”\nshoe"
    assert {row["query"] for row in rows} == {query_name(TEXT, None)}
    assert (rows[0]["identity"], rows[1]["identity"], rows[1]["metadata.camera"]) == ("even", "", "2")
    assert {row["model"] for row in rows} == {engine.files.fingerprint}


@pytest.mark.parametrize("sign", "=+-@＝＋－＠")
def test_no_part_of_a_cell_is_a_formula_in_any_spreadsheet(sign: str) -> None:
    for front in ("", " ", "\t", "\n", "\r\n", ";", " ;; "):
        assert cell(f"{front}{sign}1+1").startswith("'")
    for parting in (";", "\t", "\n", "\r\n", ";;"):
        assert cell(f"a{parting}{sign}1+1") == f"a{parting}'{sign}1+1"
    for harmless in (f"a{sign}b", f"a, {sign}b", "a;b", "a\nb", ";a", " a"):
        assert cell(harmless) == harmless


def test_trec(client: TestClient, engine: Engine) -> None:
    keys = engine.files.snapshot().keys
    name = query_name(TEXT, None)
    of = searches(engine)
    assert exported(client, "qrels", of).decode() == f"{name} 0 {keys[0]} 1\n{name} 0 {keys[1]} 0\n"
    assert exported(client, "queries", of).decode() == f"{name}\t{TEXT}\n"
    # the same text once more, with other conditions: one query, whose marks must agree
    again = {"text": f"  {TEXT} ", "pictures": [{"id": keys[0], "mark": "right"}]}
    assert len(exported(client, "qrels", [*of, again]).splitlines()) == 2
    again["pictures"] = [{"id": keys[0], "mark": "wrong"}]
    answer = client.post("/v1/export", json={"form": "qrels", "searches": [*of, again]})
    assert "marked both right and wrong" in problem(answer, 409)["detail"]
    nothing = {"form": "qrels", "searches": [{"like": keys[1], "pictures": of[0]["pictures"]}]}
    assert "marked right" in problem(client.post("/v1/export", json=nothing), 409)["detail"]


def test_a_contact_sheet_needs_no_file(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    sheet = exported(client, "sheet", searches(engine))
    (tmp_path / HOME).rename(tmp_path / "away")
    assert exported(client, "sheet", searches(engine)) == sheet


def test_a_contact_sheet_has_frames_by_marks(client: TestClient, engine: Engine) -> None:
    with Image.open(io.BytesIO(exported(client, "sheet", searches(engine)))) as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    # nothing on a sheet but the frames has these colours; the toys have some pixels like them
    for colour in (TRUE, FALSE):
        assert np.count_nonzero(np.abs(pixels - colour).max(axis=2) < 24) > 1000


def test_a_zip_holds_all_of_it(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    # of a picture that has changed since, what the store knows is its thumbnail
    (tmp_path / HOME / "3.png").write_bytes(b"another")
    with zipfile.ZipFile(io.BytesIO(exported(client, "zip", searches(engine)))) as packed:
        names = packed.namelist()
        keys = engine.files.snapshot().keys
        assert [name for name in names if name.startswith("pictures/")] == [
            *(f"pictures/{key}.png" for key in keys[:3]),
            f"pictures/{keys[3]}-thumbnail.jpg",
        ]
        assert names[:5] == ["judgements.json", "judgements.csv", "queries.tsv", "qrels.txt", "sheet-001.jpg"]
        shown = client.get(f"/v1/images/{keys[0]}").content
        assert packed.read(f"pictures/{keys[0]}.png") == shown
        assert json.loads(packed.read("judgements.json"))["provenance"]["total"] == 8
    alone = [{"text": TEXT, "pictures": [{"id": keys[0]}]}]
    with zipfile.ZipFile(io.BytesIO(exported(client, "zip", alone))) as packed:
        assert b"marked right" in packed.read("qrels-missing.txt")


def test_pictures_that_are_gone_are_named_and_nothing_more(client: TestClient, engine: Engine) -> None:
    gone, kept = engine.files.snapshot().keys[:2]
    of = [
        {
            "text": TEXT,
            "like": gone,
            "pictures": [{"id": gone, "mark": "right"}, {"id": kept, "mark": "right"}],
        }
    ]
    engine.files.delete([gone])
    found = Judgements.model_validate_json(exported(client, "json", of))
    assert found.unknown == (gone,)
    assert [one.id for one in found.searches[0].pictures] == [kept]
    assert found.searches[0].like is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"form": "pdf", "searches": [{"text": "a"}]}, 422),
        ({"form": "csv", "searches": []}, 422),
        ({"form": "sheet", "searches": [{"text": "a"}, {"text": "b"}]}, 422),
        ({"form": "csv", "searches": [{"pictures": [{"id": "0" * 32, "mark": "good"}]}]}, 422),
        ({"form": "csv", "searches": [{"pictures": [{"id": "0" * 32, "note": "a" * 1001}]}]}, 422),
        ({"form": "zip", "searches": [{"pictures": [{"id": "0" * 32}] * 201}]}, 413),
        ({"form": "csv", "searches": [{"pictures": [{"id": "0" * 32}] * 1000}] * 6}, 413),
    ],
)
def test_refusals(client: TestClient, body: Any, status: int) -> None:
    problem(client.post("/v1/export", json=body), status)


def test_a_zip_has_a_limit_in_bytes(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_export, "_ZIP", 10)
    answer = client.post("/v1/export", json={"form": "zip", "searches": searches(engine)})
    assert "a zip may have" in problem(answer, 413)["detail"]


def test_an_export_is_recorded_with_its_pictures_and_who(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    ann = add_token(tmp_path / "tokens.json", "ann", {"search"})
    adder = add_token(tmp_path / "tokens.json", "adder", {"add"})
    app = create_app(Store(engine), ServerSettings(audit=file, tokens=tmp_path / "tokens.json"))
    client = TestClient(app)
    body = {"form": "json", "searches": searches(engine)}
    problem(client.post("/v1/export", json=body), 401)
    problem(client.post("/v1/export", json=body, headers={"Authorization": f"Bearer {adder}"}), 403)
    answer = client.post("/v1/export", json=body, headers={"Authorization": f"Bearer {ann}"})
    assert answer.json()["provenance"]["who"] == "ann"
    assert verify(file).sound
    line = json.loads(file.read_text(encoding="ascii").splitlines()[-1])
    assert (line["request"], line["who"], line["form"], line["text"]) == ("export", "ann", "json", TEXT)
    assert line["where"] == ["camera=1"]
    assert (line["found"], line["count"]) == (engine.files.snapshot().keys[:4], 4)

"""Schemathesis looks for answers that `/openapi.json` does not foretell: all of its checks, on every route."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from pydantic import SecretStr

from limner.search.store import Store
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.problems import MEDIA_TYPE
from limner.server.settings import ServerSettings
from limner.server.tokens import RIGHTS, add_token, revoke_token
from limner.store.folders import Folder, follow_folders
from tests.server.running import running
from tests.server.serving import HOME, toy_engine

TOKEN = "0123456789abcdef"
EXAMPLES, SEED = 5, 11


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens.json", "fuzzer", RIGHTS)
    limits = ServerSettings(
        tokens=tmp_path / "tokens.json",
        changes=True,
        uploads=tmp_path / "uploads",
        audit=tmp_path / "audit",
        rate=0,
        watch=True,
        alerts=True,
    )
    engine = toy_engine(tmp_path)
    follow_folders(engine.files, [Folder(str(tmp_path / HOME))])
    with running(create_app(Store(engine), limits)) as url:
        command = [
            *(
                str(Path(sys.executable).with_name("schemathesis")),
                "--no-color",
                "run",
                f"{url}/openapi.json",
            ),
            *(
                "--header",
                f"Authorization: Bearer {token}",
                "--checks",
                "all",
                "--suppress-health-check",
                "all",
            ),
            *("--max-examples", str(EXAMPLES), "--seed", str(SEED), "--generation-database", "none"),
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "FAILURES" not in done.stdout
    assert re.search(r"[1-9]\d{2,} generated", done.stdout), done.stdout
    # whatever was sent, the record of it is whole
    report = verify(tmp_path / "audit")
    assert report.sound
    assert report.lines > 100


@pytest.mark.parametrize("path", ["/v1/search", "/v1/sentences", "/v1/explain", "/v1/export"])
# schemathesis draws with `random` in its strategies
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
def test_what_the_description_calls_valid_is_not_called_invalid(path: str, tmp_path: Path) -> None:
    app = create_app(Store(toy_engine(tmp_path)), ServerSettings(rate=0))
    drawn = schemathesis.openapi.from_asgi("/openapi.json", app)[path]["POST"].as_strategy()

    @settings(
        max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck], database=None
    )
    @given(case=drawn)
    def holds(case: Any) -> None:
        answer = client.post(path, json=case.body)
        assert answer.status_code != 422, (case.body, answer.text)
        statuses.add(answer.status_code)

    statuses: set[int] = set()
    with TestClient(app) as client:
        holds()
    # not only what is refused for another reason
    assert statuses & {200, 404}


def test_every_refusal_of_the_description_is_a_problem(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert response["content"].keys() == {MEDIA_TYPE}, (path, method, status)
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert "securitySchemes" not in schema["components"]


def test_the_description_has_this_servers_limits(tmp_path: Path) -> None:
    app = create_app(Store(toy_engine(tmp_path)), ServerSettings(max_k=7, token=SecretStr(TOKEN)))
    schema = app.openapi()
    for body in ("SearchBody", "SentencesBody"):
        assert schema["components"]["schemas"][body]["properties"]["k"]["maximum"] == 7
    assert schema["paths"]["/v1/search"]["post"]["security"]
    named = create_app(Store(toy_engine(tmp_path / "other")), ServerSettings(tokens=_no_tokens(tmp_path)))
    assert named.openapi()["paths"]["/v1/search"]["post"]["security"]
    # a token may lack the right to any of these
    for path, operations in schema["paths"].items():
        # but to be remembered
        if path.startswith("/v1/") and path != "/v1/token":
            assert all("403" in operation["responses"] for operation in operations.values()), path
    names = schema["components"]["schemas"]["NewItem"]["properties"]["metadata"]["propertyNames"]
    blank = r"[\s\x1c-\x1f\x85]"
    assert names == {"minLength": 1, "not": {"pattern": rf"^path$|^{blank}|{blank}$"}}
    assert "security" not in schema["paths"]["/health"]["get"]


def _no_tokens(folder: Path) -> Path:
    file = folder / "none.json"
    add_token(file, "a", RIGHTS)
    revoke_token(file, "a")
    return file


def test_no_answer_has_a_path(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert not [name for name, schema in schemas.items() if "path" in schema.get("properties", {})]
    # what the library leaves open, a server always tells
    assert schemas["Answer"]["properties"]["took_ms"]["type"] == "number"
    assert "took_ms" in schemas["Answer"]["required"]
    assert schemas["StoreInfo"]["properties"]["max_k"]["type"] == "integer"

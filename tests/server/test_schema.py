"""Schemathesis looks for answers that `/openapi.json` does not foretell: all of its checks, on every route."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import SecretStr

from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.serving import toy_engine

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("schema")
    allowed = ServerSettings(
        token=SecretStr(TOKEN), changes=True, uploads=folder / "uploads", audit=folder / "audit", rate=0
    )
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(toy_engine(folder), allowed))


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(
    max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
def test_answers_are_as_described(case: Any) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

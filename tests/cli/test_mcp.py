import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Limner

mcp = pytest.importorskip("mcp")


def test_an_agent_over_standard_input_and_output(store: Path, tmp_path: Path) -> None:
    command = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "limner", "mcp", str(store), "--cpu"],
        cwd=tmp_path,
        env=dict(os.environ),
    )

    async def asked() -> Any:
        async with mcp.Client(command) as client:
            return await client.call_tool("search_pictures", {"description": "a red square", "limit": 2})

    found = asyncio.run(asked()).structured_content["found"]
    assert len(found) == 2
    assert all(Path(one["name"]).is_file() for one in found)


def test_what_is_no_store_is_one_line(limner: Limner, tmp_path: Path) -> None:
    for place, said in (
        (tmp_path / "none", "no such store"),
        ("http://127.0.0.1:1", "cannot be reached"),
    ):
        refused = limner("mcp", place)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err
